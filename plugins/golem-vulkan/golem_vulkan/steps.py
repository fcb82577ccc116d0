"""What a step of a plan says to the recorder: a kernel, how it is launched, and the fields of its push constants.

Fields stand in the order of the kernel's block, addresses (8 bytes) before numbers (4 bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core import KVRing, Operand, Planner, Weight
from golem_vulkan.pipelines import PUSH_BYTES


@dataclass(frozen=True)
class Launch:
    """Specialization constants, the first of them the threads of a workgroup, and how many workgroups there are."""

    constants: tuple[int, ...]
    groups: tuple[int, int, int]


@dataclass(frozen=True)
class Matrix:
    """The address of a weight as products read it."""

    weight: Weight


@dataclass(frozen=True)
class Planes:
    """Where the planes of a weight begin: three numbers."""

    weight: Weight


@dataclass(frozen=True)
class Vector:
    """The address of a weight as float32, from entry `first` on."""

    weight: Weight
    first: int = 0


@dataclass(frozen=True, eq=False)
class Constant:
    """The address of an array that the device keeps."""

    array: np.ndarray


@dataclass(frozen=True)
class Rows:
    """The address of a row set: count, capacity, facts."""

    rows: str


@dataclass(frozen=True)
class Values:
    """The address of a ring's values; its keys are its `State`."""

    ring: KVRing


@dataclass(frozen=True)
class Positions:
    """How many positions a ring holds per slot."""

    ring: KVRing


@dataclass(frozen=True)
class Given:
    """The address of the rows that are handed in under a name, in the host's memory."""

    name: str


@dataclass(frozen=True)
class Nothing:
    """An address of a thing that isn't there."""


NOTHING = Nothing()


def vector(weight: Weight | None, first: int = 0) -> Vector | Nothing:
    return NOTHING if weight is None else Vector(weight, first)


ALIGNED = 8
"""The specialization constant that says so to kernels that treat four entries at once."""


def with_alignment(constants: Sequence[int], n: int, operands: Sequence[Any]) -> tuple[int, ...]:
    """The constants, and whether all these rows of n entries begin at multiples of 16 bytes."""
    aligned = n % 4 == 0 and all(x.start % 16 == 0 for x in operands if isinstance(x, Operand))
    return (*constants, *[0] * (ALIGNED - len(constants)), int(aligned))


def launch(planner: Planner, kernel: str, constants: Sequence[int], groups: Sequence[int], *fields: Any) -> None:
    """Adds a step."""
    x, y, z = (*groups, 1, 1)[:3]
    planner.step(kernel, Launch(tuple(int(c) for c in constants), (int(x), int(y), int(z))), *fields)


def push_constants(fields: Sequence[Any], address: Callable[[Any], int | Sequence[int]]) -> bytes:
    """The bytes of the fields.  `address` resolves what is no number: an address, or (for `Planes`) numbers."""
    code, values = "<", []
    for field in fields:
        if isinstance(field, float):
            code, values = code + "f", [*values, field]
        elif isinstance(field, (int, np.integer)):
            code, values = code + "I", [*values, int(field)]
        elif isinstance(field, (Planes, Positions)):
            numbers = address(field)
            numbers = [numbers] if isinstance(numbers, int) else numbers
            code, values = code + "I" * len(numbers), [*values, *numbers]
        else:
            if struct.calcsize(code) % 8:
                raise AssertionError(f"{field} stands after a number that leaves it unaligned")
            code, values = code + "Q", [*values, address(field)]
    data = struct.pack(code, *values)
    if len(data) > PUSH_BYTES:
        raise AssertionError(f"{len(data)} bytes of push constants")
    return data
