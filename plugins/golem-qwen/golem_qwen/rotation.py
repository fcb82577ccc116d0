"""Files whose matrices were rotated before they were rounded: what their keys say, and products that rotate along.

A matrix stands for W (s H)^-1, with H the Walsh-Hadamard transform of blocks of the input and s a sign for each entry,
so the product takes H (s x).  Rows of the token table are rotated likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from golem_core import BadFile, Graph, Metadata, ModelFile, TensorSpec, Unsupported, Value, Weight

PREFIX = "prism.hadamard"
KNOWN = {
    "version": (1,),
    "transform": ("normalized-sylvester-walsh-hadamard",),
    "axis": ("input-last-dimension",),
    "sign_mode": ("explicit", "identity"),
}
ROTATED_TYPES = ("PQ2_0", "PTQ1_0")
"""Matrices of these types are always rotated; one that is not listed would give noise."""


@dataclass(frozen=True)
class Rotation:
    """`signs` by the width of an input, none where all are 1; `names` of the matrices, `table` for the token table.

    `grouped`: the columns of a delta net's output matrix were rotated with the value heads of a key head together.
    """

    block: int
    signs: dict[int, Weight]
    names: frozenset[str]
    table: bool
    grouped: bool

    @classmethod
    def read(cls, file: ModelFile) -> Rotation | None:
        """None for a file without rotations.  Raises Unsupported or BadFile naming the key and its value."""
        if not any(key.startswith(f"{PREFIX}.") for key in file.metadata):
            return None
        keys = file.metadata.scoped(PREFIX)
        for key, known in KNOWN.items():
            if keys.required(key) not in known:
                raise Unsupported(f"{file.path}: {PREFIX}.{key} is {keys[key]!r}; golem-qwen knows {known}")
        block = keys.number("block_size", int, low=1)
        if block & (block - 1):
            raise BadFile(f"{file.path}: {PREFIX}.block_size is {block}, which is no power of two")
        names = frozenset(keys.texts("weight_names"))
        inverse = frozenset(keys.texts("inverse_weight_names", ()))
        if inverse - {"token_embd.weight"}:
            raise Unsupported(f"{file.path}: {PREFIX}.inverse_weight_names is {sorted(inverse)}; only the token table")
        signs = read_signs(file, keys) if keys["sign_mode"] == "explicit" else None
        for name in sorted(names | inverse):
            weight = file.weights.get(name)
            if weight is None:
                raise BadFile(f"{file.path}: {PREFIX} names the tensor {name!r}, which is missing")
            if weight.width % block:
                raise BadFile(f"{file.path}: {PREFIX}.block_size is {block}, but {name} is {weight.width} wide")
            if signs is not None and weight.width not in signs:
                raise BadFile(f"{file.path}: {PREFIX}.sign_widths has none of {weight.width}, the width of {name}")
        return cls(block, signs or {}, names, bool(inverse), keys.flag("gdn_v_grouped", False))

    def turns(self, weight: Weight) -> bool:
        """Whether a product with `weight` takes rotated input; the token table, as a head, is like any other."""
        return weight.name in self.names or (self.table and weight.name == "token_embd.weight")


def read_signs(file: ModelFile, keys: Metadata) -> dict[int, Weight]:
    widths = keys.numbers("sign_widths", int, low=1)
    values = np.asarray(keys.numbers("sign_values", float), np.float32)
    if sum(widths) != len(values):
        raise BadFile(f"{file.path}: {PREFIX}.sign_values has {len(values)} entries for the widths {widths}")
    if not np.isin(values, (-1, 1)).all():
        raise BadFile(f"{file.path}: {PREFIX}.sign_values has an entry that is neither 1 nor -1")
    parts = np.split(values, np.cumsum(widths)[:-1])
    return {width: Weight.of(f"{PREFIX}.signs.{width}", part) for width, part in zip(widths, parts, strict=True)}


def refuse_unlisted(file: ModelFile, rotation: Rotation | None, tensors: Iterable[TensorSpec]) -> None:
    """Raises BadFile naming a matrix that must have been rotated, though nothing says how."""
    for tensor in tensors:
        weight = file.weights.get(tensor.name)
        if weight is not None and weight.type in ROTATED_TYPES and not (rotation and rotation.turns(weight)):
            raise BadFile(f"{file.path}: {weight.name} is {weight.type}, but {PREFIX}.weight_names does not list it")


class Products:
    """The products of one graph.  An input that several rotated matrices read is rotated once."""

    def __init__(self, g: Graph, rotation: Rotation | None):
        self.g, self.rotation = g, rotation
        self.turned: dict[Value, Value] = {}

    def embed(self, table: Weight) -> Value:
        x = self.g.embed(table)
        if self.rotation is None or not (self.rotation.table and table.name == "token_embd.weight"):
            return x
        return self.signed(self.g.hadamard(x, block=self.rotation.block))

    def linear(self, x: Value, weight: Weight, bias: Weight | None = None) -> Value:
        if self.rotation is not None and self.rotation.turns(weight):
            if x not in self.turned:
                flat = self.g.view(x, (x.size,))
                self.turned[x] = self.g.hadamard(self.signed(flat), block=self.rotation.block)
            x = self.turned[x]
        return self.g.linear(x, weight, bias)

    def grouped(self, x: Value, weight: Weight, key_heads: int) -> Value:
        """Value heads (heads, dim) in the order in which the columns of `weight` were rotated."""
        if self.rotation is None or not (self.rotation.grouped and self.rotation.turns(weight)):
            return x
        heads, dim = x.shape
        parts = self.g.view(x, (heads // key_heads, key_heads, dim))
        return self.g.view(self.g.transpose(parts), (heads, dim))

    def signed(self, x: Value) -> Value:
        assert self.rotation is not None
        return x * self.rotation.signs[x.size] if self.rotation.signs else x
