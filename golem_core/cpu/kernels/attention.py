"""Rotary embeddings, the KV rings, and attention over them.

A slot's share of a ring of L positions (a multiple of 16) holds keys as [head][L/16][dim][16] and values as
[head][dim/16][L][16], float16 or float32: both are "16 lanes side by side, one line per step" for the
same inner loop, which multiplies lines by single numbers.
"""

from __future__ import annotations

from math import pi

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    broadcast,
    claim,
    const,
    fma,
    hmax,
    hsum,
    imin,
    load,
    loop,
    number,
    select,
    share,
    splat,
    store,
    value,
    vmax,
    when,
)
from golem_core.cpu.kernels.elementwise import capped, each, exp, inverse_rms
from golem_core.cpu.library import kernel
from golem_core.cpu.target import load_half, rint, round_half, store_half

KV_BYTES = {"f16": 2, "f32": 4}
GROUPS = (4, 3, 2, 1)
"""Query heads of one key head that are read together, by preference."""
MASKED = -1e30


def load_kv(kind: str, address: Traced) -> Traced:
    return load_half(address) if kind == "f16" else load("f32x8", address)


def store_kv(kind: str, address: Traced, x: Traced) -> None:
    if kind == "f16":
        store_half(address, x)
    else:
        store(address, x)


# ---------------------------------------------------------------- rotation


@kernel("rope_angles")
def rope_angles(a: Traced, thread: Traced, threads: Traced) -> None:
    """For every row: cosines, then sines, of position * frequency; frequencies are float64, `pairs` a multiple of 4.

    The angle is reduced by multiples of pi/2 in float64, then polynomials on +-pi/4 (Cephes, sinf and cosf).
    """
    position, frequencies, out, stride, pairs, count = arguments(a, 6)
    units = pairs >> 2
    for i in share(units * load("i64", count), thread, threads):
        c, j = i // units, i % units
        at = splat(load("i64", position + c * 8).to("f64"), 4)
        angle = at * load("f64x4", frequencies + j * 32)
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
        to = out + c * stride + j * 16
        store(to, k)
        store(to + pairs * 4, s)


def turn(p: Traced, y: Traced, dim, turned, table, pairs, neighbours: bool, w: Traced | None, eps: Traced) -> None:
    """One head: its norm if there is a weight, then the rotation of its first `turned` components -> y."""
    r = inverse_rms(p, dim, eps) if w is not None else None

    def component(t: str, at: Traced) -> Traced:
        v = load(t, p + at)
        return v * r * load(t, w + at) if w is not None and r is not None else v

    half = turned >> 1
    if neighbours:
        for i in loop(half):
            x, z = component("f32", i * 8), component("f32", i * 8 + 4)
            c, s = load("f32", table + i * 4), load("f32", table + (pairs + i) * 4)
            store(y + i * 8, x * c - z * s)
            store(y + i * 8 + 4, x * s + z * c)
    else:

        def rotate(at: Traced, t: str) -> None:
            x, z = component(t, at), component(t, at + half * 4)
            c, s = load(t, table + at), load(t, table + at + pairs * 4)
            store(y + at, x * c - z * s)
            store(y + at + half * 4, x * s + z * c)

        each(half, rotate)
    start = turned * 4
    each(dim - turned, lambda at, t: store(y + start + at, component(t, start + at)))


def name_of(base: str, pairs: str | None, normed: bool) -> str:
    """The kernel for a rotation by `pairs` (None: none), of normed heads or of heads as they are."""
    return base + (f"_{pairs}" if pairs else "") + ("_normed" if normed else "")


def rope(pairs: str, normed: bool) -> None:
    @kernel(name_of("rope", pairs, normed))
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, table, table_stride, half, turned, w, heads, dim, count = arguments(a, 12)
        eps = number(a, 12)
        for i in share(heads * load("i64", count), thread, threads):
            c, h = i // heads, i % heads
            source, target = x + c * x_stride + h * dim * 4, y + c * y_stride + h * dim * 4
            angles = table + c * table_stride
            turn(source, target, dim, turned, angles, half, pairs == "neighbours", w if normed else None, eps)


def kv_store(kind: str, pairs: str | None, normed: bool) -> None:
    """`store_{kind}...`: keys, normed and rotated on the way if the name says so, and values into a ring."""
    size = KV_BYTES[kind]

    @kernel(name_of(f"store_{kind}", pairs, normed))
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        k, k_stride, v, v_stride, keys, values, length, slot_bytes, heads, dim, position, slot, count = arguments(a, 13)
        table, table_stride, half, turned, w, scratch, scratch_stride = arguments(a + 104, 7)
        eps = number(a, 20)
        room = scratch + thread * scratch_stride
        for i in share(heads * load("i64", count), thread, threads):
            c, h = i // heads, i % heads
            at = load("i64", position + c * 8) % length
            base = load("i64", slot + c * 8) * slot_bytes + h * length * dim * size
            source = k + c * k_stride + h * dim * 4
            if pairs or normed:
                angles = table + c * table_stride
                turn(source, room, dim, turned, angles, half, pairs == "neighbours", w if normed else None, eps)
                source = room
            line = keys + base + ((at >> 4) * dim * 16 + (at & 15)) * size
            for d in loop(dim):
                store_kv(kind, line + d * (16 * size), load("f32", source + d * 4))
            line = values + base + at * (16 * size)
            for d in loop(dim >> 4):
                for u in range(2):
                    x = load("f32x8", v + c * v_stride + h * dim * 4 + d * 64 + 32 * u)
                    store_kv(kind, line + d * length * (16 * size) + 8 * size * u, x)


# ---------------------------------------------------------------- attention


def accumulate(kind: str, sums: list[list[Var]], rows: list[Traced], lines: Traced, n: Traced) -> None:
    """Adds n lines of 16 lanes, each times one number of every row."""
    size = KV_BYTES[kind]
    for i in loop(n):
        line = [load_kv(kind, lines + i * (16 * size) + 8 * size * u) for u in range(2)]
        for row, total in zip(rows, sums, strict=True):
            x = broadcast("f32x8", "f32", row + i * 4)
            for u in range(2):
                total[u].set(fma(x, line[u], total[u]))


def zeros(rows: int) -> list[list[Var]]:
    return [[Var(const("f32x8", 0)) for _ in range(2)] for _ in range(rows)]


def attend_heads(kind, together, q, out, keys, values, base, at, length, dim, window, scale, cap, room, span) -> None:
    """`together` query heads of one key head for one column; `base` is the byte offset of the head's keys."""
    size = KV_BYTES[kind]
    end = at + 1
    low = select(end > window, end - window, 0)
    first = low & -16
    count = end - first
    padded = (count + 15) & -16
    heads = [q + dim * (4 * m) for m in range(together)]
    scores = [room + span * (4 * m) for m in range(together)]
    rounded = round_half if kind == "f16" else lambda x: x
    if kind == "f16":  # queries and probabilities meet float16 keys and values as float16, as in ggml
        near = room + span * (4 * together)
        for i in loop(0, dim * (4 * together), 32):
            store(near + i, round_half(load("f32x8", q + i)))
        heads = [near + dim * (4 * m) for m in range(together)]
    for p in loop(0, padded, 16):
        sums = zeros(together)
        ring = (first + p) % length
        accumulate(kind, sums, heads, keys + base + ring * dim * size, dim)
        for m in range(together):
            for u in range(2):
                store(scores[m] + p * 4 + 32 * u, sums[m][u] * scale)
    with when(cap > 0.0):
        for i in loop(padded * together >> 3):
            at_score = room + i // (padded >> 3) * (span * 4) + i % (padded >> 3) * 32
            store(at_score, capped(load("f32x8", at_score), cap))
    for m in range(together):
        for p in loop(low - first):
            store(scores[m] + p * 4, const("f32", MASKED))
        for p in loop(count, padded):
            store(scores[m] + p * 4, const("f32", MASKED))
        top = Var(const("f32x8", MASKED))
        for p in loop(0, padded, 8):
            top.set(vmax(top, load("f32x8", scores[m] + p * 4)))
        highest = hmax(top.get())
        total = Var(const("f32x8", 0))
        for p in loop(0, padded, 8):
            e = exp(load("f32x8", scores[m] + p * 4) - highest)
            total += e
            store(scores[m] + p * 4, e)
        inverse = const("f32", 1) / hsum(total.get())
        for p in loop(0, padded, 8):
            store(scores[m] + p * 4, rounded(load("f32x8", scores[m] + p * 4) * inverse))
    start = first % length
    before_wrap = imin(count, length - start)
    for d in loop(dim >> 4):
        sums = zeros(together)
        lines = values + base + d * length * (16 * size)
        accumulate(kind, sums, scores, lines + start * (16 * size), before_wrap)
        rest = [s + before_wrap * 4 for s in scores]
        accumulate(kind, sums, rest, lines, count - before_wrap)
        for m in range(together):
            for u in range(2):
                store(out + dim * (4 * m) + d * 64 + 32 * u, sums[m][u].get())


def attend(kind: str, most: int) -> None:
    """`attend_{kind}_{most}`: as many query heads together as divide `most` and still occupy every thread."""

    @kernel(f"attend_{kind}_{most}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        q, q_stride, keys, values, out, out_stride, position, slot, heads, kv_heads, dim, length = arguments(a, 12)
        slot_bytes, window, count, scratch, scratch_stride, span, counter = arguments(a + 96, 7)
        scale, cap = number(a, 19), number(a, 20)
        room = scratch + thread * scratch_stride
        n, group = load("i64", count), heads // kv_heads
        chosen = Var(value(1))
        for m in reversed([m for m in GROUPS if most % m == 0]):
            with when(n * (heads // m) >= threads):
                chosen.set(m)
        for m in (m for m in GROUPS if most % m == 0):
            with when(chosen.equals(m)):
                units = heads // m
                for i in claim(counter, units * n, threads):
                    c, h = n - 1 - i // units, i % units * m  # the last columns see most and come first
                    base = load("i64", slot + c * 8) * slot_bytes + (h // group) * length * dim * KV_BYTES[kind]
                    attend_heads(
                        kind, m, q + c * q_stride + h * dim * 4, out + c * out_stride + h * dim * 4,
                        keys, values, base, load("i64", position + c * 8), length, dim, window, scale, cap, room, span,
                    )  # fmt: skip


for _kind in KV_BYTES:
    for _most in GROUPS:
        attend(_kind, _most)
    for _pairs in (None, "halves", "neighbours"):
        for _normed in (False, True):
            if _pairs or not _normed:
                kv_store(_kind, _pairs, _normed)
for _pairs in ("halves", "neighbours"):
    for _normed in (False, True):
        rope(_pairs, _normed)
