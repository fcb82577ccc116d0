"""Rotations of heads, by a column's position or by numbers that a pass is given; `ops` re-exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.value import Value, check, op, result

if TYPE_CHECKING:
    from golem_core.graph.graph import Graph
    from golem_core.graph.reference import Run

f32 = np.float32
PAIRS = ("halves", "neighbours")


@op(facts=("position",))
def rope(
    g: Graph,
    x: Value,
    *,
    base: float,
    dims: int | None = None,
    pairs: str = "halves",
    factors: Weight | None = None,
    scale: float = 1.0,
) -> Value:
    """Rotates pair j of every head of x (heads, dim) by position * scale * base^(-2j/dims) / factors[j].

    The first `dims` components (default: all) form the pairs, (j, j + dims/2) for "halves" and
    (2j, 2j + 1) for "neighbours"; the others pass unchanged.  `factors` is (dims/2,).  (arXiv:2104.09864)
    """
    check(len(x.shape) == 2, "x is not split into heads")
    check(pairs in PAIRS, "pairs is neither 'halves' nor 'neighbours'")
    count = x.shape[-1] if dims is None else dims
    check(count % 2 == 0 and 0 < count <= x.shape[-1], f"cannot rotate {count} of {x.shape[-1]} components")
    check(factors is None or factors.shape == (count // 2,), "one factor per pair is needed")
    return result(x.shape)


def rope_frequencies(
    dim: int, *, base: float, dims: int | None, factors: np.ndarray | None, scale: float
) -> np.ndarray:
    """Radians per position of each pair, float64 (dims/2,), for heads of size `dim`."""
    count = dims or dim
    frequencies = scale * float(base) ** (-np.arange(0, count, 2, dtype=np.float64) / count)
    return frequencies if factors is None else frequencies / np.asarray(factors, np.float64)


@rope.define
def _(run: Run, x, base, dims, pairs, factors, scale):
    dims = dims or x.shape[-1]
    angle = run.position[:, None, None] * rope_frequencies(
        x.shape[-1], base=base, dims=dims, factors=factors, scale=scale
    )
    return turned(x, angle, *components(dims // 2, pairs))


@op()
def rope_at(
    g: Graph,
    x: Value,
    at: Value,
    *,
    frequencies: tuple[float, ...],
    axes: tuple[int, ...],
    pairs: str = "halves",
    blocks: int = 1,
) -> Value:
    """Rotates pair j of every head of x (heads, dim) by at[axes[j]] * frequencies[j] radians.

    `at` (axes,) says where the column is on each axis: a place in a picture, say.  The first 2 * len(frequencies)
    components form the pairs, in `blocks` blocks one after another, of as many pairs each: of the n components of a
    block, (j, j + n/2) for "halves" and (2j, 2j + 1) for "neighbours"; what is behind them passes unchanged.  Angles
    are worked out in float64.  (arXiv:2104.09864; with several axes, arXiv:2409.12191 and arXiv:2403.13298)
    """
    count = len(frequencies)
    check(len(x.shape) == 2, "x is not split into heads")
    check(len(at.shape) == 1, "at is no plain row")
    check(pairs in PAIRS, "pairs is neither 'halves' nor 'neighbours'")
    check(0 < 2 * count <= x.shape[-1], f"cannot rotate {2 * count} of {x.shape[-1]} components")
    check(len(axes) == count, f"{len(axes)} axes are named for {count} frequencies")
    check(min(axes) >= 0 and max(axes) < at.size, f"at has {at.size} axes, {min(axes)} to {max(axes)} are named")
    check(blocks > 0 and count % blocks == 0, f"{count} pairs are no {blocks} blocks of as many each")
    return result(x.shape)


@rope_at.define
def _(run: Run, x, at, frequencies, axes, pairs, blocks):
    angle = at.astype(np.float64)[:, list(axes)] * np.asarray(frequencies, np.float64)
    return turned(x, angle[:, None], *components(len(frequencies), pairs, blocks))


def components(count: int, pairs: str, blocks: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second component of each of `count` pairs."""
    block, j = np.divmod(np.arange(count), count // blocks)
    n = 2 * (count // blocks)
    first, second = (j, j + n // 2) if pairs == "halves" else (2 * j, 2 * j + 1)
    return block * n + first, block * n + second


def turned(x: np.ndarray, angle: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x (rows, heads, dim) with the components a and b of each pair turned by `angle` (rows, 1, pairs)."""
    cos, sin = np.cos(angle).astype(f32), np.sin(angle).astype(f32)
    out = x.copy()
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out
