"""A compiled graph on a Vulkan device: command buffers for a few widths, recorded when first needed, run again and
again.  Between runs only the header changes: counts and column facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core import Columns, GolemError, Graph, KVRing, Operand, Plan, Recurrent, Ring, State, Step
from golem_vulkan.gpu import Timer
from golem_vulkan.lists import MOST, Lists
from golem_vulkan.memory import Arenas, Block
from golem_vulkan.recording import COMPUTE, HOST, TRANSFER, Copy, Recording
from golem_vulkan.states import RecurrentStates, Saved
from golem_vulkan.steps import Constant, Given, Matrix, Nothing, Planes, Positions, Rows, Values, Vector

if TYPE_CHECKING:
    from golem_vulkan.device import VulkanDevice

BUCKETS = (1, 4, 8, 32, 128)
"""Widths that have command buffers of their own, besides the widest; a pass runs the least that holds its columns."""
RING_STEP = 64
"""Positions by which the lengths of rings go: what kernels read at once doesn't run over the end."""
SPARE = 512
"""Positions that a ring keeps beyond its window: a conversation can go back that far without being read again."""
MOST_DOWNLOADS = 256
"""Command buffers that are kept for copying results, of which every choice of rows takes one."""
FACTS = 9
"""Of each row: token, position, slot, index among the columns, where its conversation begins, where it ends, the share
in which recurrent states stand after it (of a conversation: before it), the last position that it sees, and the number
of its conversation among those of the pass."""
FIRST, END, SHARE, LAST, RUN = 4, 5, 6, 7, 8
"""Where five of them stand."""
RUNS_READERS = ("attend_columns", "attend_fragments", "causal_conv1d", "delta", "pool", "prepend")
"""Kernels that ask which columns belong together; so does every step that is given the rows "runs"."""
BEHIND = 16 << 20
"""Bytes of the arena behind all that lies in it: products read up to 128 rows of fragments that aren't there."""
HEAD = 8
"""Words before the facts: the count, and seven unused."""


def needs_runs(step: Step) -> bool:
    given = any(isinstance(a, (Rows, Operand)) and a.rows == "runs" for a in step.args)
    return given or step.kernel.startswith(RUNS_READERS)


def buckets(width: int) -> list[int]:
    return [*(n for n in BUCKETS if n < width), width]


def ring_length(ring: KVRing, context: int, width: int) -> int:
    """Positions that a ring holds: all, or the window and one pass more, at least `SPARE`."""
    wanted = context if ring.window is None else min(context, ring.window + max(width, SPARE))
    return -(-wanted // RING_STEP) * RING_STEP


def ring_bytes(ring: KVRing, positions: int, slots: int, kv: str) -> int:
    """Of its keys, or of its values, as 16-bit floats or as Q8_0 blocks."""
    entries = ring.heads * ring.dim * positions * slots
    return entries + entries // 16 if kv == "q8_0" else 2 * entries


@dataclass(frozen=True)
class Download:
    """Copies results to where the host reads them: nothing where there are none to copy.  `places`: of each output its
    name, where it begins there, how many rows it has and how they lie."""

    recording: Recording | None
    places: list[tuple[str, int, int, Operand]]


def stretches(rows: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the number of each stretch of ascending `rows` that follow each other."""
    if isinstance(rows, range):
        return [(rows.start, len(rows))] if rows else []
    cuts = [i for i, row in enumerate(rows) if i == 0 or row != rows[i - 1] + 1]
    return [(rows[a], b - a) for a, b in pairwise([*cuts, len(rows)])]


class VulkanPass:
    """Not for several threads at once."""

    def __init__(
        self,
        device: VulkanDevice,
        graph: Graph,
        plans: dict[int, Plan],
        slots: int,
        context: int,
        capacity: dict[str, int],
        tentative: int,
    ):
        self.device, self.graph, self.plans = device, graph, plans
        self.slots, self.context = slots, context
        self.width, self.capacity = capacity["all"], capacity
        self.memory = {kind: Arenas(device.gpu, kind) for kind in ("device", "header", "upload", "download")}
        take = self.memory["device"].take
        self.positions = {ring: ring_length(ring, context, self.width) for ring in graph.rings}
        self.rings: Sequence[Ring] = tuple(Ring(self.positions[r], r.window) for r in graph.rings)
        self.keys: dict[KVRing, Block] = {}
        self.values: dict[KVRing, Block] = {}
        for ring in graph.rings:
            size = ring_bytes(ring, self.positions[ring], slots, device.kv)
            self.keys[ring], self.values[ring] = take(size), take(size)
        self.clear([*self.keys.values(), *self.values.values()])
        self.recurrent = RecurrentStates(device.gpu, device.pipelines, graph.recurrent, slots, tentative, take)
        self.arena = take(max(plan.arena for plan in plans.values()) + BEHIND)
        self.outputs = {name: take(self.output_bytes(name)) for name in graph.outputs}
        sizes = [sum(self.place_bytes(p, capacity[p.rows]) for p in plan.outputs.values()) for plan in plans.values()]
        self.results = self.memory["download"].take(max(sizes))
        self.header = {
            rows: self.memory["header"].take(4 * (HEAD + FACTS * n), 1 << 14) for rows, n in capacity.items()
        }
        for block in self.header.values():  # of a row that isn't there kernels may read what they don't use
            assert block.bytes is not None
            block.bytes[:] = 0
        self.given = {
            name: self.memory["upload"].take(4 * prod(shape) * self.width) for name, shape in graph.inputs.items()
        }
        self.unchanged: dict[str, np.ndarray] = {}
        """Inputs whose memory has what an array holds that nobody can write to."""
        self.reads_runs = any(needs_runs(step) for plan in plans.values() for step in plan.steps)
        self.runs: dict[int, Any] = {}
        self.downloads: dict[Any, Download] = {}
        self.lists: Lists | None = None
        self.recordings: list[Recording] = []

    def output_bytes(self, name: str) -> int:
        places = [plan.outputs[name] for plan in self.plans.values()]
        return max([256, *(p.buffer.size for p in places if p.buffer.output)])

    def place_bytes(self, place: Operand, rows: int) -> int:
        return -(-place.stride * rows // 256) * 256

    def clear(self, blocks: list[Block]) -> None:
        """Zeros: kernels may multiply what no column sees by nought, so it must be numbers."""
        r = Recording(self.device.gpu, self.device.pipelines)
        r.begin()
        for block in blocks:
            r.fill(block, 0, block.size)
        self.device.gpu.run(r.end())
        r.close()

    # ------------------------------------------------------------ addresses

    def block(self, place: Operand) -> tuple[Block, int]:
        """The memory that an operand's buffer lies in, and where it begins there."""
        if place.buffer.output:
            return self.outputs[place.buffer.output], 0
        return self.arena, place.buffer.offset

    def address(self, a: Any) -> int | Sequence[int]:
        weights = self.device.weights
        match a:
            case Operand():
                block, start = self.block(a)
                return block.address + start + a.start
            case State(state) if isinstance(state, KVRing):
                return self.keys[state].address
            case State(state):
                assert isinstance(state, Recurrent)
                return self.recurrent.blocks[state].address
            case Values(ring):
                return self.values[ring].address
            case Positions(ring):
                return self.positions[ring]
            case Rows(rows):
                return self.header[rows].address
            case Matrix(weight):
                return weights.matrices[weight].block.address
            case Planes(weight):
                return weights.matrices[weight].planes
            case Vector(weight, first):
                return weights.vectors[weight].address + 4 * first
            case Constant(array):
                return weights.constant(array).address
            case Given(name):
                return self.given[name].address
            case Nothing():
                return 0
        raise AssertionError(f"{a} is no field of a kernel")

    # ------------------------------------------------------------ running

    def prepare_lists(self, most: int, without: Sequence[int]) -> int:
        """Gets ready to list the largest entries of "logits", at most `most` of a row, without the entries `without`;
        how many it will list."""
        logits = self.graph.outputs.get("logits")
        if logits is None or logits.rows != "scored":
            return 0
        self.lists = Lists(self, "logits", min(most, MOST, logits.size), without)
        return self.lists.most

    def run(self, columns: Columns, *, lists: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Output name -> float32 (rows, *shape), valid until the next run.

        With `lists`, for each scored column how many of the largest of its "logits" are wanted or 0 for all of them,
        "logits" has the latter rows only, and "list_ids", "list_values" and "log_total" stand for the others.

        Raises ValueError for more columns, scored columns, slots or positions than it was compiled for.
        """
        n, scored = len(columns), columns.scored
        if not 0 < n <= self.width or len(scored) > self.capacity["scored"]:
            raise ValueError(
                f"a pass takes {self.width} columns and scores {self.capacity['scored']}, not {n} and {len(scored)}"
            )
        if columns.slot.max() >= self.slots or columns.position.max() >= self.context or columns.position.min() < 0:
            raise ValueError(f"a slot or position lies outside {self.slots} slots of {self.context} positions")
        self.graph.check_inputs(columns)
        if columns.tentative and not self.reads_runs:
            self.recurrent.tentative = n
        counts = self.write_header(columns)
        width = next(b for b in self.plans if b >= n)
        if width not in self.runs:
            self.runs[width] = self.record(width)
            self.device.pipelines.save()
        wanted = np.zeros(len(scored), np.int64) if lists is None else np.asarray(lists)
        short, listing = np.flatnonzero(wanted), self.lists
        whole = tuple(np.flatnonzero(wanted == 0).tolist()) if len(short) else None
        download = self.download(width, counts, whole)
        commands, count = [self.runs[width]], 0
        if len(short):
            if listing is None or wanted.max() > listing.most or len(wanted) != len(scored):
                raise ValueError(f"no lists of {wanted.max()} numbers were prepared for {len(scored)} scored columns")
            count = listing.count(int(wanted.max()))
            commands.append(listing.commands(width, count))
        if download.recording is not None:
            commands.append(download.recording.commands)
        gpu = self.device.gpu
        gpu.submit(*commands)
        gpu.wait()
        if self.device.complaints:
            raise GolemError(f"vulkan: the validation layer says: {self.device.complaints[0]}")
        assert self.results.bytes is not None
        found = {}
        for name, start, rows, place in download.places:
            value = self.graph.outputs[name]
            whole = self.results.bytes[start : start + rows * place.stride].view(np.float32)
            first = place.start // 4
            flat = whole.reshape(rows, place.stride // 4)[:, first : first + value.size]
            found[name] = flat.reshape(rows, *value.shape)
        return found | listing.read(count, short) if listing is not None and len(short) else found

    def write_header(self, columns: Columns) -> dict[str, int]:
        """Writes what kernels read of this pass, and returns the rows of each row set."""
        n, scored = len(columns), columns.scored
        every = np.zeros((n, FACTS), np.int64)
        for i, fact in enumerate((columns.token, columns.position, columns.slot, np.arange(n))):
            every[:, i] = fact
        every[:, LAST] = columns.last
        facts = {"all": every, "scored": every}
        if self.reads_runs:
            first = np.concatenate([[0], np.flatnonzero(np.diff(columns.slot)) + 1])
            if len(set(columns.slot[first].tolist())) != len(first):
                raise ValueError("the columns of a slot do not lie together")
            end = np.append(first[1:], n)
            length = end - first
            every[:, FIRST], every[:, END] = np.repeat(first, length), np.repeat(end, length)
            every[:, RUN] = np.repeat(np.arange(len(first)), length)
            facts["runs"] = every[first]
            facts["runs"][:, SHARE] = [self.recurrent.share_of[slot] for slot in columns.slot[first].tolist()]
            every[:, SHARE] = self.recurrent.facts(columns, end - 1)
        facts["scored"] = every[scored]
        for rows, table in facts.items():
            words = np.concatenate([[len(table)], np.zeros(HEAD - 1, np.int64), table.reshape(-1)]).astype(np.uint32)
            room = self.header[rows].bytes
            assert room is not None
            room[: words.nbytes] = words.view(np.uint8)
        for name, rows in columns.inputs.items():
            if rows is self.unchanged.get(name):
                continue
            room = self.given[name].bytes
            assert room is not None
            room[: rows.nbytes] = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
            self.unchanged.pop(name, None)
            if rows.flags.owndata and not rows.flags.writeable:  # what is a part of another may change with it
                self.unchanged[name] = rows
        return {rows: len(table) for rows, table in facts.items()}

    def record(self, width: int, timer: Timer | None = None) -> Any:
        r = self.recording()
        r.steps(self.plans[width].steps, self.address, timer)
        r.barrier(COMPUTE, COMPUTE | TRANSFER)
        return r.end()

    def recording(self) -> Recording:
        r = Recording(self.device.gpu, self.device.pipelines)
        self.recordings.append(r)
        r.begin()
        return r

    def download(self, width: int, counts: dict[str, int], whole: tuple[int, ...] | None) -> Download:
        """What brings the results of so many rows home; of the listed output those of `whole`, or None for all."""
        outputs = self.plans[width].outputs
        read = {place.rows for place in outputs.values()}
        key = width, whole, *(n for rows, n in counts.items() if rows in read)
        if key not in self.downloads:
            if len(self.downloads) >= MOST_DOWNLOADS:
                self.forget_downloads()
            self.downloads[key] = self.record_download(outputs, counts, whole)
        return self.downloads[key]

    def record_download(
        self, outputs: dict[str, Operand], counts: dict[str, int], whole: tuple[int, ...] | None
    ) -> Download:
        copies, places, end = [], [], 0
        for name, place in outputs.items():
            block, start = self.block(place)
            listed = whole is not None and self.lists is not None and name == self.lists.name
            rows = whole if listed else range(counts[place.rows])
            assert rows is not None
            for first, count in stretches(rows):
                at, to = start + first * place.stride, end + rows.index(first) * place.stride
                copies.append(Copy(block, self.results, count * place.stride, at, to))
            places.append((name, end, len(rows), place))
            end += self.place_bytes(place, len(rows))
        if not copies:
            return Download(None, places)
        r = Recording(self.device.gpu, self.device.pipelines)
        r.begin()
        r.copy(copies)
        r.barrier(TRANSFER, HOST)
        r.end()
        return Download(r, places)

    def forget_downloads(self) -> None:
        for download in self.downloads.values():
            if download.recording is not None:
                download.recording.close()
        self.downloads = {}

    # ------------------------------------------------------------ recurrent states

    @property
    def saved_bytes(self) -> int:
        return self.recurrent.saved_bytes

    def save(self, slot: int) -> Saved:
        """A copy of the slot's recurrent states, in device memory."""
        return self.recurrent.save(slot)

    def restore(self, slot: int, saved: Saved | None) -> None:
        """Puts the slot's recurrent states back to what `save` returned; None: zeros."""
        self.recurrent.restore(slot, saved)

    def keep(self, slot: int, count: int) -> None:
        """The slot's recurrent states stand after the first `count` of the tentative columns that ran last."""
        self.recurrent.keep(slot, count)

    def close(self) -> None:
        """Gives the pass's memory back; it doesn't run any more."""
        if self in self.device.passes:
            self.device.passes.remove(self)
        for r in self.recordings:
            r.close()
        self.forget_downloads()
        self.recordings, self.runs, self.lists = [], {}, None
        for arena in self.memory.values():
            arena.close()
