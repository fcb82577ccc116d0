"""Convolutions within a row: the steps before it put in front, and products over windows that overlap."""

from __future__ import annotations

from golem_core.cpu.formats import FORMATS, Floats
from golem_core.cpu.jit import Traced, arguments, claim, imin, load, loop, number, select, share, store
from golem_core.cpu.kernels.elementwise import each
from golem_core.cpu.kernels.products import Columns, product16, scratch_bytes
from golem_core.cpu.kernels.recurrence import stretches
from golem_core.cpu.library import kernel

CHUNK = 96
"""Windows that a thread multiplies with a piece of the weights at once."""


def conv_scratch_bytes() -> int:
    """Scratch memory that a thread needs for a convolution."""
    return scratch_bytes(CHUNK)


@kernel("prepend")
def prepend(a: Traced, thread: Traced, threads: Traced) -> None:
    """Step j of the past is the same step of every column's end, so that one thread goes through all of them."""
    x, x_stride, y, y_stride, states, before, length, channels, repeats, position, count = arguments(a, 11)
    row = channels * 4

    def copy(source: Traced, target: Traced) -> None:
        each(channels, lambda at, t: store(target + at, load(t, source + at)))

    for j in share(before, thread, threads):
        end = (length - before + j) * row
        for source, into, first, n in stretches(*arguments(a + 88, 5)):
            begins = load("i64", position + first * 8).equals(0).zext("i64") * repeats
            state = states + (source * before + j) * row
            copy(select(begins > 0, x + first * x_stride, state), y + first * y_stride + j * row)
            for c in loop(first + 1, first + n):
                copy(x + (c - 1) * x_stride + end, y + c * y_stride + j * row)
            copy(x + (first + n - 1) * x_stride + end, states + (into * before + j) * row)
    for c in loop(load("i64", count)):
        source, target = x + c * x_stride, y + c * y_stride + before * row
        for i in share(length * channels >> 3, thread, threads):
            store(target + i * 32, load("f32x8", source + i * 32))
        for i in share(length * channels & 7, thread, threads):
            at = (length * channels & -8) * 4 + i * 4
            store(target + at, load("f32", source + at))


def register(F: type[Floats]) -> None:
    """Makes the kernel `conv1d_NAME` of a format; others have no products of float32 columns."""

    @kernel(f"conv1d_{F.name}")
    def conv(a: Traced, thread: Traced, threads: Traced) -> None:
        w, x, x_stride, y, y_stride, rows, K, step, outputs, count = arguments(a, 10)
        scratch, scratch_stride, counter = arguments(a + 80, 3)
        scale = number(a, 13) if F.scaled else None
        tiles, windows = (rows + 15) >> 4, load("i64", count) * outputs
        for i in claim(counter, tiles * ((windows + CHUNK - 1) // CHUNK), threads):
            r, first = i % tiles, i // tiles * CHUNK

            def at(j: Traced, r=r, first=first) -> tuple[Traced, Traced]:
                c, t = (first + j) // outputs, (first + j) % outputs
                return x + c * x_stride + t * step, y + c * y_stride + (t * rows + r * 16) * 4

            columns = Columns(imin(windows - first, CHUNK), at, rows - r * 16, scale)
            product16(F, w + r * (K * F.bytes8 * 2), K, columns, scratch + thread * scratch_stride)


for _format in FORMATS.values():
    if issubclass(_format, Floats):
        register(_format)
