"""A graph compiled for the CPU: its program, its memory, and the running of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.cpu.arguments import Counter, RingFact, Scratch, Table
from golem_core.cpu.assembly import Assembly
from golem_core.cpu.convolution_lowering import STRETCHES
from golem_core.cpu.facts import FACTS, is_output, reads_runs, writes_output
from golem_core.cpu.lists import MOST, Lists
from golem_core.cpu.memory import zeroed
from golem_core.cpu.rings import RingMemory
from golem_core.graph.device import Ring
from golem_core.graph.graph import Columns, Graph
from golem_core.graph.planner import Count, Fact, Operand, Plan, State, Step
from golem_core.graph.value import ALL, RUNS, SCORED, KVRing

if TYPE_CHECKING:
    from golem_core.cpu.device import CpuDevice


class CpuPass:
    """A compiled graph with its states.  Not for several threads at once.

    Recurrent states have a share for every slot and `spare` more, which take in turn what a slot's share would.
    """

    log_totals = False
    """Lists come without: summing the exponentials of a row takes several times as long as finding its largest."""

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
        self.lists: list[Lists] = []
        """For each buffer, once `prepare_lists` was called; `listing` are the programs that make them."""
        self.listing: list[np.ndarray] = []
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

    def prepare_lists(self, most: int, without: Sequence[int]) -> int:
        """Gets ready to list the largest entries of "logits", at most `most` of a row, without the entries `without`;
        how many it will list.

        Raises ValueError for entries `without` that no row has.
        """
        logits = self.graph.outputs.get("logits")
        if logits is None or logits.rows != SCORED:
            return 0
        if not all(0 <= entry < logits.size for entry in without):
            raise ValueError(f"an entry to leave out lies outside the {logits.size} of a row")
        most = min(most, MOST, logits.size)
        count = self.counts[SCORED].ctypes.data
        self.lists = [
            Lists(results["logits"][0], most, without, self.device.threads, count) for results in self.results
        ]
        self.listing = [
            np.concatenate([whole, self.assembly.program([Step("list_largest", each.arguments, barrier=True)])])
            for whole, each in zip(self.programs, self.lists, strict=True)
        ]
        return most

    def run(self, columns: Columns, buffer: int = 0, *, lists: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Output name -> float32 (rows, *shape), valid until the next run that writes `buffer`.

        With `lists`, for each scored column how many of the largest of its "logits" are wanted or 0 for all of them,
        "logits" has the latter rows only, and "list_ids" and "list_values" stand for the others.

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
        wanted = np.zeros(len(scored), np.int64) if lists is None else np.asarray(lists, np.int64)
        listed = np.flatnonzero(wanted)
        if len(listed):
            if not self.lists or wanted.max() > self.lists[buffer].most or len(wanted) != len(scored):
                raise ValueError(f"no lists of {wanted.max()} numbers were prepared for {len(scored)} scored columns")
            self.lists[buffer].want(wanted)
        self.device.team.run((self.listing if len(listed) else self.programs)[buffer])
        outputs = {
            name: room[: self.counts[rows][0]].reshape(-1, *shape)
            for name, (room, rows, shape) in self.results[buffer].items()
        }
        if len(listed):
            outputs["logits"] = outputs["logits"][wanted == 0]
            outputs |= self.lists[buffer].read(listed)
        return outputs

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
        self.lists, self.listing = [], []
        self.assembly.kept, self.kept_weights = [], ({}, {})


def spare(tentative: int) -> int:
    """Copies of a slot's recurrent states that a run of so many tentative columns leaves besides its own."""
    return max(0, tentative - 1)
