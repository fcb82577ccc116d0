"""The tensors of one safetensors file under their bare names: a prefix left out, fp8 matrices with their scales.

Weights that a device shall know again, when another graph reads them, are made once: `tensors[name]` and `derived` give
the same object each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path

import numpy as np

from golem_core import BadFile, TensorSpec, Unsupported, Weight, check_tensors, open_safetensors

FLOATS = ("F8_E4M3", "BF16", "F16", "F32")
SCALES = ("weight_scale", "scale_weight")
"""What the scale of `<module>.weight` may be called, behind `<module>.`."""


class Tensors:
    """An open file.  `close` lets go of the map."""

    def __init__(self, path: Path, prefixes: tuple[str, ...] = ("",), known: str = ""):
        """The prefix is the first of `prefixes` that stands before the tensor `known`, the last if none does.

        Raises BadFile naming the file and what is wrong with it.
        """
        self.path = path
        self._file = open_safetensors(path, "krea2")
        self.prefix = next((each for each in prefixes if each + known in self._file.weights), prefixes[-1])
        self._made: dict[str, Weight] = {}

    def check(self, specs: Callable[[], Iterable[TensorSpec]]) -> None:
        """Raises BadFile for a tensor that is missing or not of its shape, or whose scale is no scale, and Unsupported
        for a type that is not computed with; each names file and tensor."""
        check_tensors(self._file, (TensorSpec(self.prefix + spec.name, spec.shape) for spec in specs()), FLOATS)
        for spec in specs():
            self[spec.name]  # with its scale

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """The shape of a tensor that must be there with so many axes, none of them empty."""
        weight = self._file.weights.get(self.prefix + name)
        if weight is None or weight.name != self.prefix + name:
            raise BadFile(f"{self.path}: the tensor {self.prefix + name!r} is missing")
        if len(weight.shape) != axes or min(weight.shape) < 1:
            raise BadFile(f"{self.path}: {weight.name} has the shape {weight.shape}; {axes} axes were expected")
        return weight.shape

    def numbered(self, before: str) -> int:
        """One more than the highest number that stands behind `before` in any name; 0 if there is none."""
        pattern = re.compile(re.escape(self.prefix + before) + r"(\d{1,9})\.")
        return max((int(found[1]) + 1 for found in map(pattern.match, self._file.weights) if found), default=0)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self._file.weights

    def __getitem__(self, name: str) -> Weight:
        """The tensor of that name, times its scale if the file has one."""
        return self.derived(name, self._scaled)

    def derived(self, name: str, make: Callable[[str], Weight]) -> Weight:
        """What `make(name)` makes, once for each name."""
        if name not in self._made:
            self._made[name] = make(name)
        return self._made[name]

    def values(self, name: str) -> np.ndarray:
        """The numbers of a small tensor, float32 of its shape."""
        return self[name].dequantize()

    def _scaled(self, name: str) -> Weight:
        if name not in self:
            raise BadFile(f"{self.path}: the tensor {self.prefix + name!r} is missing")
        weight = self._file.weights[self.prefix + name]
        module, _, last = weight.name.rpartition(".")
        found = [f"{module}.{each}" for each in SCALES if f"{module}.{each}" in self._file.weights]
        if last != "weight" or not found:
            return weight
        scale = self._file.weights[found[0]]
        if scale.rows * scale.width != 1 or scale.type not in FLOATS:
            raise BadFile(
                f"{self.path}: {scale.name} is {scale.type} of the shape {scale.shape}; one number was expected"
            )
        by = float(scale.dequantize().reshape(-1)[0])
        if not isfinite(by) or by <= 0:
            raise BadFile(f"{self.path}: {scale.name} is {by}; a finite number above 0 was expected")
        if weight.type != "F8_E4M3":
            raise Unsupported(f"{self.path}: {scale.name} belongs to a tensor of {weight.type}; only F8_E4M3 is scaled")
        return weight.scaled(by)

    def close(self) -> None:
        self._made.clear()
        self._file.close()
