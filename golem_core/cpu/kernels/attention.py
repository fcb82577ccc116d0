"""Attention over cells: rows (a query head of a column each) go through tiles of 64 positions, a few rows at a time.

Softmax is done in powers of two with a running maximum that is a whole number, so that scaling what has been added up
so far rounds nothing.  What a row results in follows from the row and its cells alone, whichever rows go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, log2

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    both,
    claim,
    const,
    fma,
    hmax,
    hsum,
    imax,
    imin,
    load,
    loop,
    number,
    prefetch,
    repeat_while,
    select,
    splat,
    store,
    value,
    vmax,
    when,
)
from golem_core.cpu.kernels.cells import KINDS, RING_WORDS, Ring
from golem_core.cpu.kernels.elementwise import capped, each
from golem_core.cpu.kernels.scores import MOST, SCORES, TILE, TOGETHER, Bytes, Floats, Halves, Room
from golem_core.cpu.library import kernel
from golem_core.cpu.target import rint

ROWS = 48
"""Rows that go through the tiles together where there are as many: each tile is fetched once for them."""
PIECES = 4
"""Pieces of work for each thread, at least, before that many rows go together."""
MASKED, LOWEST = -1e30, -1e20
"""The score of a position that is not seen, and a maximum above it but below every score."""


def exp2(x: Traced, coefficients: tuple[float, ...]) -> Traced:
    """2^x for x < 127, 0 below -100; the polynomial is the best relative fit on half a unit that gives 2^0 = 1."""
    n = rint(x)
    r = x - n
    p = const(x.type, coefficients[0])
    for c in coefficients[1:]:
        p = fma(p, r, const(x.type, c))
    y = (p.bits("i32x8") + (n.to("i32x8") << 23)).bits("f32x8")
    return select(x < -100.0, const("f32x8", 0), y)


def power(n: Traced) -> Traced:
    """2^n for a whole number n <= 127 in float32, 0 below -126."""
    return ((vmax(n, const("f32", -127)).to("i32") + 127) << 23).bits("f32")


def ceil(x: Traced) -> Traced:
    n = rint(x)
    return select(n < x, n + 1.0, n)


def softmax(kind: Floats | Halves | Bytes, room: Room, row: Traced, m: Traced, tile: Traced, cap: Traced) -> None:
    """Turns the scores of row `row`, the m-th of those at hand, into weights, and moves its maximum and total on."""
    scores = [room.scores + m * (4 * TILE) + 4 * at for at in range(0, TILE, 8)]
    low, high = (load("i64", fact + row * 8) - tile for fact in (room.low, room.high))
    with when(cap > 0.0):
        for score in scores:
            store(score, capped(load("f32x8", score), cap * log2(e)))
    with when(both(low <= 0, high >= TILE).equals(0)):
        below, above = (imin(imax(x, 0), TILE).to("i32") for x in (low, high))
        for i, score in enumerate(scores):
            at = const("i32x8", range(8 * i, 8 * i + 8))
            seen = both(at >= splat(below, 8), at < splat(above, 8))
            store(score, select(seen, load("f32x8", score), MASKED))
    shifted = [kind.shifted(room, 8 * i, load("f32x8", score)) for i, score in enumerate(scores)]
    top = shifted[0]
    for x in shifted[1:]:
        top = vmax(top, x)
    highest = ceil(vmax(hmax(top), const("f32", LOWEST)))
    before = load("f32", room.top + row * 4)
    now = vmax(before, highest)
    store(room.top + row * 4, now)
    carry, gain = power(before - now), power(highest - now - float(kind.shift))
    store(room.carry + m * 4, carry)
    store(room.gain + m * 4, gain)
    total = const("f32x8", 0)
    offset = splat(const("f32", kind.shift) - highest, 8)
    for i, x in enumerate(shifted):
        total = total + kind.weigh(room, m, 8 * i, exp2(x + offset, kind.coefficients))
    at = room.total + row * 4
    store(at, fma(load("f32", at), carry, hsum(total) * gain))


class Rows:
    """The rows that a thread takes through the tiles together: their queries, and which positions each sees."""

    def __init__(self, kind: Floats | Halves | Bytes, room: Room):
        self.kind, self.room = kind, room
        self.count, self.first, self.last = Var(value(0)), Var(value(1 << 60)), Var(value(0))

    def add(self, query: Traced, given: Traced, scale: Traced, low: Traced, high: Traced) -> None:
        room, row = self.room, self.count.get()
        self.kind.query(room, row, query, given, scale)
        self.clear(row, low, high)
        self.first.set(imin(self.first.get(), low))
        self.last.set(imax(self.last.get(), high))
        self.count += 1

    def clear(self, row: Traced, low: Traced, high: Traced) -> None:
        room = self.room
        for i in loop(0, room.dim * 4, 32):
            store(room.sum(row) + i, const("f32x8", 0))
        store(room.low + row * 8, low)
        store(room.high + row * 8, high)
        store(room.top + row * 4, const("f32", LOWEST))
        store(room.total + row * 4, const("f32", 0))

    def attend(
        self, keys: Traced, values: Traced, block: Callable[[Traced], Traced], size: Traced, cap: Traced
    ) -> None:
        """`block(position)`: the byte offset of the block of 16 positions from there on, which has `size` bytes."""
        kind, room, count = self.kind, self.room, self.count.get()
        self.clear(count, value(0), value(0))  # one more, that sees nothing: five rows are done as six
        for tile in loop(self.first & -TILE, self.last, TILE):
            blocks = imin(TILE // 16, (self.last - tile + 15) >> 4)
            for b in loop(blocks):
                store(room.blocks + b * 8, block(tile + b * 16))
                for line in loop(0, size, 64):  # while keys are met
                    prefetch(values + room.of_block(b) + line)
            kind.prepare(room, values, blocks)
            for row in loop(0, count, TOGETHER[0]):
                left = count - row
                for rows in TOGETHER:
                    with when(left > TOGETHER[1] if rows == TOGETHER[0] else left.equals(rows)):
                        kind.scores(room, row, rows, keys, blocks)
                        for m in loop(rows):
                            softmax(kind, room, row + m, m, tile, cap)
                        kind.values(room, row, rows, values, blocks)

    def write(self, row: Traced, out: Traced, given: Traced) -> None:
        source = self.room.sum(row)
        inverse = const("f32", 1) / load("f32", self.room.total + row * 4)
        each(given, lambda at, t: store(out + at, load(t, source + at) * inverse))


def heads_together(heads: Traced, group: Traced, n: Traced, threads: Traced) -> Traced:
    """Query heads of one key head that go together: as many as leave something for every thread."""
    chosen = Var(imin(group, MOST))

    def unfit() -> Traced:
        too_many = (n * (heads // chosen) < threads).zext("i64") | (group % chosen).differs(0).zext("i64")
        return both(chosen > 1, too_many.differs(0))

    repeat_while(unfit, lambda: chosen.set(chosen - 1))
    return chosen.get()


def stretches(slot: Traced, first: Traced, stop: Traced, body: Callable[[Traced, Traced], None]) -> None:
    """body(start, end) for each stretch of rows of one slot in first...stop."""
    start = Var(first)

    def stretch() -> None:
        begin = start.get()
        end, own = Var(begin + 1), load("i64", slot + begin * 8)

        def same() -> Traced:
            return both(end < stop, load("i64", slot + imin(end.get(), stop - 1) * 8).equals(own))

        repeat_while(same, lambda: end.set(end + 1))
        body(begin, end.get())
        start.set(end)

    repeat_while(lambda: start < stop, stretch)


def each_piece(heads, kv_heads, n, slot, counter, threads, body) -> None:
    """body(first head, heads, first row, last row) for pieces of work: heads of one key head, rows of one slot."""
    together = heads_together(heads, heads // kv_heads, n, threads)
    units = heads // together
    columns = imax(1, imin(value(ROWS) // together, n * units // (threads * PIECES)))
    pieces = (n + columns - 1) // columns
    for i in claim(counter, pieces * units, threads):
        first = (pieces - 1 - i // units) * columns  # the last columns see most and come first
        head = i % units * together
        stretches(slot, first, imin(first + columns, n), lambda a, b, head=head: body(head, together, a, b))


def attend(name: str) -> None:
    """`attend_{name}`: attention over a ring, up to the last visible position of a column."""

    @kernel(f"attend_{name}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        q, q_stride, *words = arguments(a, 2 + RING_WORDS)
        out, out_stride, position, slot, heads, kv_heads, dim, window, count = arguments(a + 64, 9)
        scratch, scratch_stride, counter, seen = arguments(a + 136, 4)
        scale, cap = number(a, 21), number(a, 22)
        room = Room(scratch + thread * scratch_stride, dim)
        ring = Ring(name, dim, words)

        def piece(head: Traced, together: Traced, first: Traced, stop: Traced) -> None:
            rows = Rows(SCORES[name], room)
            for c in loop(first, stop):
                at, end = load("i64", position + c * 8), load("i64", seen + c * 8) + 1
                low = select(at >= window, at + 1 - window, 0)
                for h in loop(head, head + together):
                    rows.add(q + c * q_stride + h * dim * 4, dim, scale, low, end)
            own, of = load("i64", slot + first * 8), head // (heads // kv_heads)
            rows.attend(ring.keys, ring.values, lambda at: ring.block(own, of, at), ring.size, cap)
            for c in loop(first, stop):
                for h in loop(together):
                    rows.write((c - first) * together + h, out + c * out_stride + (head + h) * dim * 4, dim)

        each_piece(heads, kv_heads, load("i64", count), slot, counter, threads, piece)


@kernel("attend_columns")
def attend_columns(a: Traced, thread: Traced, threads: Traced) -> None:
    """Attention over what `pack_columns` has laid out; a position is a column's place in its run."""
    q, q_stride, keys, values, head_bytes, out, out_stride, slot, index, first, end, aligned = arguments(a, 12)
    heads, kv_heads, dim, padded, window, count, scratch, scratch_stride, counter = arguments(a + 96, 9)
    scale = number(a, 21)
    room = Room(scratch + thread * scratch_stride, padded)
    size = padded * 64

    def piece(head: Traced, together: Traced, begin: Traced, stop: Traced) -> None:
        rows = Rows(SCORES["f32"], room)
        start = load("i64", first + begin * 8)
        n = load("i64", end + begin * 8) - start
        for c in loop(begin, stop):
            at = load("i64", index + c * 8) - start
            low, high = imax(at - window, 0), imin(at + window + 1, n)
            for h in loop(head, head + together):
                rows.add(q + c * q_stride + h * dim * 4, dim, scale, low, high)
        base = head // (heads // kv_heads) * head_bytes + (load("i64", aligned + begin * 8) >> 4) * size
        last = n - 1  # what a tile has beyond the run is not seen, and not read either
        rows.attend(keys, values, lambda p: base + (imin(p, last) >> 4) * size, size, const("f32", 0))
        for c in loop(begin, stop):
            for h in loop(together):
                rows.write((c - begin) * together + h, out + c * out_stride + (head + h) * dim * 4, dim)

    each_piece(heads, kv_heads, load("i64", count), slot, counter, threads, piece)


for _kind in KINDS:
    attend(_kind)
