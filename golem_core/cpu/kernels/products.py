"""Products of weights with activation columns, for every format, from one to many columns.

A few columns (`most_direct`) read the interleaved weights directly.  For more, each thread decodes 16 rows of a
stretch of features once into a tile of bytes and goes over all columns with it, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import golem_core.cpu.kernels.ternary  # noqa: F401  (adds its formats)
from golem_core.cpu import dots
from golem_core.cpu.dots import four, maddwd
from golem_core.cpu.formats import FORMATS, Blocks32, Blocks256, Floats, Format
from golem_core.cpu.jit import (
    PIECES,
    Traced,
    Var,
    arguments,
    both,
    broadcast,
    claim,
    const,
    fma,
    imax,
    imin,
    load,
    loop,
    number,
    select,
    share,
    store,
    tracer,
    value,
    when,
    when_else,
)
from golem_core.cpu.kernels import tables
from golem_core.cpu.kernels.floats import TileDecoded, TileFloat
from golem_core.cpu.kernels.orders import read_entry, read_pair
from golem_core.cpu.kernels.quantize import Q32, Q256
from golem_core.cpu.kernels.tiles import (
    AHEAD,
    TILE,
    WORDS_TILE,
    Tile,
    Tile32,
    Tile256,
    TileWords,
    fetch,
    minimum_sums,
    minimum_unit,
    start32,
    start256,
    stored_minimums,
    zeros,
)
from golem_core.cpu.library import kernel
from golem_core.cpu.target import load_half

NARROW = 4
"""Most columns that are multiplied at once with the weights as they lie."""
FLOAT_TILE = 1024
"""Features of a stretch of floats, which go past the nearest cache without harm; of quants it is `TILE`."""
DECODED_TILE = TILE // 4
"""Features of a stretch of floats that are decoded to float32."""
CHUNK_BYTES = 1 << 18
"""Bytes of float32 columns that all rows are multiplied with before the next ones: they stay in the second cache."""
CHUNK_GROUPS = 4
"""Groups of columns that go together at least, so that reading the weights again costs less than it saves."""
FLOAT_PIECES, EXPERT_PIECES = 32, 64
"""Pieces per thread that products of floats and those of a mixture are cut into: the former leave threads little to
wait for at the end, the latter are of experts with unequal numbers of columns."""
TILE_BYTES = 1 << 15
"""Bytes of scratch memory that a tile takes."""


def scratch_bytes(columns: int) -> int:
    """Scratch memory that a thread needs for products of so many columns."""
    return TILE_BYTES + 64 * columns


def narrow() -> int:
    """`NARROW`, or 1 where bytes have no products in hardware: those bound all else, and groups cost registers."""
    return NARROW if tracer.target.avx2 or tracer.target.dots else 1


def most_direct() -> int:
    """Most columns for which decoding the weights to a tile would cost more than it saves.

    Measured with AVX2: while a tile is multiplied no weights are on their way.
    """
    return 16 if tracer.target.avx2 and not tracer.target.dots else narrow()


def group_of(F: type[Format]) -> int:
    """Columns that are multiplied at once: their sums, 16 rows of weights and an activation fill the registers."""
    if issubclass(F, Floats) and tracer.target.avx2:
        return 6 if tracer.target.lanes == 8 else 8
    return 8 if issubclass(F, Blocks32) and tracer.target.lanes == 16 else 4


def tile_of(F: type[Format]) -> tuple[type[Tile], int]:
    """(tile class, features of a stretch) for many columns."""
    if issubclass(F, Floats):
        return (TileDecoded, DECODED_TILE) if F.scaled else (TileFloat, FLOAT_TILE)
    if not issubclass(F, Blocks32):
        return Tile256, TILE
    words = F.signed and tracer.target.avx2 and not tracer.target.dots
    return (TileWords, WORDS_TILE) if words else (Tile32, TILE)


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


def rows8(F: type[Format], w: Traced, columns: list[Traced], K: Traced) -> list[Var]:
    if issubclass(F, Blocks32):
        return rows8_32(F, w, columns, K)
    assert issubclass(F, Blocks256)
    return rows8_256(F, w, columns, K)


# ---------------------------------------------------------------- any number of columns


@dataclass(frozen=True)
class Columns:
    """The columns of a product: how many, and where activations and results of column i begin.

    `left`: the rows of the matrix from the first of these on; only as many results are written.  `scale`: what results
    are multiplied by, for formats that have one.
    """

    count: Traced
    at: Callable[[Traced], tuple[Traced, Traced]]
    left: Traced
    scale: Traced | None = None


def product16(F: type[Format], w: Traced, K: Traced, columns: Columns, room: Traced) -> None:
    """The products of 16 rows at `w` with all columns; `room` is `scratch_bytes` of the thread's own memory.

    A column's results are the same to the last bit whatever other columns there are.
    """
    kind, stretch = tile_of(F)
    if kind is TileFloat:
        by_tiles(F, w, K, columns, room, kind, stretch)
        return
    most = group_of(F) if issubclass(F, Floats) else most_direct()
    with when_else(columns.count <= most) as (few, many):
        with few:
            if issubclass(F, Floats):
                by_tiles(F, w, K, columns, room, TileFloat, FLOAT_TILE)
            else:
                directly(F, w, K, columns, room)
        with many:
            by_tiles(F, w, K, columns, room, kind, stretch, most)


def groups(count: Traced, over: int, most: int, body: Callable[[Traced, int], None]) -> None:
    """body(first, size) over 0...count, in as few groups of at most `most` as do, of two sizes one apart.

    The count is greater than `over`, so that some sizes never occur.
    """
    number = imax(1, (count + (most - 1)) // most)
    large = (count + number - 1) // number
    edge = (count - number * (large - 1)) * large
    smallest = min(n // -(-n // most) for n in range(over + 1, over + 1 + most * most))
    for size in range(smallest, most + 1):
        start = select(large.equals(size), value(0), edge)
        stop = select(large.equals(size), edge, select(large.equals(size + 1), count, edge))
        for first in loop(start, stop, size):
            body(first, size)


def directly(F: type[Format], w: Traced, K: Traced, columns: Columns, room: Traced) -> None:
    """At most `most_direct` columns, with the interleaved weights as they lie."""
    row8 = (K // F.block) * F.bytes8
    for half in loop(2):

        def some(first: Traced, size: int, half=half) -> None:
            chosen = [columns.at(first + i) for i in range(size)]
            totals = rows8(F, w + half * row8, [x for x, _ in chosen], K)
            for (_, y), total in zip(chosen, totals, strict=True):
                write8(y + half * 32, total.get(), columns.left - half * 8, room)

        groups(columns.count, 0, narrow(), some)


def write8(y: Traced, v: Traced, left: Traced, room: Traced) -> None:
    """Writes eight numbers, or the first `left` of them where that is less."""
    with when_else(left >= 8) as (whole, part):
        with whole:
            store(y, v)
        with part:
            store(room, v)
            copy_floats(room, y, left)


def copy_floats(source: Traced, target: Traced, count: Traced) -> None:
    for i in loop(count):
        store(target + i * 4, load("i32", source + i * 4))


def by_tiles(
    F: type[Format],
    w: Traced,
    K: Traced,
    columns: Columns,
    room: Traced,
    kind: type[Tile],
    features: int,
    over: int = 0,
) -> None:
    """Decodes a stretch of `features` to a tile, goes over all columns with it, and keeps their sums for the next.

    There are more than `over` columns.
    """
    tile, sums = kind(F, room), room + TILE_BYTES
    number = (K + features - 1) // features
    stretch = (K // F.block + number - 1) // number * F.block
    if kind is TileFloat:  # a single group of columns needs nothing to stay anywhere
        stretch = select(columns.count <= group_of(F), K, stretch)
    row8 = (K // F.block) * F.bytes8
    for k in loop(0, K, stretch):
        blocks = imin(K - k, stretch) // F.block
        for half in range(2):
            tile.decode(w + row8 * half + (k // F.block) * F.bytes8, half, blocks)
        last = k + stretch >= K
        to_results = both(last, columns.left >= 16)
        factor = None if columns.scale is None else select(last, columns.scale, 1.0)

        def some(first: Traced, size: int, k=k, blocks=blocks, to_results=to_results, factor=factor) -> None:
            chosen = [columns.at(first + i) for i in range(size)]
            at = sums + first * 64
            made = tile.product([x for x, _ in chosen], K, k, blocks, at, 64)
            for i, (_, y) in enumerate(chosen):
                target = select(to_results, y, at + 64 * i)
                for part, total in zip(tile.parts, made[i], strict=True):
                    store(target + part, total.get() if factor is None else total * factor)

        groups(columns.count, over, group_of(F), some)
    with when(columns.left < 16):
        for c in loop(columns.count):
            copy_floats(sums + c * 64, columns.at(c)[1], columns.left)


def pieces_of(F: type[Format]) -> int:
    return FLOAT_PIECES if issubclass(F, Floats) else PIECES


def chunk_of(F: type[Format], K: Traced, count: Traced) -> Traced:
    """Columns that go through all rows together: all where weights are decoded, otherwise as many as lie in the second
    cache."""
    if not issubclass(F, Floats) or F.scaled:
        return imax(1, count)
    group = group_of(F)
    return imax(CHUNK_GROUPS, value(CHUNK_BYTES) // (K * (4 * group))) * group


def register(F: type[Format]) -> None:
    """Makes the kernels `linear_NAME`, `repack_NAME` and `embed_NAME` of a format."""
    tables.register(F)

    @kernel(f"linear_{F.name}")
    def linear(a: Traced, thread: Traced, threads: Traced) -> None:
        """One matrix times every column or, where there is an order, each expert's times the columns that chose it."""
        (
            w, x, x_stride, choice_stride, y, y_stride, rows, K, count, order, experts,
            scratch, scratch_stride, counter,
        ) = arguments(a, 14)  # fmt: skip
        scale = number(a, 14) if issubclass(F, Floats) and F.scaled else None
        ordered, tiles = order.differs(0), (rows + 15) >> 4
        every, matrices, pieces = load("i64", count), Var(value(1)), Var(value(pieces_of(F)))
        chunk = chunk_of(F, K, every)
        matrices.set((every + chunk - 1) // chunk)
        with when(ordered):
            matrices.set(load("i64", order))
            pieces.set(EXPERT_PIECES)
        row16 = (K // F.block) * F.bytes8 * 2
        with when(both(every <= narrow(), order.equals(0))):  # later rows are asked for by those before them
            fetch(w + tiles * thread // threads * row16, AHEAD, 0)
        for i in claim(counter, matrices * tiles, threads, pieces):
            r, matrix, first = i % tiles, Var(value(0)), Var(i // tiles * chunk)
            n = Var(imin(every - first, chunk))
            with when(ordered):
                for var, word in zip((matrix, first, n), read_entry(order, i // tiles), strict=True):
                    var.set(word)

            def at(j: Traced, first=first, r=r) -> tuple[Traced, Traced]:
                column, choice = Var(first + j), Var(value(0))
                with when(ordered):
                    for var, word in zip((column, choice), read_pair(order, experts, first + j), strict=True):
                        var.set(word)
                activations = x + column * x_stride + choice * choice_stride
                return activations, y + column * y_stride + (choice * rows + r * 16) * 4

            columns = Columns(n.get(), at, rows - r * 16, scale)
            product16(F, w + (matrix * tiles + r) * row16, K, columns, scratch + thread * scratch_stride)

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
