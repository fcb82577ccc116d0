"""What graphs are made of: symbolic values, the nodes that result in them, and ops, the typed functions between.

A value is shaped (rows, *shape): how many rows a pass carries is known at run time only, so one graph
serves a single token, a prompt chunk and a batch of several conversations.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from golem_core.errors import GolemError
from golem_core.files.weights import Weight

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph

P = ParamSpec("P")
R = TypeVar("R")
Shape = tuple[int, ...]

ALL = "all"
"""The row set of every column of a pass."""
SCORED = "scored"
"""The row set of the columns whose results the caller asked for (`Columns.scored`)."""

RUNS = "runs"
"""One row per conversation of a pass: its slot, its first column and how many follow."""


class GraphError(GolemError):
    """A graph that cannot mean anything: shapes, rows or arguments of an op disagree."""


def check(condition: bool, message: str) -> None:
    """What a shape rule demands of its arguments."""
    if not condition:
        raise GraphError(message)


@dataclass(frozen=True, eq=False)
class KVRing:
    """Keys and values of past columns, one share per slot: (heads, dim) each per position.

    `window` is how many positions back (the own one included) anything that reads the ring looks;
    None means all of them.  A device stores position p of a slot at p modulo the ring's length.
    """

    heads: int
    dim: int
    window: int | None = None


@dataclass(frozen=True, eq=False)
class Recurrent:
    """A state that has read every position of its slot: `shape` float32 numbers per slot, zeros at first.

    It cannot be rewound, only copied: a pass saves and restores a slot's share.
    """

    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """One application of an op: its arguments by name and the values that it results in.

    `rows` is the row set of the inputs that are read row by row.
    """

    op: Op[Any, Any]
    args: dict[str, Any]
    results: list[Value] = field(default_factory=list)
    rows: str = ALL

    @property
    def values(self) -> list[Value]:
        """The arguments that are values, in the order of the op's signature."""
        return [x for x in self.args.values() if isinstance(x, Value)]

    @property
    def weights(self) -> list[Weight]:
        """The arguments that are weights, in the order of the op's signature."""
        return [x for x in self.args.values() if isinstance(x, Weight)]

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def __repr__(self) -> str:
        return f"{self.op.name}({', '.join(f'{k}={describe(v)}' for k, v in self.args.items())})"


@dataclass(frozen=True, eq=False)
class Value:
    """A result of a node.  `shape` is that of one row; `rows` names the row set.

    `state` is set for what `store` and the recurrent ops leave behind: the state after this pass's columns.
    """

    graph: Graph = field(repr=False)
    node: Node = field(repr=False)
    shape: Shape
    rows: str = ALL
    state: KVRing | Recurrent | None = None

    @property
    def ring(self) -> KVRing | None:
        """The state, if it is a ring of keys and values."""
        return self.state if isinstance(self.state, KVRing) else None

    @property
    def size(self) -> int:
        """Elements of one row."""
        return prod(self.shape)

    def heads(self, count: int) -> Value:
        """The same row seen as (count, size / count)."""
        check(count > 0, f"a row has {self.size} entries, which are not {count} heads")
        return self.graph.view(self, (count, self.size // count))

    def __add__(self, other: Value | Weight) -> Value:
        return self.graph.add(self, other)

    def __mul__(self, other: Value | Weight) -> Value:
        return self.graph.mul(self, other)

    def __repr__(self) -> str:
        return f"{self.node.op.name}{list(self.shape)}"


def describe(x: Any) -> str:
    """A value, weight or attribute as an error message names it."""
    if isinstance(x, Weight):
        return f"{x.name} {list(x.shape)}"
    return repr(x)


def _whole(x: Any) -> bool:
    return isinstance(x, Integral) and not isinstance(x, bool)


def _real(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool) and not math.isnan(x)


NUMBERS: dict[str, Callable[[Any], bool]] = {
    "float": _real,
    "float | None": lambda x: x is None or _real(x),
    "int": _whole,
    "int | None": lambda x: x is None or _whole(x),
}
"""What an attribute may be, by its annotation."""


class Op(Generic[P, R]):
    """A typed function of the vocabulary: its signature is inputs and attributes, its body the shape rule.

    `across` names the inputs of which every row counts for every row of the result; all others are
    read row by row, and the result has their row set.  Those that `spread` names may have the rows "runs" where
    the others have columns: every column then reads the row of its conversation.  `facts` names the column facts that
    it reads.  `meaning` is what it computes, in numpy: called with the run, then the arguments as arrays with a
    leading axis of rows.
    """

    def __init__(
        self,
        rule: Callable[Concatenate[Graph, P], R],
        facts: tuple[str, ...],
        across: tuple[str, ...],
        spread: tuple[str, ...],
        name: str,
    ):
        self.rule, self.facts, self.across, self.spread, self.name = rule, facts, across, spread, name
        self.__signature__ = self.signature = inspect.signature(rule)
        self.meaning: Callable[..., Any] | None = None
        self.__doc__, self.__name__, self.__signature__ = rule.__doc__, name, self.signature
        self._bound = self.signature.replace(parameters=list(self.signature.parameters.values())[1:])

    @overload
    def __get__(self, graph: Graph, owner: type) -> Callable[P, R]: ...

    @overload
    def __get__(self, graph: object, owner: type) -> Op[P, R]: ...

    def __get__(self, graph: Any, owner: type) -> Any:
        if graph is None:
            return self

        def apply(*args: P.args, **kwargs: P.kwargs) -> R:
            return self(graph, *args, **kwargs)

        apply.__doc__, apply.__name__, apply.__qualname__ = self.__doc__, self.name, f"{owner.__name__}.{self.name}"
        apply.__signature__ = self._bound  # type: ignore[attr-defined]
        return apply

    def __call__(self, graph: Graph, *args: P.args, **kwargs: P.kwargs) -> R:
        """Adds a node to `graph`; raises `GraphError` that names the op and the offending arguments."""
        try:
            bound = self.signature.bind(graph, *args, **kwargs)
        except TypeError as e:
            raise GraphError(f"{self.name}: {e}") from None
        bound.apply_defaults()
        named = dict(list(bound.arguments.items())[1:])
        if strangers := [v for v in named.values() if isinstance(v, Value) and v.graph is not graph]:
            raise GraphError(f"{self.name}: {strangers[0]} belongs to another graph")
        for name, given in named.items():
            if (kind := NUMBERS.get(str(self.signature.parameters[name].annotation))) and not kind(given):
                raise GraphError(f"{self.name}: {name} cannot be {given!r}")
        try:
            made = self.rule(graph, *args, **kwargs)
        except (GraphError, AttributeError, TypeError) as e:
            why = str(e) if isinstance(e, GraphError) else self.misfit(named)
            if why is None:
                raise
            raise GraphError(
                f"{self.name}({', '.join(f'{k}={describe(v)}' for k, v in named.items())}): {why}"
            ) from None
        rows = row_set(self, {n: v for n, v in named.items() if isinstance(v, Value) and n not in self.across})
        node = Node(self, named, rows=rows)
        specs: Sequence[Any] = made if isinstance(made, tuple) else [made]
        for spec in specs:
            node.results.append(spec.value(graph, node, rows))
        graph.nodes.append(node)
        return tuple(node.results) if isinstance(made, tuple) else node.results[0]  # type: ignore[return-value]

    def misfit(self, named: dict[str, Any]) -> str | None:
        """Which argument is neither the value nor the weight that the signature asks for, or None."""
        for name, given in named.items():
            asked = str(self.signature.parameters[name].annotation)
            kinds = {kind for kind in (Value, Weight) if re.search(rf"\b{kind.__name__}\b", asked)}
            if kinds and not isinstance(given, tuple(kinds)) and not (given is None and "None" in asked):
                return f"{name} is no {' and no '.join(sorted(kind.__name__ for kind in kinds))}"
        return None

    def define(self, meaning: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: registers the numpy meaning that stands beside the op."""
        self.meaning = meaning
        return meaning

    def __repr__(self) -> str:
        return f"Op({self.name})"


@dataclass(frozen=True)
class Result:
    """What a shape rule returns for each result: the shape of a row, and the row set or state if not the inputs'."""

    shape: Shape
    rows: str | None = None
    state: KVRing | Recurrent | None = None

    def value(self, graph: Graph, node: Node, rows: str) -> Value:
        return Value(graph, node, self.shape, self.rows or rows, self.state)


def result(shape: Shape, rows: str | None = None, state: KVRing | Recurrent | None = None) -> Any:
    """What a shape rule returns in place of a value; typed Any so that the rule can declare what callers get."""
    return Result(shape, rows, state)


def row_set(op: Op[Any, Any], values: dict[str, Value]) -> str:
    """The row set of the inputs `values` that `op` reads row by row."""
    sets = {v.rows for v in values.values() if v.state is None}
    if len(sets) > 1 and all(name in op.spread for name, v in values.items() if v.rows == RUNS):
        sets.discard(RUNS)
    if len(sets) > 1:
        listed = ", ".join(f"{v} of {v.rows!r}" for v in values.values())
        raise GraphError(f"{op.name}: inputs of different row sets, {listed}")
    return sets.pop() if sets else ALL


def op(*, facts: tuple[str, ...] = (), across: tuple[str, ...] = (), spread: tuple[str, ...] = ()):
    """Decorator: makes an op of a shape rule; it gets the graph first, returns `result(...)` or a tuple of them."""

    def wrap(rule: Callable[Concatenate[Graph, P], R]) -> Op[P, Any]:
        return Op(rule, facts, across, spread, rule.__name__)

    return wrap
