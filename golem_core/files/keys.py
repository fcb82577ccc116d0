"""The keys of a file's own architecture, read with refusals that name file, key and value.

A family reads its facts through `Keys`; what it then expects of the tensors is in `expected`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from golem_core.errors import BadFile, Unsupported

from .model import ModelFile

Colours = tuple[float, ...]
"""A number for each of red, green and blue."""


class Keys:
    """The metadata under a file's architecture: of a file of `toy`, `count("block_count")` is `toy.block_count`.

    `meta` is the mapping of these keys, `file` the file.  Every method raises BadFile naming the key and its value
    where the file contradicts itself, and Unsupported where it asks for what no family here does.
    """

    def __init__(self, file: ModelFile):
        self.file = file
        self.meta = file.metadata.scoped(file.architecture)

    def named(self, key: str, value: object) -> str:
        """The beginning of an error about `key`: the file, the whole key, the value."""
        return f"{self.file.path}: {self.file.architecture}.{key} is {value}"

    def count(self, key: str, default: int | None = None, low: int = 1) -> int:
        """A number of things, `low` at least."""
        return self.meta.number(key, int, low=low) if default is None else self.meta.number(key, int, default, low=low)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above 0 that float32 holds, and its inverse too."""
        bounds = {"low": 1e-30, "high": 1e30}
        return self.meta.number(key, float, *(() if default is None else (default,)), **bounds)

    def counts(self, key: str, low: int = 1) -> list[int] | None:
        """The list under `key`, or None where the file has one number for all or none at all."""
        return self.meta.numbers(key, int, low=low) if isinstance(self.meta.get(key), list) else None

    # ---------------------------------------------------------------- of the blocks

    def block_count(self, optional: int = 0) -> int:
        """The file's `block_count`, which is how many blocks of tensors it has; the last `optional` may be missing.

        To be asked before anything is made for each block: a file may state billions.
        """
        blocks, found = self.count("block_count"), len(self.file.weights.blocks)
        if not blocks - optional <= found <= blocks:
            raise BadFile(self.named("block_count", blocks) + f", but there are {found} blocks")
        return blocks

    def part_blocks(self, key: str, tensor: str) -> int:
        """The number under `key` of blocks that one part of a file has; `tensor` is a tensor of each, with {} where its
        number stands.  To be asked before anything is made for each block, as `block_count`."""
        blocks = self.count(key)
        if tensor.format(blocks - 1) not in self.file.weights:
            raise BadFile(self.named(key, blocks) + ", and there are fewer blocks")
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
        return (self.count(key),) * blocks if values is None else self._cut(key, values, blocks, behind)

    def flags(self, key: str, blocks: int, default: Sequence[bool] | None = None, behind: int = 0) -> tuple[bool, ...]:
        """Which blocks have what `key` says: a list with true or false, or 1 or 0, for each block."""
        values = self.meta.required(key) if default is None else self.meta.get(key, list(default))
        if not isinstance(values, list) or any(type(each) not in (bool, int) or each not in (0, 1) for each in values):
            raise self.meta.bad(key, values, "a list of true and false was expected")
        return tuple(map(bool, self._cut(key, values, blocks, behind)))

    def _cut(self, key: str, values: list[Any], blocks: int, behind: int) -> tuple[Any, ...]:
        if len(values) not in (blocks, blocks + behind):
            raise BadFile(self.named(key, f"a list of {len(values)}") + f", but there are {blocks} blocks")
        return tuple(values[:blocks])

    # ---------------------------------------------------------------- of pictures

    def colours(self, mean: Colours, std: Colours) -> tuple[Colours, Colours]:
        """Mean and deviation of the colours that a projector's tower was trained with, those given by default."""
        found = []
        for key, default in (("vision.image_mean", mean), ("vision.image_std", std)):
            numbers = tuple(self.meta.numbers(key, float, default))
            if len(numbers) != 3 or (found and min(map(abs, numbers)) < 1e-6):
                raise BadFile(
                    self.named(key, list(numbers)) + ", three numbers were expected" + ", none 0" * len(found)
                )
            found.append(numbers)
        return found[0], found[1]

    # ---------------------------------------------------------------- of attention

    def heads(self, blocks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Query heads and key heads of each block, `attention.head_count` and `attention.head_count_kv`; as many key
        heads as query heads unless the file says otherwise."""
        counts = self.per_block("attention.head_count", blocks)
        kv_counts = self.per_block("attention.head_count_kv", blocks, default=counts)
        for pair in zip(counts, kv_counts, strict=True):
            self.check_heads(*pair)
        return counts, kv_counts

    def check_heads(self, heads: int, kv_heads: int) -> None:
        """Each key head serves a whole number of query heads."""
        if not (0 < kv_heads <= heads and heads % kv_heads == 0):
            raise BadFile(self.named("attention.head_count_kv", kv_heads) + f", which does not divide {heads} heads")

    def head_dim(self, suffix: str = "", default: int | None = None) -> int:
        """The size of a head, `attention.key_length` and `attention.value_length`, the same for keys and values.

        `default` is for files without these keys, as where the heads divide the width among them: without one, such a
        file is refused.  `suffix` ends the names of both keys.
        """
        key, value = f"attention.key_length{suffix}", f"attention.value_length{suffix}"
        dim = self.count(key, default)
        if (other := self.count(value, dim)) != dim:
            raise Unsupported(self.named(value, other) + f", but {key} is {dim}; the same size was expected")
        return dim

    def rope_dims(self, head_dim: int, suffix: str = "") -> int:
        """How many components of a head are rotated, `rope.dimension_count`; all of them unless the file says."""
        key = f"rope.dimension_count{suffix}"
        dims = self.count(key, head_dim)
        if dims % 2 or not 0 < dims <= head_dim:
            raise BadFile(self.named(key, dims) + f", an even number up to {head_dim} was expected")
        return dims

    def rope_scale(self, *, linear: bool) -> float:
        """What positions are multiplied by, 1 without scaling; the type `linear` is read only if asked for.

        A factor without a type is linear, as in llama.cpp; older files have it under `rope.scale_linear`.
        """
        key = "rope.scale_linear" if "rope.scaling.factor" not in self.meta else "rope.scaling.factor"
        factor = self.positive(key, 1.0)
        kind = self.meta.text("rope.scaling.type", "none" if factor == 1 else "linear")
        if kind == "none":
            return 1.0
        if kind != "linear" or not linear:
            known = "'none' or 'linear'" if linear else "'none'"
            if "rope.scaling.type" not in self.meta:
                raise Unsupported(self.named(key, factor) + ", and positions are not scaled here")
            raise Unsupported(self.named("rope.scaling.type", repr(kind)) + f", {known} was expected")
        return 1 / factor
