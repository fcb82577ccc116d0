"""Maps of (height, width, channels) that one column holds: convolved, enlarged.

A convolution is a product for each tap of its square, one after the other.  Of a chunk of places, a table has where the
numbers of every tap begin: in the map itself or, beyond its edges, a row of zeros.  Nothing of the map is copied.
"""

from __future__ import annotations

from golem_core.cpu.formats import FORMATS, Floats
from golem_core.cpu.jit import (
    Traced,
    arguments,
    both,
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
    splat,
    store,
    when,
)
from golem_core.cpu.kernels.elementwise import each
from golem_core.cpu.kernels.floats import TileDecoded
from golem_core.cpu.kernels.products import DECODED_TILE, TILE_BYTES, copy_floats, group_of, groups
from golem_core.cpu.library import kernel

CHUNK = 96
"""Places that a thread multiplies with a piece of the weights at once."""
ITEMS = 8
"""Pieces of work that there are for each thread, as far as the outputs of a chunk can be divided."""


def conv_scratch_bytes(taps: int) -> int:
    """Scratch memory that a thread needs for a convolution: a tile, sums, and the table of places."""
    return TILE_BYTES + CHUNK * (64 + 8 * taps * taps)


def find_places(x: Traced, zeros: Traced, table: Traced, sizes: list[Traced], taps: Traced, first: Traced) -> None:
    """Writes where the numbers of each tap begin, for the places of the map at `x` from number `first` on."""
    height, width, channels = sizes
    half = taps >> 1
    for j in loop(imin(height * width - first, CHUNK)):
        row, column = (first + j) // width - half, (first + j) % width - half
        for tap in loop(taps * taps):
            r, c = row + tap // taps, column + tap % taps
            inside = both(both(r >= 0, r < height), both(c >= 0, c < width))
            store(table + (tap * CHUNK + j) * 8, select(inside, x + (r * width + c) * channels * 4, zeros))


def register(F: type[Floats]) -> None:
    """Makes the kernel `conv2d_NAME` of a format."""

    @kernel(f"conv2d_{F.name}")
    def conv2d(a: Traced, thread: Traced, threads: Traced) -> None:
        w, x, x_stride, y, y_stride, height, width, channels, rows, taps, zeros, bias, count = arguments(a, 13)
        scratch, scratch_stride, counter = arguments(a + 104, 3)
        scale = number(a, 16) if F.scaled else const("f32", 1)
        room = scratch + thread * scratch_stride
        tile, sums, table = TileDecoded(F, room), room + TILE_BYTES, room + TILE_BYTES + 64 * CHUNK
        tiles, places, K = (rows + 15) >> 4, height * width, taps * taps * channels
        chunks = (places + CHUNK - 1) // CHUNK
        every = chunks * load("i64", count)
        parts = imin(tiles, (threads * ITEMS + every - 1) // imax(every, 1))
        for i in claim(counter, every * parts, threads):
            part, c, first = i % parts, i // parts // chunks, i // parts % chunks * CHUNK
            find_places(x + c * x_stride, zeros, table, [height, width, channels], taps, first)
            n = imin(places - first, CHUNK)
            for r in loop(tiles * part // parts, tiles * (part + 1) // parts):
                row16, left = w + r * 2 * K * F.bytes8, rows - r * 16
                target = y + c * y_stride + (first * rows + r * 16) * 4
                for tap in loop(taps * taps):
                    for k in loop(0, channels, DECODED_TILE):
                        features, begun = imin(channels - k, DECODED_TILE), tap * channels + k
                        for half in range(2):
                            tile.decode(row16 + (half * K + begun) * F.bytes8, half, features)
                        last = begun + features >= K
                        to_results, factor = both(last, left >= 16), select(last, scale, 1.0)
                        added = [load(f"f32x{tile.lanes}", bias + r * 64 + at) for at in tile.parts]
                        added = [v * splat(select(last, const("f32", 1), 0.0), tile.lanes) for v in added]

                        def some(
                            j: Traced, size: int, tap=tap, k=k, features=features, begun=begun, to_results=to_results,
                            factor=factor, added=added, target=target,
                        ) -> None:  # fmt: skip
                            columns = [load("i64", table + (tap * CHUNK + j + i) * 8) for i in range(size)]
                            made = tile.product(columns, K, k, features, sums + j * 64, 64, begun)
                            for i in range(size):
                                to = select(to_results, target + (j + i) * rows * 4, sums + (j + i) * 64)
                                for at, total, more in zip(tile.parts, made[i], added, strict=True):
                                    store(to + at, fma(total.get(), splat(factor, tile.lanes), more))

                        groups(n, 0, group_of(F), some)
                with when(left < 16):
                    for j in loop(n):
                        copy_floats(sums + j * 64, target + j * rows * 4, left)


for _format in FORMATS.values():
    if issubclass(_format, Floats):
        register(_format)


@kernel("upsample")
def upsample(a: Traced, thread: Traced, threads: Traced) -> None:
    """Every place four times."""
    x, x_stride, y, y_stride, height, width, channels, count = arguments(a, 8)
    place = channels * 4
    for i in share(height * load("i64", count), thread, threads):
        c, row = i // height, i % height
        source = x + c * x_stride + row * width * place
        target = y + c * y_stride + row * width * place * 4
        for j in loop(width):

            def copy(at: Traced, t: str, j: Traced = j, source: Traced = source, target: Traced = target) -> None:
                v, to = load(t, source + j * place + at), target + j * place * 2 + at
                for k in (to, to + place, to + width * place * 2, to + width * place * 2 + place):
                    store(k, v)

            each(channels, copy)
