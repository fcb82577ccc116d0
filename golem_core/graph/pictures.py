"""What is done with a map (height, width, channels) that one column holds, each op with its meaning; `ops` re-exports
them."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.value import Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run


def taps_of(weight: Weight, channels: int) -> int:
    """Taps of a side of the square that a row of `weight` (out, taps * taps * channels) covers; 0: it is no square."""
    taps = isqrt(weight.width // channels)
    return taps if taps * taps * channels == weight.width else 0


@op()
def conv2d(g: Graph, x: Value, weight: Weight, bias: Weight | None = None) -> Value:
    """Convolution over the first two axes of x (height, width, channels), as large as x -> (height, width, out).

    y[i, j] = `weight` times the numbers of the square of taps * taps places around (i, j), plus `bias` (out,); places
    beyond the edges count as zeros.  `weight` is (out, taps * taps * channels), taps odd: a row has the channels of
    the square's first place, then those of the place to its right, and so on row by row.  One tap: a product with
    every place by itself.
    """
    check(len(x.shape) == 3, "x is no map of height, width and channels")
    check(len(weight.shape) == 2, f"{weight.name} is no matrix")
    height, width, channels = x.shape
    taps = taps_of(weight, channels)
    check(taps % 2 == 1, f"{weight.name} takes {weight.width} numbers: no square of odd sides of {channels} channels")
    check(bias is None or bias.shape == (weight.rows,), "the bias has not one entry per output")
    return result((height, width, weight.rows))


@conv2d.define
def _(run: Run, x, weight, bias):
    _, height, width, channels = x.shape
    taps = isqrt(weight.shape[1] // channels)
    padded = np.pad(x, [(0, 0), *[(taps // 2, taps // 2)] * 2, (0, 0)])
    kernel = weight.reshape(-1, taps, taps, channels)
    y = np.zeros((*x.shape[:3], len(weight)), np.float32)
    for i in range(taps):
        for j in range(taps):
            y += padded[:, i : i + height, j : j + width] @ kernel[:, i, j].T
    return y if bias is None else y + bias


@op()
def upsample(g: Graph, x: Value) -> Value:
    """Every place of x (height, width, channels) four times -> (2 * height, 2 * width, channels)."""
    check(len(x.shape) == 3, "x is no map of height, width and channels")
    height, width, channels = x.shape
    return result((2 * height, 2 * width, channels))


@upsample.define
def _(run: Run, x):
    return np.repeat(np.repeat(x, 2, 1), 2, 2)
