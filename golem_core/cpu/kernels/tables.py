"""Rows of an embedding table, read from where the file is mapped: nothing of a table is kept a second time.

A block of a row is put in its place among eight rows, as for products, and what their generators make of it is read
from the first lane.  So every format that has products has its table.
"""

from __future__ import annotations

from collections.abc import Callable

from golem_core.cpu.formats import Blocks32, Blocks256, Floats, Format
from golem_core.cpu.jit import Traced, arguments, load, loop, number, share, shuffle, store, value, vmax, vmin, when
from golem_core.cpu.library import kernel
from golem_core.cpu.target import load_half


def first_lane(x: Traced, lanes: int = 4) -> Traced:
    """The first row's number, `lanes` times."""
    return shuffle(x, x, [0] * lanes)


def quants(F: type[Format], q: Traced) -> Traced:
    """Four features of the first row -> f32x4."""
    four = shuffle(q, q, range(4))
    return (four if F.signed else four.zext("i32x4")).to("f32x4") - float(F.offset)


def row_32(F: type[Blocks32], w: Traced, y: Traced) -> None:
    for b in range(F.block // 32):
        p, at = F.part(w, value(b))
        d, m = first_lane(load_half(p)), first_lane(load_half(p + 16)) if F.mins else None
        for g, q in F.quants(at):
            v = quants(F, q) * d
            store(y + 128 * b + 16 * g, v if m is None else v + m)


def row_256(F: type[Blocks256], w: Traced, y: Traced) -> None:
    d = first_lane(load_half(w))
    for j in loop(F.steps):
        for s, scale, groups in F.step(w, j):
            unit = first_lane(scale).to("f32x4") * d
            minimum = first_lane(F.minimums(w, s)).to("f32x4") * first_lane(load_half(w + 16)) if F.mins else None
            for g, q in enumerate(groups):
                v = quants(F, q) * unit
                store(y + s * (4 * F.sub) + 16 * g, v if minimum is None else v - minimum)


def row_float(F: type[Floats], row: Traced, y: Traced, K: Traced, room: Traced, scale: Traced | None) -> None:
    """Eight features at a time; a row's end goes through `room`, 64 bytes: behind the table's is the end of the file,
    and behind `y`'s may be another row."""

    def numbers(p: Traced) -> Traced:
        return F.load8(p) if scale is None else F.load8(p) * scale

    whole = K & -8
    for k in loop(0, whole, 8):
        store(y + k * 4, numbers(row + k * F.source_bytes))
    with when(whole < K):
        for i in loop((K - whole) * F.source_bytes):
            store(room + i, load("i8", row + whole * F.source_bytes + i))
        store(room + 32, numbers(room))
        for i in loop(whole, K):
            store(y + i * 4, load("f32", room + 32 + (i - whole) * 4))


def rows(
    F: type[Format],
    count: Traced,
    row: Callable[[Traced], tuple[Traced, Traced]],
    K: Traced,
    room: Traced,
    thread: Traced,
    threads: Traced,
    scale: Traced | None,
) -> None:
    """Decodes `count` rows of K entries; `row(i)` is where the row lies and where it goes."""
    if issubclass(F, Floats):
        for i in share(count, thread, threads):
            row_float(F, *row(i), K, room, scale)
        return
    blocks = K // F.block
    for i in share(count * blocks, thread, threads):
        (source, target), b = row(i // blocks), i % blocks
        F.repack(source + b * F.source_bytes, room, value(0))
        decode = row_32 if issubclass(F, Blocks32) else row_256
        decode(F, room, target + b * (4 * F.block))


def register(F: type[Format]) -> None:
    """Makes the kernels `embed_NAME` and `table_rows_NAME` of a format: the rows of tokens or
    positions, or of ids, float32."""
    scaled = issubclass(F, Floats) and F.scaled

    @kernel(f"embed_{F.name}")
    def embed(a: Traced, thread: Traced, threads: Traced) -> None:
        table, ids, y, y_stride, entries, K, count, scratch, scratch_stride = arguments(a, 9)

        def row(c: Traced) -> tuple[Traced, Traced]:
            chosen = vmin(load("i64", ids + c * 8), entries - 1)
            return table + chosen * (K // F.block * F.source_bytes), y + c * y_stride

        scale = number(a, 9) if scaled else None
        rows(F, load("i64", count), row, K, scratch + thread * scratch_stride, thread, threads, scale)

    @kernel(f"table_rows_{F.name}")
    def table_rows(a: Traced, thread: Traced, threads: Traced) -> None:
        table, ids, ids_stride, y, y_stride, entries, K, n, count, scratch, scratch_stride = arguments(a, 11)

        def row(i: Traced) -> tuple[Traced, Traced]:
            c, k = i // n, i % n
            chosen = vmin(vmax(load("f32", ids + c * ids_stride + k * 4).to("i64"), 0), entries - 1)
            return table + chosen * (K // F.block * F.source_bytes), y + c * y_stride + k * K * 4

        scale = number(a, 11) if scaled else None
        rows(F, load("i64", count) * n, row, K, scratch + thread * scratch_stride, thread, threads, scale)
