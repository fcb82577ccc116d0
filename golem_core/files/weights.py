"""Named, typed, memory-mapped weights.

A `Weight` is one tensor as it lies in the file; `Weights` finds them by the file's own names, as attributes:
`weights.output_norm`, `weights.blocks[3].attn_q`.  Nothing is decoded until somebody asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from golem_core.errors import BadFile, Unsupported

from .types import TYPES


@dataclass(frozen=True, eq=False)
class Weight:
    """One tensor of a file.

    `type` is the storage format's name ("F32", "Q4_0", ...), `shape` the sizes in row-major order (a matrix of a
    linear layer is (outputs, inputs)), `data` the (nbytes,) uint8 array in the file: mapped, read-only, not
    necessarily aligned.  A tensor without dimensions has the shape (1,).  `scale` is what every number of a type that
    has none of its own (F8_E4M3) is multiplied by.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    data: np.ndarray = field(repr=False)
    scale: float = 1.0

    @property
    def rows(self) -> int:
        """The product of all sizes but the last."""
        return prod(self.shape[:-1])

    @property
    def width(self) -> int:
        """Elements of a row: the last size."""
        return self.shape[-1]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows as they are stored."""
        return self.data.nbytes

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row of `width` elements."""
        kind = TYPES[self.type]
        return self.width // kind.block * kind.nbytes

    @classmethod
    def of(cls, name: str, numbers: np.ndarray) -> Weight:
        """Numbers that no file has, as a weight of their shape: F16 if they are float16, else F32."""
        kind = np.float16 if numbers.dtype == np.float16 else np.float32
        held = np.ascontiguousarray(numbers, kind)
        return cls(name, "F16" if kind is np.float16 else "F32", held.shape, held.reshape(-1).view(np.uint8))

    def scaled(self, by: float) -> Weight:
        """The same weight, every number of it times `by`.  Raises Unsupported unless its type is F8_E4M3."""
        if self.type != "F8_E4M3":
            raise Unsupported(f"{self.name}: weights of type {self.type} take no scale, only F8_E4M3")
        return replace(self, scale=self.scale * by)

    def dequantize(self) -> np.ndarray:
        """A new float32 array of `shape`.  Raises Unsupported for a type that cannot be decoded."""
        from .quants import dequantize

        return dequantize(self)


class Weights:
    """A file's tensors by name; iterating gives the full names.

    `weights.output_norm` is the tensor "output_norm.weight", and BadFile if there is none.  Names with a suffix of
    their own, or that are optional, go through `get`.
    """

    def __init__(self, source: object, tensors: dict[str, Weight], prefix: str = ""):
        self._source = source
        self._tensors = tensors
        self._prefix = prefix

    def get(self, name: str) -> Weight | None:
        """The tensor called exactly `name`, or else `name` + ".weight"; None if the file has neither."""
        name = self._prefix + name
        return self._tensors.get(name) or self._tensors.get(name + ".weight")

    def __getattr__(self, name: str) -> Weight:
        if name.startswith("_"):  # Python's own questions (copy, pickle, notebooks), not a tensor's name.
            raise AttributeError(name)
        found = self.get(name)
        if found is None:
            closed = "" if self._tensors else "; the file is closed or holds none"
            raise BadFile(f"{self._source}: there is no tensor {self._prefix + name + '.weight'!r}{closed}")
        return found

    def scoped(self, prefix: str) -> Weights:
        """The tensors whose names begin with `prefix` and a dot; attributes and `get` leave that out."""
        return Weights(self._source, self._tensors, f"{self._prefix}{prefix}.")

    @cached_property
    def blocks(self) -> list[Weights]:
        """The numbered blocks "blk.0.", "blk.1.", ...; empty if there are none, BadFile if a number is left out."""
        pattern = re.compile(re.escape(self._prefix) + r"blk\.(0|[1-9][0-9]{0,8})\.")
        numbers = sorted({int(match[1]) for match in map(pattern.match, self._tensors) if match})
        for expected, number in enumerate(numbers):
            if number != expected:
                raise BadFile(
                    f"{self._source}: there are tensors of {self._prefix}blk.{number} but none of blk.{expected}"
                )
        return [self.scoped(f"blk.{number}") for number in numbers]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._tensors if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(name.startswith(self._prefix) for name in self._tensors)

    def __contains__(self, name: object) -> bool:
        """Whether iterating gives `name`, a full name."""
        return name in self._tensors and isinstance(name, str) and name.startswith(self._prefix)

    def __getitem__(self, name: str) -> Weight:
        """The tensor of a full name, as iterating gives it."""
        if name not in self:
            raise KeyError(name)
        return self._tensors[name]

    def values(self) -> Iterator[Weight]:
        """The tensors, in the order of iterating."""
        return (self._tensors[name] for name in self)

    def items(self) -> Iterator[tuple[str, Weight]]:
        """(full name, tensor) of each, in the order of iterating."""
        return ((name, self._tensors[name]) for name in self)

    def __repr__(self) -> str:
        return f"<Weights of {self._source}: {len(self)} tensors{f' under {self._prefix!r}' if self._prefix else ''}>"
