"""Mimi, the codec (arXiv:2410.00037): its convolutions, its transformer and its quantizer as three graphs.

A frame of samples is a column of the first and of the last, which are 12.5 a second; the transformer between them has
a column for each of a frame's positions.  Rows of one graph's results are handed to the next.  Tensors and maths are
those of moshi's `modules/seanet.py`, `modules/transformer.py` and `quantization/core_vq.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from golem_core import BadFile, Graph, KVRing, ModelFile, Recurrent, Unsupported, Value, Weight, Weights

FLOATS = ("F32", "BF16", "F16")
"""Types of weights that are computed with."""
HEADS = 8
WINDOW = 250
"""Positions that the transformer looks back, the own one included: 10 seconds."""
BASE = 10_000.0
EPS = 1e-5
LEAST_USAGE = 1e-5
"""A codebook's row is its sum divided by how often it was used, or by this if it was used less."""


@dataclass(frozen=True)
class Convolution:
    """One convolution with its weight as `conv1d` takes it: (outputs, taps * channels)."""

    weight: Weight
    bias: Weight | None
    channels: int
    taps: int
    stride: int

    @classmethod
    def read(cls, file: ModelFile, name: str, stride: int, biased: bool = True) -> Convolution:
        outputs, channels, taps = _shaped(file, f"{name}.weight", 3)
        bias = None
        if biased:
            bias = file.weights[_there(file, f"{name}.bias", (outputs,))]
        weight = file.weights[f"{name}.weight"].dequantize()
        matrix = np.ascontiguousarray(np.swapaxes(weight, 1, 2)).reshape(outputs, taps * channels)
        return cls(Weight.of(name, matrix), bias, channels, taps, stride)

    @property
    def before(self) -> int:
        """Steps of the past that it reads."""
        return self.taps - self.stride

    def __call__(self, g: Graph, x: Value, start: str = "zeros") -> Value:
        if self.before:
            x, _ = g.prepend(x, Recurrent((self.before, self.channels)), start=start)
        return g.conv1d(x, self.weight, self.bias, stride=self.stride)


@dataclass(frozen=True)
class Stage:
    """A convolution behind an optional residual block of two."""

    residual: tuple[Convolution, Convolution] | None
    convolution: Convolution


@dataclass(frozen=True)
class Half:
    """One of the quantizer's two parts: what projects a latent, and its codebooks with -|row|²/2 of every row."""

    projection: Weight
    books: list[tuple[Weight, Weight]]


@dataclass(frozen=True)
class Mimi:
    """What the codec's file holds, as far as sound is encoded.

    A frame of `frame` samples becomes `positions` positions of `width`, and then one latent.
    """

    first: Convolution
    stages: list[Stage]
    layers: list[Weights]
    downsample: Convolution
    halves: list[Half]
    width: int
    bins: int

    @property
    def positions(self) -> int:
        return self.downsample.stride

    @property
    def frame(self) -> int:
        return prod(stage.convolution.stride for stage in self.stages) * self.positions

    @classmethod
    def read(cls, file: ModelFile, codebooks: int) -> Mimi:
        """Raises BadFile naming the tensor that is missing or of a shape that does not go with the others, Unsupported
        for one of a type that is not computed with."""
        found = {int(m[1]) for name in file.weights if (m := re.match(r"encoder\.model\.(\d{1,3})\.", name))}
        blocks = {i for i in found if f"encoder.model.{i}.block.1.conv.conv.weight" in file.weights}
        plain = sorted(found - blocks)
        if len(plain) < 2 or plain[0] != 0:
            raise BadFile(f"{file.path}: the tensor 'encoder.model.0.conv.conv.weight' is missing, or all behind it")
        first = Convolution.read(file, "encoder.model.0.conv.conv", 1)
        stages = []
        for before, i in pairwise(plain):
            name = f"encoder.model.{i}.conv.conv"
            stride = 1 if i == plain[-1] else _shaped(file, f"{name}.weight", 3)[2] // 2
            residual = None
            for j in sorted(blocks & set(range(before, i))):
                inner = [Convolution.read(file, f"encoder.model.{j}.block.{k}.conv.conv", 1) for k in (1, 3)]
                residual = inner[0], inner[1]
            stages.append(Stage(residual, Convolution.read(file, name, stride)))
        name = "downsample.conv.conv.conv"
        downsample = Convolution.read(file, name, _shaped(file, f"{name}.weight", 3)[2] // 2, biased=False)
        width = downsample.channels
        layers = _layers(file, width)
        halves = [_half(file, "rvq_first", 1, width), _half(file, "rvq_rest", codebooks - 1, width)]
        mimi = cls(first, stages, layers, downsample, halves, width, halves[0].books[0][0].rows)
        mimi._check(file)
        return mimi

    def _check(self, file: ModelFile) -> None:
        channels, steps = 1, self.frame
        for each in self._in_order():
            if each.channels != channels or not 0 <= each.before <= steps or steps % each.stride:
                raise BadFile(
                    f"{file.path}: {each.weight.name} takes {each.channels} channels with {each.taps} taps; "
                    f"{channels} channels of {steps} steps reach it"
                )
            channels, steps = each.weight.rows, steps // each.stride
        if (channels, steps) != (self.width, 1):
            raise BadFile(f"{file.path}: a frame becomes {steps} latents of {channels}, not one of {self.width}")

    def _in_order(self):
        yield self.first
        for stage in self.stages:
            yield from stage.residual or ()
            yield stage.convolution
        yield self.downsample


# ---------------------------------------------------------------- the graphs


def convolutions(mimi: Mimi) -> Graph:
    """A column is a frame: the input "samples" (frame, 1), the output "y" (positions, width)."""
    g = Graph()
    x = mimi.first(g, g.input("samples", (mimi.frame, 1)))
    for stage in mimi.stages:
        if stage.residual is not None:
            inner, outer = stage.residual
            x = x + outer(g, g.elu(inner(g, g.elu(x))))
        x = stage.convolution(g, g.elu(x))
    g.output("y", x)
    return g


def transformer(mimi: Mimi, window: int = WINDOW, heads: int = HEADS) -> Graph:
    """A column is a position: the input "x" (width,), the output "y" (width,)."""
    g, dim = Graph(), mimi.width // heads
    x = g.input("x", (mimi.width,))
    for w in mimi.layers:
        h = g.layer_norm(x, w.norm1, w.get("norm1.bias"), eps=EPS)
        h = g.linear(h, attention_weight(w, "in"))
        q, k, v = (g.slice(h, i * mimi.width, (i + 1) * mimi.width).heads(heads) for i in range(3))
        q, k = (g.rope(each, base=BASE, pairs="neighbours") for each in (q, k))
        cache = g.store(k, v, KVRing(heads, dim, window))
        h = g.linear(g.attend(q, cache, scale=dim**-0.5, window=window), attention_weight(w, "out"))
        x = x + h * w.scoped("layer_scale_1").get("scale")  # type: ignore[operator]
        h = g.layer_norm(x, w.norm2, w.get("norm2.bias"), eps=EPS)
        h = g.linear(g.gelu(g.linear(h, w.linear1), exact=True), w.linear2)
        x = x + h * w.scoped("layer_scale_2").get("scale")  # type: ignore[operator]
    g.output("y", x)
    return g


def quantizer(mimi: Mimi) -> Graph:
    """A column is a frame: the input "x" (positions, width), the outputs "latent" (width,) and "codes" (codebooks,).

    The row nearest to r is that of the largest r · row - |row|²/2, the first of several.
    """
    g = Graph()
    latent = g.view(mimi.downsample(g, g.input("x", (mimi.positions, mimi.width)), start="first"), (mimi.width,))
    g.output("latent", latent)
    codes: Value | None = None
    for half in mimi.halves:
        rest = g.linear(latent, half.projection)
        for table, norms in half.books:
            code, _ = g.route(g.linear(rest, table, norms), count=1)
            codes = code if codes is None else g.concat(codes, code)
            rest = rest + g.scale(g.view(g.table_rows(table, code), rest.shape), by=-1.0)
    assert codes is not None
    g.output("codes", codes)
    return g


def attention_weight(w: Weights, which: str) -> Weight:
    """The projection "in" or "out" of a layer's attention, under either of its names."""
    attention = w.scoped("self_attn")
    plain = f"{which}_proj_weight" if which == "in" else f"{which}_proj"
    return attention.get(plain) or getattr(attention, f"{which}_projs.0")


# ---------------------------------------------------------------- reading


def _layers(file: ModelFile, width: int) -> list[Weights]:
    layers, prefix = [], "encoder_transformer.transformer.layers"
    while f"{prefix}.{len(layers)}.norm1.weight" in file.weights:
        name = f"{prefix}.{len(layers)}"
        w = file.weights.scoped(name)
        for tensor, shape in (
            ("norm1.weight", (width,)),
            ("norm1.bias", (width,)),
            ("norm2.weight", (width,)),
            ("norm2.bias", (width,)),
            ("layer_scale_1.scale", (width,)),
            ("layer_scale_2.scale", (width,)),
        ):
            _there(file, f"{name}.{tensor}", shape)
        hidden = _shaped(file, f"{name}.linear1.weight", 2)[0]
        _there(file, f"{name}.linear1.weight", (hidden, width))
        _there(file, f"{name}.linear2.weight", (width, hidden))
        _there(file, attention_weight(w, "in").name, (3 * width, width))
        _there(file, attention_weight(w, "out").name, (width, width))
        layers.append(w)
    if not layers or width % HEADS or width // HEADS % 2:
        raise BadFile(f"{file.path}: there is no transformer of {HEADS} heads for latents of {width}")
    return layers


def _half(file: ModelFile, name: str, count: int, width: int) -> Half:
    prefix = f"quantizer.{name}"
    size = _shaped(file, f"{prefix}.input_proj.weight", 3)[0]
    _there(file, f"{prefix}.input_proj.weight", (size, width, 1))
    projection = file.weights[f"{prefix}.input_proj.weight"]
    books, bins = [], None
    for i in range(count):
        book = f"{prefix}.vq.layers.{i}._codebook"
        bins = bins or _shaped(file, f"{book}.embedding_sum", 2)[0]
        rows = file.weights[_there(file, f"{book}.embedding_sum", (bins, size))].dequantize()
        usage = file.weights[_there(file, f"{book}.cluster_usage", (bins,))].dequantize()
        rows /= np.maximum(usage, np.float32(LEAST_USAGE))[:, None]
        norms = -0.5 * np.square(rows.astype(np.float64)).sum(1)
        books.append((Weight.of(book, rows), Weight.of(f"{book} norms", norms.astype(np.float32))))
    return Half(Weight.of(projection.name, projection.dequantize().reshape(size, width)), books)


def _shaped(file: ModelFile, name: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that must have so many axes, none of them empty."""
    weight = file.weights.get(name)
    if weight is None:
        raise BadFile(f"{file.path}: the tensor {name!r} is missing")
    if len(weight.shape) != axes or min(weight.shape) < 1:
        raise BadFile(f"{file.path}: {name} has the shape {weight.shape}; {axes} axes were expected")
    if weight.type not in FLOATS:
        raise Unsupported(f"{file.path}: {name} is of the type {weight.type}; {', '.join(FLOATS)} are computed with")
    return weight.shape


def _there(file: ModelFile, name: str, shape: tuple[int, ...]) -> str:
    """The name, of a tensor that is there in this shape."""
    if _shaped(file, name, len(shape)) != shape:
        raise BadFile(f"{file.path}: {name} has the shape {file.weights[name].shape}, the others say {shape}")
    return name
