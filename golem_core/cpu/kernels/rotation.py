"""Rotary embeddings: a table of angles for the positions of a pass, and heads turned by it, normed if need be."""

from __future__ import annotations

from math import pi

from golem_core.cpu.jit import (
    Traced,
    arguments,
    const,
    fma,
    load,
    loop,
    number,
    select,
    share,
    shuffle,
    splat,
    store,
    value,
)
from golem_core.cpu.kernels.elementwise import each, inverse_rms
from golem_core.cpu.library import kernel
from golem_core.cpu.target import rint


def store_turn(to: Traced, angle: Traced, pairs: Traced) -> None:
    """Four cosines at `to`, and four sines behind the row's `pairs` cosines, of float64 angles.

    The angle is reduced by multiples of pi/2 in float64, then polynomials on +-pi/4 (Cephes, sinf and cosf).
    """
    turns = rint(angle * (2 / pi))
    high = 1.5707963267341256  # pi/2 in two parts
    rest = angle - turns * high - turns * 6.077100506506192e-11
    r = rest.to("f32x4")
    quadrant = turns.to("i64x4").to("i32x4")
    z = r * r
    sine = const("f32x4", -1.9515295891e-4)
    for k in (8.3321608736e-3, -1.6666654611e-1):
        sine = fma(sine, z, const("f32x4", k))
    sine = fma(sine * z, r, r)
    cosine = const("f32x4", 2.443315711809948e-5)
    for k in (-1.388731625493765e-3, 4.166664568298827e-2):
        cosine = fma(cosine, z, const("f32x4", k))
    cosine = fma(cosine * z, z, fma(z, const("f32x4", -0.5), const("f32x4", 1.0)))
    odd = (quadrant & 1).differs(0)
    s, k = select(odd, cosine, sine), select(odd, sine, cosine)
    s = (s.bits("i32x4") ^ ((quadrant & 2) << 30)).bits("f32x4")
    k = (k.bits("i32x4") ^ (((quadrant + 1) & 2) << 30)).bits("f32x4")
    store(to, k)
    store(to + pairs * 4, s)


@kernel("rope_angles")
def rope_angles(a: Traced, thread: Traced, threads: Traced) -> None:
    """For every row: cosines, then sines, of position * frequency; frequencies are float64, `pairs` a multiple of 4."""
    position, frequencies, out, stride, pairs, count = arguments(a, 6)
    units = pairs >> 2
    for i in share(units * load("i64", count), thread, threads):
        c, j = i // units, i % units
        at = splat(load("i64", position + c * 8).to("f64"), 4)
        store_turn(out + c * stride + j * 16, at * load("f64x4", frequencies + j * 32), pairs)


@kernel("rope_at_angles")
def rope_at_angles(a: Traced, thread: Traced, threads: Traced) -> None:
    """The same of places[axis] * frequency; places are float32, an axis for each pair."""
    places, places_stride, axes, frequencies, out, stride, pairs, count = arguments(a, 8)
    units = pairs >> 2
    for i in share(units * load("i64", count), thread, threads):
        c, j = i // units, i % units
        row = places + c * places_stride
        each = [splat(load("f32", row + load("i64", axes + j * 32 + 8 * k) * 4), 4) for k in range(4)]
        two = [shuffle(each[k], each[k + 1], (0, 4)) for k in (0, 2)]
        at = shuffle(*two, range(4)).to("f64x4")
        store_turn(out + c * stride + j * 16, at * load("f64x4", frequencies + j * 32), pairs)


def turn(
    p: Traced,
    y: Traced,
    dim: Traced,
    turned: Traced,
    table: Traced,
    pairs: Traced,
    how: str,
    w: Traced | None,
    eps: Traced,
    blocks: Traced | None = None,
) -> None:
    """One head: its norm if there is a weight, then the rotation of its first `turned` components -> y.

    `how`: "halves", of each of `blocks` blocks if there are several, or "neighbours".
    """
    r = inverse_rms(p, dim, eps) if w is not None else None

    def component(t: str, at: Traced) -> Traced:
        v = load(t, p + at)
        return v * r * load(t, w + at) if w is not None and r is not None else v

    if how == "neighbours":
        for i in loop(turned >> 1):
            x, z = component("f32", i * 8), component("f32", i * 8 + 4)
            c, s = load("f32", table + i * 4), load("f32", table + (pairs + i) * 4)
            store(y + i * 8, x * c - z * s)
            store(y + i * 8 + 4, x * s + z * c)
    else:
        half = (turned >> 1) if blocks is None else (turned >> 1) // blocks
        for block in [value(0)] if blocks is None else loop(blocks):
            first, angles = block * half * 8, table + block * half * 4

            def rotate(at: Traced, t: str, first: Traced = first, angles: Traced = angles) -> None:
                x, z = component(t, first + at), component(t, first + at + half * 4)
                c, s = load(t, angles + at), load(t, angles + at + pairs * 4)
                store(y + first + at, x * c - z * s)
                store(y + first + at + half * 4, x * s + z * c)

            each(half, rotate)
    start = turned * 4
    each(dim - turned, lambda at, t: store(y + start + at, component(t, start + at)))


def name_of(base: str, pairs: str | None, normed: bool) -> str:
    """The kernel for a rotation by `pairs` (None: none; "blocks": halves of blocks), of normed heads or of heads as
    they are."""
    return base + (f"_{pairs}" if pairs else "") + ("_normed" if normed else "")


def rope(pairs: str, normed: bool) -> None:
    @kernel(name_of("rope", pairs, normed))
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, table, table_stride, half, turned, w, heads, dim, count = arguments(a, 12)
        eps = number(a, 12)
        blocks = load("i64", a + 104) if pairs == "blocks" else None
        for i in share(heads * load("i64", count), thread, threads):
            c, h = i // heads, i % heads
            source, target = x + c * x_stride + h * dim * 4, y + c * y_stride + h * dim * 4
            angles = table + c * table_stride
            turn(source, target, dim, turned, angles, half, pairs, w if normed else None, eps, blocks)


for _pairs in ("halves", "neighbours", "blocks"):
    for _normed in (False, True):
        rope(_pairs, _normed)
