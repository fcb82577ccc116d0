"""Reading a family's facts out of a file, with refusals that name key and value.

A config reads its keys through `Keys`; `verify` then holds the file's tensors to the shapes that follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core import BadFile, ModelFile, SamplingDefaults, Tokenizer, Unsupported

Shape = tuple[int, ...]


class Keys:
    """The metadata under a file's architecture: `qwen3.block_count` is `keys.required("block_count")`."""

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

    def count(self, key: str, default: int | None = None) -> int:
        """A number of things, one at least."""
        value = self.required(key) if default is None else self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadFile(self.named(key, value) + ", a number of at least 1 was expected")
        return value

    def per_block(self, key: str, blocks: int, default: Any = None, behind: int = 0) -> tuple[Any, ...]:
        """One entry per block, of a key that holds a list of them or one for all.

        A list may go on for the blocks `behind` those.
        """
        value = self.required(key) if default is None else self.get(key, default)
        if not isinstance(value, list):
            return (value,) * blocks
        if len(value) not in (blocks, blocks + behind):
            raise BadFile(self.named(key, f"a list of {len(value)}") + f", but there are {blocks} blocks")
        return tuple(value[:blocks])

    def head_dim(self, default: int | None = None) -> int:
        """The size of a head, for keys and values alike."""
        dim = self.count("attention.key_length", default)
        value = self.get("attention.value_length", dim)
        if value != dim:
            message = self.named("attention.value_length", value)
            raise Unsupported(f"{message}, but attention.key_length is {dim}; golem-qwen needs them equal")
        return dim

    def check_heads(self, heads: int, kv_heads: int) -> None:
        """Each key head serves a whole number of query heads."""
        if not (0 < kv_heads <= heads and heads % kv_heads == 0):
            raise BadFile(self.named("attention.head_count_kv", kv_heads) + f", which does not divide {heads} heads")

    def rope_dims(self, head_dim: int) -> int:
        """How many components of a head are rotated; all of them unless the file says otherwise."""
        dims = self.get("rope.dimension_count", head_dim)
        if dims % 2 or not 0 < dims <= head_dim:
            message = self.named("rope.dimension_count", dims)
            raise BadFile(f"{message}, an even number up to {head_dim} was expected")
        return dims

    def refuse_rope_scaling(self) -> None:
        scaling = self.get("rope.scaling.type", "none")
        if scaling != "none":
            raise Unsupported(self.named("rope.scaling.type", repr(scaling)) + "; golem-qwen scales no positions")


@dataclass(frozen=True)
class Tensor:
    """What a file must hold: a tensor's full name and its shape, (outputs, inputs) for a matrix."""

    name: str
    shape: Shape
    optional: bool = False


def of_block(index: int, shapes: dict[str, Shape]) -> Iterator[Tensor]:
    """The tensors of one block by their short names; a name that has no suffix of its own is a `.weight`."""
    for name, shape in shapes.items():
        yield Tensor(f"blk.{index}.{name if '.' in name else name + '.weight'}", shape)


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


def vocabulary(file: ModelFile, tokenizer: Tokenizer) -> int:
    """Rows of the token table: at least as many as there are tokens."""
    table = file.weights.token_embd
    if table.shape[0] < tokenizer.vocab_size:
        raise BadFile(f"{file.path}: {table.name} has {table.shape[0]} rows for {tokenizer.vocab_size} tokens")
    return table.shape[0]


UNUSED = 5
"""The value of tokenizer.ggml.token_type for ids that stand for nothing."""


def suppressed(file: ModelFile, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids that are never drawn: rows of the token table without a token, fillers, and those that the file names."""
    kinds = np.asarray(file.metadata.get("tokenizer.ggml.token_type", ()))
    ids = set(np.flatnonzero(kinds == UNUSED).tolist()) - set(tokenizer.eog)
    ids |= set(file.metadata.get("tokenizer.ggml.suppress_tokens", ()))
    return tuple(sorted(ids | set(range(tokenizer.vocab_size, file.weights.token_embd.shape[0]))))


def sampling_defaults(file: ModelFile) -> SamplingDefaults:
    """The file's `general.sampling.*`, else temperature 1, top-k 64, top-p 0.95; a top-k of 0 or below is off."""
    given = file.metadata.scoped("general.sampling")
    return SamplingDefaults(
        temperature=float(given.get("temp", 1.0)),
        top_k=max(0, int(given.get("top_k", 64))),
        top_p=float(given.get("top_p", 0.95)),
    )
