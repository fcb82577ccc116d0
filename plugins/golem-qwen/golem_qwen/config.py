"""Reading a family's facts out of a file, with refusals that name key and value.

A config reads its keys through `Keys`; `verify` then holds the file's tensors to the shapes that follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core import BadFile, ModelFile, SamplingDefaults, Tokenizer, Unsupported

Shape = tuple[int, ...]


class Keys:
    """The metadata under a file's architecture: `qwen3.block_count` is `keys.count("block_count")`."""

    def __init__(self, file: ModelFile):
        self.file = file
        self.meta = file.metadata.scoped(file.architecture)

    def named(self, key: str, value: object) -> str:
        """The beginning of an error about `key`: the file, the whole key, the value."""
        return f"{self.file.path}: {self.file.architecture}.{key} is {value}"

    def count(self, key: str, default: int | None = None, low: int = 1) -> int:
        """A number of things, `low` at least; BadFile for anything else."""
        return self.meta.number(key, int, low=low) if default is None else self.meta.number(key, int, default, low=low)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above 0 that float32 holds, and its inverse too; BadFile for anything else."""
        bounds = {"low": 1e-30, "high": 1e30}
        return self.meta.number(key, float, *(() if default is None else (default,)), **bounds)

    def counts(self, key: str, low: int = 1) -> list[int] | None:
        """The list under `key`, or None where the file has one number for all or none at all."""
        return self.meta.numbers(key, int, low=low) if isinstance(self.meta.get(key), list) else None

    def block_count(self, predicting: int = 0) -> int:
        """The file's `block_count`; BadFile if there are not as many blocks, of which `predicting` may be left out.

        To be asked before anything is made for each block.
        """
        blocks, found = self.count("block_count"), len(self.file.weights.blocks)
        if not blocks - predicting <= found <= blocks:
            raise BadFile(self.named("block_count", blocks) + f", but there are {found} blocks")
        return blocks

    def per_block(
        self, key: str, blocks: int, default: Sequence[int] | None = None, behind: int = 0
    ) -> tuple[int, ...]:
        """One count per block, of a key that holds a list of them or one for all.

        A list may go on for the blocks `behind` those.
        """
        if default is not None and key not in self.meta:
            return tuple(default)
        values = self.counts(key)
        return (self.count(key),) * blocks if values is None else self.cut(key, values, blocks, behind)

    def flags(self, key: str, blocks: int, default: Sequence[bool], behind: int = 0) -> tuple[bool, ...]:
        """Which blocks have what `key` says: a list with true or false, or 1 or 0, for each block."""
        values = self.meta.get(key, default)
        if not isinstance(values, list) or any(type(each) not in (bool, int) or each not in (0, 1) for each in values):
            raise self.meta.bad(key, values, "a list of true and false was expected")
        return tuple(map(bool, self.cut(key, values, blocks, behind)))

    def cut(self, key: str, values: list[Any], blocks: int, behind: int) -> tuple[Any, ...]:
        """The entries of a list for `blocks` blocks, which may go on for those `behind`."""
        if len(values) not in (blocks, blocks + behind):
            raise BadFile(self.named(key, f"a list of {len(values)}") + f", but there are {blocks} blocks")
        return tuple(values[:blocks])

    def head_dim(self, default: int | None = None) -> int:
        """The size of a head, for keys and values alike."""
        dim = self.count("attention.key_length", default)
        value = self.count("attention.value_length", dim)
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
        dims = self.count("rope.dimension_count", head_dim)
        if dims % 2 or not 0 < dims <= head_dim:
            message = self.named("rope.dimension_count", dims)
            raise BadFile(f"{message}, an even number up to {head_dim} was expected")
        return dims

    def refuse_rope_scaling(self) -> None:
        scaling = self.meta.text("rope.scaling.type", "none")
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
    kinds = np.asarray(file.metadata.numbers("tokenizer.ggml.token_type", int, ()))
    ids = set(np.flatnonzero(kinds == UNUSED).tolist()) - set(tokenizer.eog)
    rows = file.weights.token_embd.shape[0]
    ids |= set(file.metadata.numbers("tokenizer.ggml.suppress_tokens", int, (), low=0, high=rows - 1))
    return tuple(sorted(ids | set(range(tokenizer.vocab_size, rows))))


def sampling_defaults(file: ModelFile) -> SamplingDefaults:
    """The file's `general.sampling.*`, else temperature 1, top-k 64, top-p 0.95; a top-k of 0 or below is off."""
    given = file.metadata.scoped("general.sampling")
    return SamplingDefaults(
        temperature=given.number("temp", float, 1.0, low=0, high=1e6),
        top_k=max(0, given.number("top_k", int, 64)),
        top_p=given.number("top_p", float, 0.95, low=0, high=1),
    )
