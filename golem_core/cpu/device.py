"""The CPU as a device: compiles any graph of the vocabulary into a program that a team of threads runs.

One program serves every number of columns up to the pass's width: kernels read the counts when they run.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from golem_core.cpu import team as teams
from golem_core.cpu.arguments import Constant, Counter, Matrix, RingFact, Scratch, Table, Vector
from golem_core.cpu.assembly import Assembly
from golem_core.cpu.convolution_lowering import STRETCHES, weight_format
from golem_core.cpu.facts import FACTS, is_output, reads_runs, writes_output
from golem_core.cpu.formats import Format
from golem_core.cpu.kernels import (  # noqa: F401  (register)
    attention,
    cells,
    convolution,
    elementwise,
    experts,
    hadamard,
    moves,
    orders,
    pictures,
    products,
    program,
    quantize,
    recurrence,
    rotation,
)
from golem_core.cpu.lowering import CpuLowering
from golem_core.cpu.memory import together, usable, zeroed
from golem_core.cpu.rings import RingMemory, bytes_needed
from golem_core.errors import GolemError, Unsupported
from golem_core.files import mapped_pages, refuse_nan
from golem_core.files.weights import Weight
from golem_core.graph.device import Ring
from golem_core.graph.graph import Columns, Graph
from golem_core.graph.planner import Count, Fact, Operand, Plan, Planner, State, Step
from golem_core.graph.value import ALL, RUNS, SCORED, KVRing

REPACK_BYTES = 2 << 20
"""Bytes of a weight that are repacked before the file's pages under them are released."""
AT_ONCE = 64 << 20
"""Bytes of weights that are repacked by one program, at least: between programs, other threads of Python may hold
things up."""
WIDTH = 128
"""Most columns of a pass unless the caller asks for another number.

Prompts are read fastest at about this width: a fifth faster than 8 or 512 columns at once.  Narrower passes decode the
weights for too few columns, and of wider ones the activations leave the nearest caches."""


class CpuDevice:
    """`threads` (default: physical cores) threads; KV rings of "f16", "f32" or "q8_0".

    Several models share the threads.
    """

    name = "cpu"

    def __init__(self, *, threads: int | None = None, kv: str = "f16", library: Any = None):
        if kv not in cells.KINDS:
            raise Unsupported(f"kv {kv!r}: the CPU keeps keys and values as {' or '.join(cells.KINDS)}")
        most = max(16, 4 * (os.cpu_count() or 1))
        if threads is not None and not 1 <= threads <= most:
            raise GolemError(f"-threads {threads}: this machine's {os.cpu_count()} processors can use 1 to {most}")
        self.threads, self.kv = threads or teams.physical_cores(), kv
        self.team = teams.shared_team(self.threads) if library is None else teams.Team(library, self.threads)
        self.library = self.team.library
        self.matrices: dict[Weight, np.ndarray] = {}
        self.vectors: dict[Weight, np.ndarray] = {}

    def compile(
        self,
        graph: Graph,
        *,
        slots: int = 1,
        context: int = 4096,
        width: int = WIDTH,
        scored: int | None = None,
        tentative: int = 0,
        fuse: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> CpuPass:
        """Takes over the weights of `graph` (repacked once, however many graphs read them) and makes its states.

        `context` is positions per slot, `width` the most columns of a pass, `scored` (default: one per
        slot) the most of them that are scored, `tentative` the most of a run that may be taken back.  `progress(done,
        total)` counts bytes of weights.  Raises Unsupported naming the op or weight that there are no kernels for,
        GolemError if the states are larger than the memory.
        """
        width = min(width, -(-context // 16) * 16 * slots)
        self.check_states(graph, slots, context, width, spare(tentative))
        capacity = {ALL: width, SCORED: min(width, scored or slots), RUNS: min(width, slots)}
        plan = Planner(graph, CpuLowering(self.kv).table(), capacity, fuse=fuse).plan()
        self.take_weights(plan, progress)
        return CpuPass(self, graph, plan, slots, context, capacity, spare(tentative))

    def check_states(self, graph: Graph, slots: int, context: int, width: int, spare: int = 0) -> None:
        """Raises GolemError where the states of `slots` conversations, and `spare` more copies of the recurrent ones,
        are larger than the memory there is."""
        needed = bytes_needed(graph.rings, context, width, self.kv)
        recurrent = sum(4 * prod(state.shape) for state in graph.recurrent)
        needed = slots * (needed + recurrent) + spare * recurrent
        there = usable()
        if there is not None and needed > there:
            raise GolemError(
                f"{slots} × {context} positions (-context) need {needed / 1e9:.1f} GB for keys, values and "
                f"states, and there are {there / 1e9:.1f} GB of memory; start with a smaller -context"
            )

    def round_input(self, weight: Weight, x: np.ndarray) -> np.ndarray:
        """Activations x (..., width) as a product with `weight` reads them: in 8-bit blocks for quantized weights."""
        return quantize.rounded(weight_format(weight).form, x)

    def free_memory(self) -> int | None:
        """Bytes of memory that this process may have, in use or not; None where the system doesn't tell."""
        return usable()

    def close(self) -> None:
        """Lets go of the weights; passes compiled before keep theirs."""
        self.matrices, self.vectors = {}, {}

    # ------------------------------------------------------------ weights

    def take_weights(self, plan: Plan, progress: Callable[[int, int], None] | None) -> None:
        args = [a for step in plan.steps for a in step.args]
        for w in {a.weight for a in args if isinstance(a, Vector)} - self.vectors.keys():
            refuse_nan(w)
            self.vectors[w] = np.ascontiguousarray(w.dequantize().reshape(-1), np.float32)
        for w in {a.weight for a in args if isinstance(a, Table)}:
            refuse_nan(w)
        new = [w for w in dict.fromkeys(a.weight for a in args if isinstance(a, Matrix)) if w not in self.matrices]
        self.library.load({f"repack_{w.type}" for w in new} | {s.kernel for s in plan.steps})
        total, done, waiting = sum(w.nbytes for w in new), 0, 0
        steps: list[Step] = []
        rooms = together([repacked_bytes(w) for w in new])
        for w, room in zip(new, rooms, strict=True):
            data = w.data
            self.repack(w, data, room, steps)
            self.matrices[w] = room
            waiting += w.nbytes
            in_memory = not mapped_pages(data)[1]  # a copy that was made for this goes at once
            if waiting >= AT_ONCE or in_memory or w is new[-1]:
                self.take_turns(steps)
                done, waiting, steps = done + waiting, 0, []
                if progress:
                    progress(done, total)

    def repack(self, w: Weight, data: np.ndarray, room: np.ndarray, steps: list[Step]) -> None:
        """Adds to `steps` what fills `room` (zeros, `repacked_bytes`) with a weight, eight rows interleaved; two steps
        are a piece of work."""
        form, height, padded = repacked_shape(w)
        row8 = w.width // form.block * form.bytes8
        at_once = max(1, REPACK_BYTES // (8 * w.row_nbytes)) * 8
        for matrix in range(w.rows // height):
            target = room[matrix * padded // 8 * row8 :]
            for first in range(0, height, at_once):  # in pieces, so that the file's pages can be let go of behind
                start, count = matrix * height + first, min(at_once, height - first)
                source = data[start * w.row_nbytes : (start + count) * w.row_nbytes]
                refuse_nan(w, source)
                rows = Constant(source), Constant(target[first // 8 * row8 :]), count, w.width
                steps.append(Step(f"repack_{w.type}", rows))
                address, size = mapped_pages(source)
                release = (madvise(), address, size, mmap.MADV_DONTNEED) if size else (0, 0, 0, 0)
                steps.append(Step("release_pages", release))

    def take_turns(self, steps: list[Step]) -> None:
        """Has the team go through pieces of work of two steps each."""
        assembly = Assembly(self, {})  # holds what the programs point to
        table = Constant(assembly.program(steps))
        turns = Step("take_turns", (table, len(steps) // 2, Constant(np.zeros(1, np.int64))), barrier=True)
        self.team.run(assembly.program([turns]))


def repacked_shape(w: Weight) -> tuple[type[Format], int, int]:
    """The format of a repacked weight, the rows of each of its matrices, and those filled up with zeros to 16."""
    height = w.shape[-2] if len(w.shape) > 2 and w.shape[-2] % 16 else w.rows
    return weight_format(w), height, -(-height // 16) * 16


def repacked_bytes(w: Weight) -> int:
    form, height, padded = repacked_shape(w)
    return w.rows // height * padded // 8 * (w.width // form.block * form.bytes8)


@cache
def madvise() -> int:
    """Where this process has the system's function of that name."""
    return ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value or 0


class CpuPass:
    """A compiled graph with its states.  Not for several threads at once.

    Recurrent states have a share for every slot and `spare` more, which take in turn what a slot's share would.
    """

    def __init__(
        self,
        device: CpuDevice,
        graph: Graph,
        plan: Plan,
        slots: int,
        context: int,
        capacity: dict[str, int],
        spare: int,
    ):
        self.device, self.graph, self.slots, self.context = device, graph, slots, context
        self.width, self.capacity = capacity[ALL], capacity
        self.cells: RingMemory | None = RingMemory(graph.rings, slots, context, self.width, device.kv)
        self.rings = tuple(Ring(self.cells.lengths[ring], ring.window) for ring in graph.rings)
        self.states = {state: zeroed(4 * (slots + spare) * prod(state.shape)) for state in graph.recurrent}
        self.recurrent = [self.states[s].view(np.float32).reshape(slots + spare, -1) for s in graph.recurrent]
        self.shares = list(range(slots))
        """Where each slot's recurrent states are."""
        self.spare = list(range(slots, slots + spare))
        self.tentative = 0
        """How many tentative columns the last run had."""
        self.arena = zeroed(plan.arena + 64)
        self.counts = {rows: np.zeros(1, np.int64) for rows in (*capacity, STRETCHES)}
        self.facts = {(rows, name): np.zeros(n, np.int64) for rows, n in capacity.items() for name in FACTS}
        stretches = max(slots, spare + 1)
        for name in ("source", "share", "first", "length"):
            self.facts[STRETCHES, name] = np.zeros(stretches, np.int64)
        self.reads_runs = reads_runs(plan)
        prologue = any(map(writes_output, plan.prologue))
        self.buffers = 2 if slots > 1 and not prologue else 1
        last = [number for number, step in enumerate(plan.steps) if writes_output(step)]
        sizes = {
            a.buffer.output: a.buffer.size for step in plan.prologue + plan.steps for a in step.args if is_output(a)
        }
        self.outputs = [{name: zeroed(size) for name, size in sizes.items()} for _ in range(self.buffers)]
        """Backing memory of the outputs that a step writes directly, uint8, for each buffer."""
        self.buffer = 0
        """The one that operands are resolved to."""
        self.scratch_stride = self.scratch_size(plan)
        self.scratch = zeroed(device.threads * self.scratch_stride)
        counters = sum(isinstance(a, Counter) for step in plan.steps for a in step.args) * self.buffers
        self.counters = zeroed(64 * max(1, counters)).view(np.int64)
        """One line of cache for each step whose threads claim their work, zeros between passes."""
        first = self.counters.ctypes.data
        self.free_counters = iter(range(first, first + self.counters.nbytes, 64))
        self.assembly = Assembly(device, self.resolvers())
        self.programs = [self.assembly.program(plan.steps)]
        self.results = [self.results_of(plan)]
        if self.buffers > 1:  # a second program, the same but for the steps that write outputs
            self.buffer = 1
            self.programs.append(self.programs[0].copy())
            self.programs[1][last] = self.assembly.program([plan.steps[number] for number in last])
            self.results.append(self.results_of(plan))
        self.kept_weights = (dict(device.matrices), dict(device.vectors))
        steps = [step for step in plan.steps if any(isinstance(a, Fact) and a.name == "token" for a in step.args)]
        tables = [a.weight.rows for step in steps for a in step.args if isinstance(a, Table)]
        self.tokens = min(tables, default=None)
        """Rows of the smallest table, None where nobody reads tokens."""
        self.input_rows = [
            (name, self.rows_of(place, prod(graph.inputs[name])), place.rows)
            for name, place in (step.args for step in plan.prologue)
        ]

    def results_of(self, plan: Plan) -> dict[str, tuple[np.ndarray, str, tuple[int, ...]]]:
        """Memory, rows and shape of each output."""
        return {
            name: (self.rows_of(place, self.graph.outputs[name].size), place.rows, self.graph.outputs[name].shape)
            for name, place in plan.outputs.items()
        }

    def scratch_size(self, plan: Plan) -> int:
        sizes = [a.size for step in plan.steps for a in step.args if isinstance(a, Scratch)]
        return -(-max(64, *sizes, 64) // 64) * 64

    def resolvers(self) -> dict[type, Callable[[Any], Any]]:
        cells = self.cells
        assert cells is not None
        return {
            Operand: lambda a: self.base(a).ctypes.data + a.start,
            State: lambda a: (
                cells.fact(a.state, "keys") if isinstance(a.state, KVRing) else self.states[a.state].ctypes.data
            ),
            Count: lambda a: self.counts[a.rows].ctypes.data,
            Fact: lambda a: self.facts[a.rows, a.name].ctypes.data,
            Scratch: lambda a: [self.scratch.ctypes.data, self.scratch_stride],
            RingFact: lambda a: cells.fact(a.ring, a.name),
            Counter: lambda a: next(self.free_counters),
        }

    def base(self, place: Operand) -> np.ndarray:
        if place.buffer.output:
            return self.outputs[self.buffer][place.buffer.output]
        return self.arena[place.buffer.offset :]

    def rows_of(self, place: Operand, size: int) -> np.ndarray:
        """The rows of a float32 operand as an array (capacity, size) on the pass's memory."""
        whole = self.base(place)[: place.stride * self.capacity[place.rows]].view(np.float32)
        start = place.start // 4
        return whole.reshape(-1, place.stride // 4)[:, start : start + size]

    def run(self, columns: Columns, buffer: int = 0) -> dict[str, np.ndarray]:
        """Output name -> float32 (rows, *shape), valid until the next run that writes `buffer`.

        Raises ValueError for more columns, scored columns, slots or positions than it was compiled for, and
        GraphError for inputs that are not those of the graph.
        """
        self.graph.check_inputs(columns)
        n, scored = len(columns), columns.scored
        if not 0 < n <= self.width or len(scored) > self.capacity[SCORED]:
            raise ValueError(
                f"a pass takes {self.width} columns and scores {self.capacity[SCORED]}, not {n} and {len(scored)}"
            )
        if columns.slot.max() >= self.slots or columns.position.max() >= self.context or columns.position.min() < 0:
            raise ValueError(f"a slot or position lies outside {self.slots} slots of {self.context} positions")
        if self.tokens is not None and not 0 <= columns.token.min() <= columns.token.max() < self.tokens:
            raise ValueError(f"a token lies outside the {self.tokens} rows of the table")
        for name in ("token", "position", "last", "slot"):
            fact = getattr(columns, name)
            self.facts[ALL, name][:n] = fact
            self.facts[SCORED, name][: len(scored)] = fact[scored]
        self.facts[ALL, "index"][:n] = np.arange(n)
        self.facts[SCORED, "index"][: len(scored)] = scored
        self.tentative = n if columns.tentative else 0
        if self.recurrent and self.tentative > len(self.spare) + 1:
            raise ValueError(f"a pass takes {len(self.spare) + 1} tentative columns, not {n}")
        if self.reads_runs or self.recurrent:
            self.find_runs(columns)
        if self.recurrent:
            self.find_stretches(int(columns.slot[0]))
        self.counts[ALL][0], self.counts[SCORED][0] = n, len(scored)
        for name, room, rows in self.input_rows:
            picked = self.facts[rows, "index"][: self.counts[rows][0]]
            room[: len(picked)] = columns.inputs[name].reshape(n, -1)[picked]
        self.device.team.run(self.programs[buffer])
        return {
            name: room[: self.counts[rows][0]].reshape(-1, *shape)
            for name, (room, rows, shape) in self.results[buffer].items()
        }

    def find_runs(self, columns: Columns) -> None:
        """The facts of the row set "runs", and of every column the first of its run and where that ends."""
        slot = columns.slot
        first = np.concatenate([[0], np.flatnonzero(np.diff(slot)) + 1])
        if len(set(slot[first].tolist())) != len(first):
            raise ValueError("the columns of a slot do not lie together")
        n = self.counts[RUNS][0] = len(first)
        length = np.diff(first, append=len(slot))
        for name in ("token", "position", "last", "slot"):
            self.facts[RUNS, name][:n] = getattr(columns, name)[first]
        facts = {"first": first, "end": first + length, "length": length, "run": np.arange(n)}
        facts["aligned"] = np.cumsum(length + 15 & -16) - (length + 15 & -16)
        self.facts[RUNS, "index"][:n] = first
        for name, fact in facts.items():
            self.facts[RUNS, name][:n] = fact
            every = self.facts[ALL, name]
            every[: len(slot)] = np.repeat(fact, length)
            self.facts[SCORED, name][: len(columns.scored)] = every[columns.scored]

    def find_stretches(self, slot: int) -> None:
        """The facts of the row set "stretches".

        A conversation goes through its states where they lie.  Of tentative columns, which are those of `slot`, every
        one leaves them in a share of its own, the last in the slot's.
        """
        if self.tentative:
            n, spare, own = self.tentative, self.spare[: self.tentative - 1], self.shares[slot]
            source, share, first, length = [own, *spare], [*spare, own], np.arange(n), np.ones(n)
        else:
            n = int(self.counts[RUNS][0])
            source = share = [self.shares[each] for each in self.facts[RUNS, "slot"][:n].tolist()]
            first, length = (self.facts[RUNS, name][:n] for name in ("first", "length"))
        for name, fact in {"source": source, "share": share, "first": first, "length": length}.items():
            self.facts[STRETCHES, name][:n] = fact
        self.counts[STRETCHES][0] = n

    @property
    def saved_bytes(self) -> int:
        return sum(states[0].nbytes for states in self.recurrent)

    def keep(self, slot: int, count: int) -> None:
        """The slot's recurrent states stand after the first `count` of the tentative columns that ran last."""
        if not 0 < count <= self.tentative:
            raise ValueError(f"the last run had {self.tentative} tentative columns, not {count}")
        if self.recurrent and count < self.tentative:
            self.shares[slot], self.spare[count - 1] = self.spare[count - 1], self.shares[slot]
        self.tentative = 0

    def save(self, slot: int) -> list[np.ndarray]:
        """A copy of the slot's recurrent states."""
        return [states[self.shares[slot]].copy() for states in self.recurrent]

    def restore(self, slot: int, saved: list[np.ndarray] | None) -> None:
        """Puts back what `save` returned; None: zeros, as at the beginning of a conversation."""
        for i, states in enumerate(self.recurrent):
            states[self.shares[slot]] = 0 if saved is None else saved[i]

    def close(self) -> None:
        """Gives the pass's memory back; it doesn't run any more."""
        self.width, self.arena, self.scratch = 0, zeroed(64), zeroed(64)
        self.cells, self.states, self.recurrent, self.outputs = None, {}, [], []
        self.programs, self.results, self.input_rows = [], [], []
        self.assembly.kept, self.kept_weights = [], ({}, {})


def spare(tentative: int) -> int:
    """Copies of a slot's recurrent states that a run of so many tentative columns leaves besides its own."""
    return max(0, tentative - 1)
