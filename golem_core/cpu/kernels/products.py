"""Products of weights with activation columns, for every format, from one to many columns.

Up to `NARROW` columns read the interleaved weights directly, a few at a time.  For more, each thread decodes 16 rows
of a stretch of features once into a tile of bytes (or float32) and goes over all columns with it, four at a time.
"""

from __future__ import annotations

import golem_core.cpu.kernels.ternary  # noqa: F401  (adds its formats)
from golem_core.cpu import dots
from golem_core.cpu.dots import maddwd
from golem_core.cpu.formats import FORMATS, Blocks32, Blocks256, Floats, Format
from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    broadcast,
    claim,
    const,
    fma,
    imin,
    load,
    loop,
    prefetch,
    share,
    store,
    tracer,
    value,
    when,
)
from golem_core.cpu.kernels.quantize import Q32, Q256
from golem_core.cpu.kernels.tiles import (
    four,
    minimum_sums,
    minimum_unit,
    start32,
    start256,
    stored_minimums,
    tile_of,
    zeros,
)
from golem_core.cpu.library import kernel
from golem_core.cpu.target import load_half

GROUP = 4
"""Columns that a mat-vec takes at once, on processors that multiply bytes."""
NARROW = 8
"""Most columns that are done in such groups, the weights of eight rows staying in the nearest cache meanwhile."""
AHEAD = 4096
"""Bytes that the software prefetch of a mat-vec runs ahead; hides more latency than the hardware's own."""
SCRATCH = 1 << 18
"""Bytes of scratch memory a thread needs."""


def fetch(p: Traced, size: int) -> None:
    for i in range(0, size, 64):
        prefetch(p + (AHEAD + i))


# ---------------------------------------------------------------- a few columns


def rows8_32(F: type[Blocks32], w: Traced, columns: list[Traced], K: Traced) -> list[Var]:
    """Eight rows times each column."""
    totals = [zeros() for _ in columns]
    for b in loop(K >> 5):
        p, quants = F.part(w, b)
        fetch(quants, F.bytes8 * 32 // F.block)
        sums = [dots.Sum(F, start32(F, x + b * 4, K)) for x in columns]
        for g, q in F.quants(quants):
            q = dots.encode(F, q)
            for c, x in enumerate(columns):
                sums[c].add(q, four(x + b * 32 + 4 * g))
        d = load_half(p)
        for c, x in enumerate(columns):
            scale = broadcast("f32x8", "f32", x + Q32.scale(K) + b * 4)
            totals[c].set(fma(sums[c].result().to("f32x8"), d * scale, totals[c]))
            if F.mins:
                total = broadcast("f32x8", "f32", x + Q32.scaled_sum(K) + b * 4)
                totals[c].set(fma(load_half(p + 16), total, totals[c]))
    return totals


def rows8_256(F: type[Blocks256], w: Traced, columns: list[Traced], K: Traced) -> list[Var]:
    totals = [zeros() for _ in columns]
    for b in loop(K >> 8):
        p = w + b * F.bytes8
        weighted = [Var(const("i32x8", 0)) for _ in columns]
        minimum = [Var(const("i32x8", 0)) for _ in columns]
        for j in loop(F.steps):
            fetch(p + j * (F.bytes8 // F.steps), F.bytes8 // F.steps)
            for s, scale, quants in F.step(p, j):
                scales = dots.scales(scale)
                sums = [dots.Sum(F, start256(F, x, K, b, s), scales) for x in columns]
                for g, q in enumerate(quants):
                    q = dots.encode(F, q)
                    for c, x in enumerate(columns):
                        sums[c].add(q, four(x + b * 256 + s * F.sub + 4 * g))
                for c in range(len(columns)):
                    weighted[c] += sums[c].result()
        d = load_half(p)
        for c, x in enumerate(columns):
            scale = broadcast("f32x8", "f32", x + Q256.scale(K) + b * 4)
            totals[c].set(fma(weighted[c].to("f32x8"), d * scale, totals[c]))
            if F.mins:
                for i, m in stored_minimums(F, p):
                    minimum[c] += maddwd(m, minimum_sums(F, x, K, b, i))
                totals[c] -= minimum[c].to("f32x8") * (load_half(p + 16) * scale * minimum_unit(F))
    return totals


def rows8_float(F: type[Floats], w: Traced, columns: list[Traced], K: Traced) -> list[Var]:
    lanes = 4 if len(columns) <= 2 else 2  # independent sums, to hide the latency of an addition
    totals = [[zeros() for _ in range(lanes)] for _ in columns]
    body = K & -lanes
    for k in loop(0, body, lanes):
        p = w + k * F.bytes8
        fetch(p, F.bytes8 * lanes)
        for u in range(lanes):
            v = F.load8(p + F.bytes8 * u)
            for c, x in enumerate(columns):
                totals[c][u].set(fma(v, broadcast("f32x8", "f32", x + k * 4 + 4 * u), totals[c][u]))
    for k in loop(body, K):
        v = F.load8(w + k * F.bytes8)
        for c, x in enumerate(columns):
            totals[c][0].set(fma(v, broadcast("f32x8", "f32", x + k * 4), totals[c][0]))
    for sums in totals:
        for u in range(1, lanes):
            sums[0] += sums[u]
    return [sums[0] for sums in totals]


def rows16_float(F: type[Floats], w: Traced, row8: Traced, columns: list[Traced], K: Traced) -> list[list[Var]]:
    """Sixteen rows times each column, added up feature by feature as `TileFloat` does.

    So a column's result is the same to the last bit however many columns there are.
    """
    totals = [[zeros() for _ in range(2)] for _ in columns]

    def step(k: Traced, u: int = 0) -> None:
        v = [F.load8(w + row8 * h + k * F.bytes8 + F.bytes8 * u) for h in range(2)]
        for c, x in enumerate(columns):
            number = broadcast("f32x8", "f32", x + k * 4 + 4 * u)
            for h in range(2):
                totals[c][h].set(fma(v[h], number, totals[c][h]))

    body = K & -4
    for k in loop(0, body, 4):
        for h in range(2):
            fetch(w + row8 * h + k * F.bytes8, F.bytes8 * 4)
        for u in range(4):
            step(k, u)
    for k in loop(body, K):
        step(k)
    return totals


def rows8(F: type[Format], w: Traced, columns: list[Traced], K: Traced) -> list[Var]:
    if issubclass(F, Blocks32):
        return rows8_32(F, w, columns, K)
    if issubclass(F, Blocks256):
        return rows8_256(F, w, columns, K)
    assert issubclass(F, Floats)
    return rows8_float(F, w, columns, K)


# ---------------------------------------------------------------- many columns


def wide(F, w, x, x_stride, y, y_stride, rows, K, count, scratch, counter, threads) -> None:
    """All columns, 16 rows at a time."""
    kind, stretch, data_bytes = tile_of(F)
    tile = kind(F, scratch, scratch + data_bytes)
    row8 = (K // F.block) * F.bytes8
    for r in claim(counter, (rows + 15) >> 4, threads):
        for k in loop(0, K, stretch):
            blocks = imin(K - k, stretch) // F.block
            for half in range(2):
                tile.decode(w + row8 * (r * 2 + half) + (k // F.block) * F.bytes8, half, blocks)

            def columns(start: Traced, stop: Traced, n: int, r=r, k=k, blocks=blocks) -> None:
                for c in loop(start, stop, n):
                    at = y + c * y_stride + r * 64
                    chosen = [x + (c + i) * x_stride for i in range(n)]
                    totals = tile.product(chosen, K, k, blocks, at, y_stride)
                    for i in range(n):
                        for part, total in zip(tile.parts, totals[i], strict=True):
                            store(at + y_stride * i + part, total.get())

            whole = count & -4
            columns(value(0), whole, 4)
            columns(whole, count, 1)


def register(F: type[Format]) -> None:
    """Makes the kernels `linear_NAME` and `repack_NAME` of a format."""

    @kernel(f"linear_{F.name}")
    def linear(a: Traced, thread: Traced, threads: Traced) -> None:
        w, x, x_stride, y, y_stride, rows, K, count, scratch, scratch_stride, counter = arguments(a, 11)
        n = load("i64", count)
        row8 = (K // F.block) * F.bytes8
        # without byte products in hardware, every width but one is bound by arithmetic
        together, narrow = (GROUP, NARROW) if tracer.target.avx2 or tracer.target.dots else (1, 1)

        at_once = 2 if issubclass(F, Floats) else 1  # groups of eight rows

        def columns(r: Traced, first: Traced, size: int) -> None:
            chosen = [x + (first + c) * x_stride for c in range(size)]
            if issubclass(F, Floats):
                totals = rows16_float(F, w + r * (row8 * 2), row8, chosen, K)
            else:
                totals = [[total] for total in rows8(F, w + r * row8, chosen, K)]
            for c, groups in enumerate(totals):
                for h, total in enumerate(groups):
                    store(y + (first + c) * y_stride + r * (32 * at_once) + 32 * h, total.get())

        with when(n <= narrow):
            for r in claim(counter, (rows + 8 * at_once - 1) // (8 * at_once), threads):
                whole = n & -together
                for c in loop(0, whole, together):
                    columns(r, c, together)
                for rest in range(1, together):
                    with when((n - whole).equals(rest)):
                        columns(r, whole, rest)
        with when(n > narrow):
            room = scratch + thread * scratch_stride
            wide(F, w, x, x_stride, y, y_stride, rows, K, n, room, counter, threads)

    @kernel(f"repack_{F.name}")
    def repack(a: Traced, thread: Traced, threads: Traced) -> None:
        source, target, rows, K = arguments(a, 4)
        blocks = K // F.block
        for r in share(rows, thread, threads):
            group, row = r >> 3, r & 7
            for b in loop(blocks):
                F.repack(source + (r * blocks + b) * F.source_bytes, target + (group * blocks + b) * F.bytes8, row)


for _format in FORMATS.values():
    register(_format)
