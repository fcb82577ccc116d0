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
    """The metadata under a file's architecture: `gemma3.block_count` is `keys.required("block_count")`."""

    def __init__(self, file: ModelFile):
        self.file = file
        self.meta = file.metadata.scoped(file.architecture)

    def required(self, key: str) -> Any:
        return self.meta.required(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self.meta.get(key, default)

    def named(self, key: str, value: object) -> str:
        """The beginning of an error about `key`: the file, the whole key, the value."""
        return f"{self.file.path}: {self.file.architecture}.{key} is {value}"

    def per_block(self, key: str, blocks: int, default: Any = None) -> tuple[Any, ...]:
        """One entry per block, of a key that holds a list of them or one for all."""
        value = self.required(key) if default is None else self.get(key, default)
        if not isinstance(value, list):
            return (value,) * blocks
        if len(value) != blocks:
            raise BadFile(self.named(key, f"a list of {len(value)}") + f", but there are {blocks} blocks")
        return tuple(value)

    def head_dim(self, suffix: str = "", default: int | None = None) -> int:
        """The size of a head, for keys and values alike."""
        key, value = f"attention.key_length{suffix}", f"attention.value_length{suffix}"
        dim = self.required(key) if default is None else self.get(key, default)
        if self.get(value, dim) != dim:
            raise Unsupported(
                self.named(value, self.get(value)) + f", but {key} is {dim}; golem-gemma needs them equal"
            )
        return dim

    def heads(self, blocks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Query heads and key heads of each block; each key head serves a whole number of query heads."""
        counts = self.per_block("attention.head_count", blocks)
        kv_counts = self.per_block("attention.head_count_kv", blocks)
        for heads, kv_heads in zip(counts, kv_counts, strict=True):
            if not (0 < kv_heads <= heads and heads % kv_heads == 0):
                message = self.named("attention.head_count_kv", kv_heads)
                raise BadFile(f"{message}, which does not divide {heads} heads")
        return counts, kv_counts

    def rope_dims(self, head_dim: int, suffix: str = "") -> int:
        """How many components of a head are rotated; all of them unless the file says otherwise."""
        key = f"rope.dimension_count{suffix}"
        dims = self.get(key, head_dim)
        if dims % 2 or not 0 < dims <= head_dim:
            raise BadFile(self.named(key, dims) + f", an even number up to {head_dim} was expected")
        return dims


@dataclass(frozen=True)
class Tensor:
    """What a file must hold: a tensor's full name and its shape, (outputs, inputs) for a matrix."""

    name: str
    shape: Shape
    optional: bool = False


def verify(file: ModelFile, blocks: int, tensors: Iterable[Tensor]) -> None:
    """Raises BadFile if there are not `blocks` blocks, or naming the first tensor missing or not of its shape."""
    if len(file.weights.blocks) > blocks:
        raise BadFile(Keys(file).named("block_count", blocks) + f", but there are {len(file.weights.blocks)} blocks")
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
        temperature=float(given.get("temp", 1.0)),
        top_k=int(given.get("top_k", 64)),
        top_p=float(given.get("top_p", 0.95)),
    )
