"""Reading a family's facts out of a file, with refusals that name key and value.

A config reads its keys through `Keys`; `verify` then holds the file's tensors to the shapes that follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from golem_core import BadFile, ModelFile, SamplingDefaults, Unsupported

Shape = tuple[int, ...]


class Keys:
    """The metadata under a file's architecture: `gemma3.block_count` is `keys.count("block_count")`."""

    def __init__(self, file: ModelFile):
        self.file = file
        self.meta = file.metadata.scoped(file.architecture)

    def count(self, key: str, default: int | None = None, low: int = 1) -> int:
        """A number of things, `low` at least; BadFile for anything else."""
        return self.meta.number(key, int, low=low) if default is None else self.meta.number(key, int, default, low=low)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above 0 that float32 holds, and its inverse too; BadFile for anything else."""
        bounds = {"low": 1e-30, "high": 1e30}
        return self.meta.number(key, float, *(() if default is None else (default,)), **bounds)

    def named(self, key: str, value: object) -> str:
        """The beginning of an error about `key`: the file, the whole key, the value."""
        return f"{self.file.path}: {self.file.architecture}.{key} is {value}"

    def per_block(self, key: str, blocks: int) -> tuple[int, ...]:
        """One count per block, of a key that holds a list of them or one for all."""
        if not isinstance(self.meta.required(key), list):
            return (self.count(key),) * blocks
        values = self.meta.numbers(key, int, low=1)
        self._check_length(key, values, blocks)
        return tuple(values)

    def pattern(self, key: str, blocks: int) -> tuple[bool, ...]:
        """Which blocks have what `key` says: a list with true or false, or 1 or 0, for each block."""
        values = self.meta.required(key)
        if not isinstance(values, list) or any(
            type(value) not in (bool, int) or value not in (0, 1) for value in values
        ):
            raise self.meta.bad(key, values, "a list of true and false was expected")
        self._check_length(key, values, blocks)
        return tuple(map(bool, values))

    def _check_length(self, key: str, values: list[Any], blocks: int) -> None:
        if len(values) != blocks:
            raise BadFile(self.named(key, f"a list of {len(values)}") + f", but there are {blocks} blocks")

    def head_dim(self, suffix: str = "", default: int | None = None) -> int:
        """The size of a head, for keys and values alike."""
        key, value = f"attention.key_length{suffix}", f"attention.value_length{suffix}"
        dim = self.count(key, default)
        if (other := self.count(value, dim)) != dim:
            raise Unsupported(self.named(value, other) + f", but {key} is {dim}; golem-gemma needs them equal")
        return dim

    def heads(self, blocks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Query heads and key heads of each block; each key head serves a whole number of query heads."""
        counts = self.per_block("attention.head_count", blocks)
        kv_counts = self.per_block("attention.head_count_kv", blocks)
        for heads, kv_heads in zip(counts, kv_counts, strict=True):
            if heads % kv_heads:
                message = self.named("attention.head_count_kv", kv_heads)
                raise BadFile(f"{message}, which does not divide {heads} heads")
        return counts, kv_counts

    def rope_dims(self, head_dim: int, suffix: str = "") -> int:
        """How many components of a head are rotated; all of them unless the file says otherwise."""
        key = f"rope.dimension_count{suffix}"
        dims = self.count(key, head_dim)
        if dims % 2 or not 0 < dims <= head_dim:
            raise BadFile(self.named(key, dims) + f", an even number up to {head_dim} was expected")
        return dims


@dataclass(frozen=True)
class Tensor:
    """What a file must hold: a tensor's full name and its shape, (outputs, inputs) for a matrix."""

    name: str
    shape: Shape
    optional: bool = False


def block_count(keys: Keys) -> int:
    """The file's `block_count`; BadFile if there are not as many blocks, before anything is made for each."""
    blocks, found = keys.count("block_count"), len(keys.file.weights.blocks)
    if blocks != found:
        raise BadFile(keys.named("block_count", blocks) + f", but there are {found} blocks")
    return blocks


def verify(file: ModelFile, tensors: Iterable[Tensor]) -> None:
    """Raises BadFile naming the first tensor missing or not of its shape."""
    for tensor in tensors:
        weight = file.weights.get(tensor.name)
        if weight is None and tensor.optional:
            continue
        if weight is None:
            raise BadFile(f"{file.path}: the tensor {tensor.name!r} is missing")
        if weight.shape != tensor.shape:
            raise BadFile(f"{file.path}: {tensor.name} has the shape {weight.shape}, its keys say {tensor.shape}")


def sampling_defaults(file: ModelFile) -> SamplingDefaults:
    """The file's `general.sampling.*`, else temperature 1, top-k 64, top-p 0.95."""
    given = file.metadata.scoped("general.sampling")
    return SamplingDefaults(
        temperature=given.number("temp", float, 1.0, low=0, high=1e6),
        top_k=max(0, given.number("top_k", int, 64)),  # 0 and below are off
        top_p=given.number("top_p", float, 0.95, low=0, high=1),
    )
