"""A plan for a device: steps over planned memory, and what steps are given; `planner` makes it and re-exports these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from golem_core.graph.value import KVRing, Recurrent

F32 = "f32"
"""The form every value has unless a device's kernels want another: float32, rows one after another."""


@dataclass(eq=False)
class Buffer:
    """A stretch of a pass's memory: `size` bytes at `offset` of the arena, or of output `output`."""

    size: int
    offset: int = 0
    output: str | None = None


@dataclass(frozen=True)
class Operand:
    """Where the rows of a value lie: row i starts at `start` + i * `stride` bytes of `buffer`."""

    buffer: Buffer
    rows: str
    stride: int
    start: int = 0
    writes: bool = False


@dataclass(frozen=True)
class State:
    """A ring or a recurrent state as an argument of a step."""

    state: KVRing | Recurrent
    writes: bool = False


@dataclass(frozen=True)
class Count:
    """The number of rows of a row set, as an argument of a step: known at run time."""

    rows: str


@dataclass(frozen=True)
class Fact:
    """A column fact ("token", "position", "slot") of the rows of a row set, as an argument of a step."""

    rows: str
    name: str


@dataclass
class Step:
    """One kernel and its arguments; `barrier`: what follows must wait until every thread is done with it."""

    kernel: str
    args: tuple[Any, ...]
    barrier: bool = False


@dataclass(frozen=True)
class Plan:
    """What the host does first; steps in order; bytes of arena that they need; where each output lies."""

    prologue: list[Step]
    steps: list[Step]
    arena: int
    outputs: dict[str, Operand]
