"""Arguments of steps that only the CPU knows; the planner passes them through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core.files.weights import Weight


@dataclass(frozen=True)
class Matrix:
    """A weight as products read it: repacked."""

    weight: Weight


@dataclass(frozen=True)
class Table:
    """A weight whose rows are read by token: as the file has it."""

    weight: Weight


@dataclass(frozen=True)
class Vector:
    """A weight as entrywise kernels read it: float32."""

    weight: Weight


@dataclass(frozen=True)
class Constant:
    """An array that the device keeps for the pass."""

    array: np.ndarray


@dataclass(frozen=True)
class Scratch:
    """Each thread's scratch memory, as address and stride; `size` bytes of it are used."""

    size: int


@dataclass(frozen=True)
class RingFact:
    """A number about a ring, as `RingMemory.fact` gives it."""

    ring: Any
    name: str


@dataclass(frozen=True)
class Counter:
    """A word of the step's own that is zero between passes: by it threads claim pieces of work."""
