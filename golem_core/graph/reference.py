"""Runs a graph by the numpy meanings of its ops: slow, no fusion, every value for every row.

What a device computes is compared with this.  Takes the same column facts as a device's pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from golem_core.errors import Unsupported
from golem_core.files.weights import Weight
from golem_core.graph.graph import Columns, Graph
from golem_core.graph.value import ALL, RUNS, KVRing, Recurrent, Value


class Run:
    """What a meaning sees: the column facts of its rows (int64 arrays), and the states.

    A ring is two arrays (slots, positions, heads, dim), keys and values; a recurrent state one array (slots, *shape).
    Of a run, the facts are those of its first column.
    """

    def __init__(self, columns: Columns, states: dict[KVRing | Recurrent, tuple[np.ndarray, ...]], rows: str):
        self.columns, self.states = columns, states
        self.pick = np.arange(len(columns)) if rows == ALL else columns.scored
        if rows == RUNS:
            self.pick = np.array([here.start for _, here in self.runs], np.int64)
        pick = self.pick
        self.token, self.position, self.slot = columns.token[pick], columns.position[pick], columns.slot[pick]
        self.last = columns.last[pick]

    def input(self, name: str) -> np.ndarray:
        """The rows that were handed in under `name`."""
        return self.columns.inputs[name][self.pick]

    @property
    def own_run(self) -> np.ndarray:
        """Of every row the number of the run that it is of."""
        return np.repeat(np.arange(len(self.runs)), [here.stop - here.start for _, here in self.runs])[self.pick]

    @property
    def runs(self) -> list[tuple[int, slice]]:
        """(slot, its columns) for each conversation of the pass."""
        edges = np.flatnonzero(np.diff(self.columns.slot)) + 1
        starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(self.columns)]
        return [(int(self.columns.slot[a]), slice(a, b)) for a, b in zip(starts, stops, strict=True)]


class Reference:
    """Executes `graph` for `slots` conversations of `context` positions each.

    `round_input(weight, x)`, if given, is applied to the activations (float32, last axis the weight's
    width) on their way into every product with `weight`, so that a device whose products round
    them can be compared tightly.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        slots: int = 1,
        context: int = 256,
        round_input: Callable[[Weight, np.ndarray], np.ndarray] | None = None,
    ):
        if missing := sorted({node.op.name for node in graph.nodes if node.op.meaning is None}):
            raise Unsupported(f"no meaning in numpy is known for the ops {', '.join(missing)}")
        self.graph, self.round_input = graph, round_input
        self.dense: dict[Weight, np.ndarray] = {}
        self.states: dict[KVRing | Recurrent, tuple[np.ndarray, ...]] = {}
        for ring in graph.rings:
            shape = (slots, context, ring.heads, ring.dim)
            self.states[ring] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for state in graph.recurrent:
            self.states[state] = (np.zeros((slots, *state.shape), np.float32),)
        self.before: tuple[list[np.ndarray], Columns] | None = None
        """The states before the tentative columns that ran last, and those columns."""

    def save(self, slot: int) -> list[np.ndarray]:
        """A copy of the slot's recurrent states."""
        return [self.states[state][0][slot].copy() for state in self.graph.recurrent]

    def restore(self, slot: int, saved: list[np.ndarray] | None) -> None:
        """Puts back what `save` returned; None: zeros."""
        for i, state in enumerate(self.graph.recurrent):
            self.states[state][0][slot] = 0 if saved is None else saved[i]

    def keep(self, slot: int, count: int) -> None:
        """The slot's recurrent states stand after the first `count` of the tentative columns that ran last."""
        assert self.before is not None, "no tentative columns have run"
        (saved, columns), n = self.before, count
        assert 0 < n <= len(columns) and columns.slot[0] == slot, f"slot {slot} has not run {n} tentative columns"
        self.restore(slot, saved)
        inputs = {name: rows[:n] for name, rows in columns.inputs.items()}
        self.run(Columns(columns.token[:n], columns.position[:n], columns.slot[:n], np.arange(n), inputs))

    def run(self, columns: Columns, inspect: Iterable[Value] = ()) -> dict[str, np.ndarray]:
        """Output name -> float32 (rows, *shape).  `inspect` keeps other values too, as "#0", "#1", ..."""
        self.graph.check_inputs(columns)
        self.before = (self.save(int(columns.slot[0])), columns) if columns.tentative else None
        known: dict[Value, Any] = {}
        for node in self.graph.nodes:
            run = Run(columns, self.states, node.rows)
            args = {name: self.given(known, x) for name, x in node.args.items()}
            for name in node.op.spread:
                if isinstance(x := node[name], Value) and x.rows == RUNS != node.rows:
                    args[name] = args[name][run.own_run]
            if self.round_input and node.op.name in ("linear", "expert_linear"):
                args["x"] = self.round_product(node.args["weight"], args["x"])
            made = node.op.meaning(run, *args.values())  # type: ignore[misc]
            for value, array in zip(node.results, made if isinstance(made, tuple) else (made,), strict=True):
                if value.state is None and array.shape[1:] != value.shape:
                    raise AssertionError(f"{node}: the rule says {value.shape}, the meaning gives {array.shape[1:]}")
                known[value] = array
        wanted = self.graph.outputs | {f"#{i}": v for i, v in enumerate(inspect)}
        return {name: known[v] for name, v in wanted.items()}

    def round_product(self, weight: Weight, x: np.ndarray) -> np.ndarray:
        """x float32 (..., width) as a product with `weight` reads it, by `round_input`; the same shape."""
        assert self.round_input is not None
        flat = x.reshape(-1, weight.width)
        return self.round_input(weight, flat).reshape(x.shape)

    def given(self, known: dict[Value, Any], x: Any) -> Any:
        """An argument of an op as its meaning gets it: the rows of a value out of `known`, a weight as float32 of its
        shape, which is kept, and anything else as it is."""
        if isinstance(x, Value):
            return known[x]
        if isinstance(x, Weight):
            if x not in self.dense:
                self.dense[x] = x.dequantize()
            return self.dense[x]
        return x
