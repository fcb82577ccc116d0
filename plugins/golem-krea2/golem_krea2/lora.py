"""LoRA files: pairs of matrices that change products, and these products in a graph.

A product y = W x becomes y + strength * factor * B (A x), with A (rank, in), B (out, rank) and factor = alpha / rank.
The weight itself is left as it is.  `strength` is an input of the pass, so that another one costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golem_core import BadFile, Graph, Value, Weight
from golem_krea2.names import diffusers_name
from golem_krea2.shapes import DiTShape
from golem_krea2.tensors import Tensors

if TYPE_CHECKING:
    from golem_core import ModelFile
    from golem_krea2.checkpoint import Files

LARGEST = 65504.0
"""Of float16, in which the matrices are kept."""
RANKS = 32
"""Ranks are filled up with zeros to a multiple of this."""
WRAPPER, OURS, DIFFUSERS, KOHYA = "base_model.model.", "diffusion_model.", "transformer.", "lora_unet_"
"""What may stand before a target: the first before everything but the last, `OURS` before our name of it, `DIFFUSERS`
before diffusers', `KOHYA` before either with underscores in place of dots, as kohya's programs write them."""
PARTS = {"lora_A.weight": "A", "lora_down.weight": "A", "lora_B.weight": "B", "lora_up.weight": "B", "alpha": "alpha"}
PROJECTOR = "txtfusion.projector"


@dataclass(frozen=True, eq=False)
class Pair:
    """A (rank, in) and B (out, rank) in float16, the rank filled up with zeros, and alpha / rank of the file's rank."""

    a: np.ndarray
    b: np.ndarray
    factor: float


class Lora:
    """What a file changes: its `name` without the ending, and a pair for each target, a product's name in the DiT."""

    def __init__(self, name: str, pairs: dict[str, Pair]):
        self.name, self.pairs = name, pairs
        self._weights: dict[tuple[str, ...], Weight] = {}

    @classmethod
    def read(cls, path: str | Path, files: Files) -> Lora:
        """Raises BadFile naming the file, and the key that is not understood or does not fit the network."""
        from golem_core import open_safetensors

        path = Path(path)
        with open_safetensors(path, "lora") as file:
            return cls(path.stem, _pairs(file, files.dit_shape, files.dit))

    @property
    def changes_text(self) -> bool:
        """Whether the text rows depend on it."""
        return any(target.startswith(("txtfusion.", "txtmlp.")) for target in self.pairs)

    def stacked(self, targets: tuple[str, ...]) -> Weight:
        """The matrices A of several products, one under the other."""
        return self._weight(("A", *targets), lambda: np.concatenate([self.pairs[each].a for each in targets]))

    def up(self, target: str) -> Weight:
        """The matrix B of a product."""
        return self._weight(("B", target), lambda: self.pairs[target].b)

    def factors(self, targets: tuple[str, ...]) -> Weight:
        """alpha / rank for each row of `stacked(targets)`, as a matrix of one column."""
        pairs = [self.pairs[each] for each in targets]
        key = "factors", *(f"{len(pair.a)} {pair.factor}" for pair in pairs)
        return self._weight(
            key, lambda: np.concatenate([np.full((len(pair.a), 1), pair.factor, np.float32) for pair in pairs])
        )

    def projector(self, shares: np.ndarray, strength: float) -> np.ndarray:
        """The weights (taps,) of the projector, changed."""
        pair = self.pairs.get(PROJECTOR)
        if pair is None:
            return shares
        change = pair.b.astype(np.float64) @ pair.a.astype(np.float64)
        return (shares + strength * pair.factor * change[0]).astype(np.float32)

    def _weight(self, key: tuple[str, ...], make) -> Weight:
        if key not in self._weights:
            self._weights[key] = Weight.of(f"{self.name}: {key[0]} of {', '.join(key[1:])}", make())
        return self._weights[key]


class Products:
    """The products of a graph, with the change of a LoRA where there is one."""

    def __init__(self, g: Graph, tensors: Tensors, lora: Lora | None, biased: frozenset[str]):
        """`biased`: the products that have a bias.  With a LoRA the graph takes the input "strength" (1,)."""
        self.g, self.tensors, self.lora, self.biased = g, tensors, lora, biased
        self._strength = None if lora is None else g.take(g.input("strength", (1,)), "runs")
        self._factors: dict[Weight, Value] = {}

    def __call__(self, x: Value, *names: str) -> list[Value]:
        """The product of x with each of these matrices."""
        g, out = self.g, []
        for name in names:
            bias = self.tensors[f"{name}.bias"] if name in self.biased else None
            out.append(g.linear(x, self.tensors[f"{name}.weight"], bias))
        targets = tuple(name for name in names if self.lora is not None and name in self.lora.pairs)
        if not targets:
            return out
        assert self.lora is not None
        down = self._times_factors(g.linear(x, self.lora.stacked(targets)), targets)
        start = 0
        for target in targets:
            b = self.lora.up(target)
            change = g.linear(g.slice(down, start, start + b.width), b)
            start += b.width
            at = names.index(target)
            out[at] = out[at] + change
        return out

    def one(self, x: Value, name: str) -> Value:
        return self(x, name)[0]

    def _times_factors(self, down: Value, targets: tuple[str, ...]) -> Value:
        """Times strength * alpha / rank, a row for the whole pass."""
        assert self.lora is not None and self._strength is not None
        factors = self.lora.factors(targets)
        if factors not in self._factors:
            self._factors[factors] = self.g.linear(self._strength, factors)
        return down * self._factors[factors]


# ---------------------------------------------------------------- reading


def _pairs(file: ModelFile, shape: DiTShape, tensors: Tensors) -> dict[str, Pair]:
    shapes = {
        spec.name.removesuffix(".weight"): spec.shape for spec in shape.tensors() if spec.name.endswith(".weight")
    }
    theirs = _other_names(shapes)
    found: dict[str, dict[str, tuple[str, np.ndarray]]] = {}
    for key, weight in file.weights.items():
        target, part = _understood(file, key, theirs)
        if target not in shapes:
            raise BadFile(f"{file.path}: {key!r} changes {target!r}, which is no product of {tensors.path.name}")
        parts = found.setdefault(target, {})
        if part in parts:
            raise BadFile(f"{file.path}: {key!r} gives the same as {parts[part][0]!r}")
        parts[part] = key, _numbers(file, key, weight)
    if not found:
        raise BadFile(f"{file.path}: there is no pair of matrices in it")
    return {target: _pair(file, target, parts, shapes[target]) for target, parts in found.items()}


def _other_names(targets: Iterable[str]) -> dict[str, str]:
    """Targets by what other programs call them."""
    names = {}
    for target in targets:
        diffusers = diffusers_name(f"{target}.").removesuffix(".")
        names[diffusers] = names[DIFFUSERS + diffusers] = target
        names |= {KOHYA + each.replace(".", "_"): target for each in (target, diffusers)}
    return names


def _understood(file: ModelFile, key: str, theirs: dict[str, str]) -> tuple[str, str]:
    """The target and the part that a key names; `theirs` has the targets by other programs' names."""
    match = re.fullmatch(rf"(.+?)\.({'|'.join(map(re.escape, PARTS))})", key.removeprefix(WRAPPER))
    if match is None:
        raise BadFile(f"{file.path}: {key!r} is not understood; a LoRA's keys end in {', '.join(PARTS)}")
    target, part = match[1], PARTS[match[2]]
    return theirs.get(target) or target.removeprefix(OURS), part


def _numbers(file: ModelFile, key: str, weight: Weight) -> np.ndarray:
    if weight.type not in ("F16", "BF16", "F32"):
        raise BadFile(f"{file.path}: {key!r} is of the type {weight.type}; F16, BF16 or F32 was expected")
    values = weight.dequantize()
    if not np.isfinite(values).all() or (values.size and np.abs(values).max() > LARGEST):
        raise BadFile(f"{file.path}: {key!r} has a number that is not finite or is past {LARGEST:.0f} in size")
    return values


def _pair(file: ModelFile, target: str, parts: dict[str, tuple[str, np.ndarray]], shape: tuple[int, ...]) -> Pair:
    for part, other in (("A", "B"), ("B", "A")):
        if part not in parts:
            key = parts.get(other, next(iter(parts.values())))[0]
            raise BadFile(f"{file.path}: {key!r} is there without the matrix {part} of {target!r}")
    (key_a, a), (key_b, b) = parts["A"], parts["B"]
    outputs, inputs = shape
    if a.ndim != 2 or a.shape[1] != inputs or not len(a):
        raise BadFile(f"{file.path}: {key_a!r} has the shape {a.shape}; (rank, {inputs}) was expected")
    if b.ndim != 2 or b.shape[0] != outputs:
        raise BadFile(f"{file.path}: {key_b!r} has the shape {b.shape}; ({outputs}, rank) was expected")
    if len(a) != b.shape[1]:
        raise BadFile(f"{file.path}: {key_a!r} has the rank {len(a)}, {key_b!r} has {b.shape[1]}")
    factor = 1.0
    if "alpha" in parts:
        key, alpha = parts["alpha"]
        if alpha.size != 1:
            raise BadFile(f"{file.path}: {key!r} has the shape {alpha.shape}; one number was expected")
        factor = float(alpha.reshape(-1)[0]) / len(a)
    fill = -len(a) % RANKS
    return Pair(
        np.pad(a, ((0, fill), (0, 0))).astype(np.float16), np.pad(b, ((0, 0), (0, fill))).astype(np.float16), factor
    )
