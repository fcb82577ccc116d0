"""What a family expects a file to hold: tensors by name and shape, compared with the file before anything is built."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from golem_core.errors import BadFile, Unsupported

from .model import ModelFile


@dataclass(frozen=True)
class TensorSpec:
    """What a file must hold: a tensor's full name and its shape, (outputs, inputs) for a matrix."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False


def block_tensors(index: int, shapes: dict[str, tuple[int, ...]]) -> Iterator[TensorSpec]:
    """The tensors of one block by their short names; a name that has no suffix of its own is a `.weight`."""
    for name, shape in shapes.items():
        yield TensorSpec(f"blk.{index}.{name if '.' in name else name + '.weight'}", shape)


def check_tensors(file: ModelFile, specs: Iterable[TensorSpec], types: Collection[str] | None = None) -> None:
    """Raises BadFile naming the first tensor that is missing or not of its shape, and Unsupported for one that is of
    none of `types`, where these are given.

    A bias or a scale that a file has beside a matrix of a block, and that is not expected, is Unsupported too: without
    it the product would be another.
    """
    specs = list(specs)
    expected = {spec.name for spec in specs}
    for spec in specs:
        weight = file.weights.get(spec.name)
        if weight is None and spec.optional:
            continue
        if weight is None:
            raise BadFile(f"{file.path}: the tensor {spec.name!r} is missing")
        if weight.shape != spec.shape:
            raise BadFile(f"{file.path}: {spec.name} has the shape {weight.shape}, its keys say {spec.shape}")
        if types is not None and weight.type not in types:
            raise Unsupported(
                f"{file.path}: {spec.name} is of the type {weight.type}; {', '.join(types)} are computed with"
            )
        stem = spec.name.removesuffix(".weight")
        if stem == spec.name or "blk." not in stem:
            continue
        for beside in (f"{stem}.bias", f"{stem}.scale"):
            if beside not in expected and file.weights.get(beside) is not None:
                raise Unsupported(f"{file.path}: {beside} stands beside {spec.name}, and nothing here computes with it")
