"""The part of the CPU's table that convolves, and that goes through the columns of a conversation in order."""

from __future__ import annotations

import numpy as np

from golem_core.cpu.arguments import Constant, Counter, Matrix, Scratch, Vector
from golem_core.cpu.formats import FORMATS, Floats, Format
from golem_core.cpu.kernels import convolution, pictures
from golem_core.cpu.kernels.recurrence import LANES, TAPS
from golem_core.errors import Unsupported
from golem_core.files.weights import Weight
from golem_core.graph.pictures import taps_of
from golem_core.graph.planner import F32, Count, Fact, Planner, State, replace
from golem_core.graph.value import Node

STRETCHES = "stretches"
"""One row for every series of columns that goes through recurrent states by itself: a conversation's, or a tentative
column.  Its facts are the shares of the states that it begins and ends with, its first column and its length."""
STRETCH_FACTS = (*(Fact(STRETCHES, name) for name in ("source", "share", "first", "length")), Count(STRETCHES))


class ConvolutionLowering:
    """Emitters of convolutions and recurrences."""

    def prepend(self, p: Planner, node: Node) -> None:
        (before, channels), length = node["past"].shape, node["x"].shape[0]
        x, y = p.read(node["x"]), p.write(node.results[0])
        p.step(
            "prepend", x, x.stride, y, y.stride, State(node["past"], writes=True), before, length, channels,
            int(node["start"] == "first"), Fact(y.rows, "position"), Count(y.rows), *STRETCH_FACTS,
        )  # fmt: skip

    def conv1d(self, p: Planner, node: Node) -> None:
        weight, bias, channels = node["weight"], node["bias"], node["x"].shape[1]
        if weight_format(weight).form != F32:
            raise Unsupported(f"conv1d: {weight.name} is of type {weight.type}; the CPU takes F32, F16, BF16, F8_E4M3")
        x, y, (outputs, rows) = p.read(node["x"]), p.write(node.results[0]), node.results[0].shape
        p.step(
            f"conv1d_{weight.type}", Matrix(weight), x, x.stride, y, y.stride, rows, weight.width,
            4 * channels * node["stride"], outputs, Count(y.rows), Scratch(convolution.conv_scratch_bytes()), Counter(),
            *scale_of(weight),
        )  # fmt: skip
        if bias is not None:
            out = replace(y, writes=False)
            p.step("add_vector", out, y.stride, Vector(bias), y, y.stride, outputs, rows, Count(y.rows))

    def conv2d(self, p: Planner, node: Node) -> None:
        weight, bias, (height, width, channels) = node["weight"], node["bias"], node["x"].shape
        if weight_format(weight).form != F32:
            raise Unsupported(f"conv2d: {weight.name} is of type {weight.type}; the CPU takes F32, F16, BF16, F8_E4M3")
        taps, added = taps_of(weight, channels), np.zeros(-(-weight.rows // 16) * 16, np.float32)
        if bias is not None:
            added[: weight.rows] = bias.dequantize()
        x, y = p.read(node["x"]), p.write(node.results[0])
        p.step(
            f"conv2d_{weight.type}", Matrix(weight), x, x.stride, y, y.stride, height, width, channels, weight.rows,
            taps, Constant(np.zeros(channels, np.float32)), Constant(added), Count(y.rows),
            Scratch(pictures.conv_scratch_bytes(taps)), Counter(), *scale_of(weight),
        )  # fmt: skip

    def upsample(self, p: Planner, node: Node) -> None:
        x, y = p.read(node["x"]), p.write(node.results[0])
        p.step("upsample", x, x.stride, y, y.stride, *node["x"].shape, Count(y.rows))

    def causal_conv1d(self, p: Planner, node: Node) -> None:
        weight, bias = node["weight"], node["bias"]
        features, taps = weight.shape
        if taps not in TAPS:
            raise Unsupported(f"causal_conv1d: {weight.name} has {taps} taps; the CPU takes {TAPS[0]} to {TAPS[-1]}")
        x, y = p.read(node["x"]), p.write(node.results[0])
        p.step(
            f"causal_conv1d_{taps}" + ("_biased" if bias else ""), x, x.stride,
            Constant(np.ascontiguousarray(weight.dequantize().T)), Vector(bias) if bias else 0, y, y.stride,
            State(node["window"], writes=True), features, *STRETCH_FACTS,
        )  # fmt: skip

    def delta_net(self, p: Planner, node: Node) -> None:
        (key_heads, dk), (heads, dv) = node["q"].shape, node["v"].shape
        lanes = next((n for n in LANES if dv % n == 0), None)
        if lanes is None:
            raise Unsupported(f"delta_net: values of {dv} components; the CPU takes multiples of {min(LANES)}")
        inputs = [p.read(node[name]) for name in ("q", "k", "v", "decay", "beta")]
        y = p.write(node.results[0])
        places = [word for each in (*inputs, y) for word in (each, each.stride)]
        p.step(
            f"delta_net_{lanes}", *places, State(node["state"], writes=True), key_heads, heads, dk, dv, *STRETCH_FACTS,
            float(node["scale"]),
        )  # fmt: skip


def weight_format(weight: Weight) -> type[Format]:
    """The format of a weight that a product reads; raises Unsupported naming it."""
    if weight.type not in FORMATS:
        raise Unsupported(f"{weight.name}: the CPU has no products for weights of type {weight.type}")
    return FORMATS[weight.type]


def scale_of(weight: Weight) -> list[float]:
    """What the kernels of formats with a scale take last."""
    kind = weight_format(weight)
    return [weight.scale * kind.unit] if issubclass(kind, Floats) and kind.scaled else []
