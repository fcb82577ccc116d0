"""How rows meet a tile of cells: scores of queries with keys, and weighted sums of values, for each kind of cells.

A row's query lies in the thread's room in the form that its kind of keys wants; scores come out as powers of two.
"""

from __future__ import annotations

from math import e, log2

from golem_core.cpu.dots import maddwd
from golem_core.cpu.jit import Traced, Var, broadcast, const, fma, load, loop, store, value
from golem_core.cpu.kernels.cells import LENGTH, fraction, largest, length, whole
from golem_core.cpu.target import load_half, pin, rint, round_half

TILE = 64
"""Positions that are done together."""
TOGETHER = (6, 4, 3, 2, 1)
"""Rows whose sums stay in registers."""
MOST = 64
"""Rows that a thread has room for."""
PARTS = 16
"""Scales that a query may have: one for every 32 components of a q8_0 head."""


class Room:
    """A thread's scratch memory: queries, sums and facts of `MOST` rows, and scores of a few of them with a tile."""

    def __init__(self, at: Traced, dim: Traced):
        self.dim = dim
        self.queries = at
        self.sums = at + dim * (4 * MOST)
        self.scales = self.sums + dim * (4 * MOST)
        self.low = self.scales + 4 * PARTS * MOST
        self.high = self.low + 8 * MOST
        self.top = self.high + 8 * MOST
        self.total = self.top + 4 * MOST
        self.scores = self.total + 4 * MOST
        self.weights = self.scores + 4 * TILE * TOGETHER[0]
        self.exponents = self.weights + 4 * TILE * TOGETHER[0]
        self.inverses = self.exponents + 4 * TILE
        self.carry = self.inverses + 4 * TILE
        self.gain = self.carry + 64
        self.blocks = self.gain + 64

    def query(self, row: Traced) -> Traced:
        return self.queries + row * (self.dim * 4)

    def sum(self, row: Traced) -> Traced:
        return self.sums + row * (self.dim * 4)

    def of_block(self, b: Traced) -> Traced:
        """Byte offset of block b of the tile, among keys and among values."""
        return load("i64", self.blocks + b * 8)


def room_bytes(dim: int) -> int:
    """Bytes of a room for heads of `dim` components."""
    return dim * 8 * MOST + (4 * PARTS + 24) * MOST + 8 * TILE * (TOGETHER[0] + 1) + 192


def grid(rows: int, t: str) -> list[list[Var]]:
    return [[Var(const(t, 0)) for _ in range(2)] for _ in range(rows)]


def splat8(address: Traced) -> Traced:
    return broadcast("f32x8", "f32", address)


def add_up(room: Room, row: Traced, at: Traced, sums: list[list[Traced]]) -> None:
    """What a tile adds to 16 components of the rows: sum = sum * carry + gain * new."""
    for m, both in enumerate(sums):
        for u, new in enumerate(both):
            target = room.sum(row + m) + at + 32 * u
            store(target, fma(load("f32x8", target), splat8(room.carry + 4 * m), new * splat8(room.gain + 4 * m)))


class Floats:
    """f32: everything is float32."""

    shift = 0
    coefficients = (1.326472725e-03, 9.671512786e-03, 5.550733744e-02, 2.402224208e-01, 6.931469776e-01, 1.0)

    def query(self, room: Room, row: Traced, source: Traced, given: Traced, scale: Traced) -> None:
        target = room.query(row)
        for i in loop(given):
            store(target + i * 4, load("f32", source + i * 4) * (scale * log2(e)))
        for i in loop(given, room.dim):
            store(target + i * 4, const("f32", 0))

    def prepare(self, room: Room, values: Traced, blocks: Traced) -> None:
        """What all rows want to know of a tile, of which `blocks` blocks are used."""

    def scores(self, room: Room, row: Traced, rows: int, keys: Traced, blocks: Traced) -> None:
        queries = [room.query(row + m) for m in range(rows)]
        for b in loop(blocks):
            lines, sums = keys + room.of_block(b), grid(rows, "f32x8")
            for d in loop(0, room.dim, 4):
                for i in range(4):
                    line = [load("f32x8", lines + d * 64 + 64 * i + 32 * u) for u in range(2)]
                    for m in range(rows):
                        x = splat8(queries[m] + d * 4 + 4 * i)
                        for u in range(2):
                            sums[m][u].set(fma(x, line[u], sums[m][u]))
            for m in range(rows):
                for u in range(2):
                    store(room.scores + b * 64 + 4 * TILE * m + 32 * u, sums[m][u].get())

    def shifted(self, room: Room, at: int, x: Traced) -> Traced:
        """A score as the softmax of this kind takes it."""
        return x

    def weigh(self, room: Room, row: Traced, at: int, p: Traced) -> Traced:
        """Keeps what eight positions weigh and returns their probabilities."""
        store(room.scores + row * (4 * TILE) + 4 * at, p)
        return p

    def values(self, room: Room, row: Traced, rows: int, values: Traced, blocks: Traced) -> None:
        for d in loop(room.dim >> 4):
            sums = grid(rows, "f32x8")
            for b in loop(blocks):
                lines, weights = values + room.of_block(b) + d * 64, room.scores + b * 64
                for k in loop(0, 16, 4):
                    for i in range(4):
                        line = [load("f32x8", lines + (k + i) * (room.dim * 4) + 32 * u) for u in range(2)]
                        for m in range(rows):
                            x = splat8(weights + k * 4 + 4 * i + 4 * TILE * m)
                            for u in range(2):
                                sums[m][u].set(fma(x, line[u], sums[m][u]))
            add_up(room, row, d * 64, [[s.get() for s in both] for both in sums])


class Halves:
    """f16: whole numbers of 16 bits.  What a position weighs has its value's scale in it and is below 2^12, so that a
    tile's sum with values below 2^13 stays in 32 bits."""

    shift = 12
    coefficients = (9.582853236e-03, 5.590642594e-02, 2.402409862e-01, 6.931241933e-01, 1.0)

    def query(self, room: Room, row: Traced, source: Traced, given: Traced, scale: Traced) -> None:
        target, size = room.query(row), length(source, given)
        factor = fraction(const("f32", LENGTH), size)
        for i in loop(given >> 3):
            store(target + i * 16, whole(load("f32x8", source + i * 32), factor, "i16x8"))
        store(room.scales + row * (4 * PARTS), size * (scale * (log2(e) / LENGTH)))

    def prepare(self, room: Room, values: Traced, blocks: Traced) -> None:
        for b in loop(blocks):
            scales = values + room.of_block(b) + room.dim * 32
            for u in range(2):
                power = load("i32x8", scales + 32 * u) & 0x7F800000
                at = b * 64 + 32 * u
                store(room.exponents + at, ((power >> 23) - 127).to("f32x8"))
                store(room.inverses + at, (const("i32x8", 254 << 23) - power).bits("f32x8"))
        for b in loop(blocks, TILE // 16):  # of positions that nobody sees
            for u in range(2):
                for each in (room.exponents, room.inverses):
                    store(each + b * 64 + 32 * u, const("f32x8", 0))

    def scores(self, room: Room, row: Traced, rows: int, keys: Traced, blocks: Traced) -> None:
        queries = [room.query(row + m) for m in range(rows)]
        for b in loop(blocks):
            lines, sums = keys + room.of_block(b), grid(rows, "i32x8")
            for j in loop(0, room.dim >> 1, 4):
                for i in range(4):
                    line = [load("i16x16", lines + j * 64 + 64 * i + 32 * u) for u in range(2)]
                    for m in range(rows):
                        x = broadcast("i16x16", "i32", queries[m] + j * 4 + 4 * i)
                        for u in range(2):
                            sums[m][u].set(pin(sums[m][u] + maddwd(line[u], x)))
            scales = [load("f32x8", lines + room.dim * 32 + 32 * u) for u in range(2)]
            for m in range(rows):
                scale = splat8(room.scales + (row + m) * (4 * PARTS))
                for u in range(2):
                    score = sums[m][u].to("f32x8") * (scales[u] * scale)
                    store(room.scores + b * 64 + 4 * TILE * m + 32 * u, score)

    def shifted(self, room: Room, at: int, x: Traced) -> Traced:
        return x + load("f32x8", room.exponents + 4 * at)

    def weigh(self, room: Room, row: Traced, at: int, p: Traced) -> Traced:
        """Positions k and k + 8 lie side by side, as the values do."""
        target = room.weights + row * (2 * TILE) + (at >> 4) * 32
        n = rint(p).to("i32x8")
        store(target, load("i32x8", target) | (n << 16) if at & 8 else n)
        return p * load("f32x8", room.inverses + 4 * at)

    def values(self, room: Room, row: Traced, rows: int, values: Traced, blocks: Traced) -> None:
        for d in loop(room.dim >> 4):
            sums = grid(rows, "i32x8")
            for b in loop(blocks):
                lines, weights = values + room.of_block(b) + d * 64, room.weights + b * 32
                for j in range(8):
                    line = [load("i16x16", lines + room.dim * (4 * j) + 32 * u) for u in range(2)]
                    for m in range(rows):
                        x = broadcast("i16x16", "i32", weights + 4 * j + 2 * TILE * m)
                        for u in range(2):
                            sums[m][u].set(pin(sums[m][u] + maddwd(line[u], x)))
            add_up(room, row, d * 64, [[s.to("f32x8") for s in both] for both in sums])


class Bytes:
    """q8_0: keys meet queries that are quantized the same way, values are widened to float32 in registers."""

    shift = 0
    coefficients = Halves.coefficients

    def query(self, room: Room, row: Traced, source: Traced, given: Traced, scale: Traced) -> None:
        target = room.query(row)
        for b in loop(given >> 5):
            top = largest(source + b * 128, value(32))
            factor = fraction(const("f32", 127), top)
            for i in range(4):
                numbers = whole(load("f32x8", source + b * 128 + 32 * i), factor, "i16x8")
                store(target + b * 64 + 16 * i, numbers)
            store(room.scales + row * (4 * PARTS) + b * 4, round_half(top * (1 / 127)) * (scale * log2(e)))

    def prepare(self, room: Room, values: Traced, blocks: Traced) -> None:
        pass

    def scores(self, room: Room, row: Traced, rows: int, keys: Traced, blocks: Traced) -> None:
        queries = [room.query(row + m) for m in range(rows)]
        for b in loop(blocks):
            lines, target = keys + room.of_block(b), room.scores + b * 64
            for m in range(rows):
                for u in range(2):
                    store(target + 4 * TILE * m + 32 * u, const("f32x8", 0))
            for part in loop(room.dim >> 5):
                sums = grid(rows, "i32x8")
                for j in loop(0, 16, 4):
                    for i in range(4):
                        at = lines + part * 512 + j * 32 + 32 * i
                        line = [load("i8x16", at + 16 * u).to("i16x16") for u in range(2)]
                        for m in range(rows):
                            x = broadcast("i16x16", "i32", queries[m] + part * 64 + j * 4 + 4 * i)
                            for u in range(2):
                                sums[m][u].set(pin(sums[m][u] + maddwd(line[u], x)))
                scales = [load_half(lines + room.dim * 16 + part * 32 + 16 * u) for u in range(2)]
                for m in range(rows):
                    scale = splat8(room.scales + (row + m) * (4 * PARTS) + part * 4)
                    for u in range(2):
                        score = target + 4 * TILE * m + 32 * u
                        store(score, fma(sums[m][u].to("f32x8"), scales[u] * scale, load("f32x8", score)))

    def shifted(self, room: Room, at: int, x: Traced) -> Traced:
        return x

    def weigh(self, room: Room, row: Traced, at: int, p: Traced) -> Traced:
        store(room.scores + row * (4 * TILE) + 4 * at, p)
        return p

    def values(self, room: Room, row: Traced, rows: int, values: Traced, blocks: Traced) -> None:
        for part in loop(room.dim >> 5):
            for b in loop(blocks):
                scales = values + room.of_block(b) + room.dim * 16 + part * 32
                for u in range(2):
                    scale = load_half(scales + 16 * u)
                    for m in range(rows):
                        at = b * 64 + 4 * TILE * m + 32 * u
                        store(room.weights + at, load("f32x8", room.scores + at) * scale)
            for d in range(2):
                sums = grid(rows, "f32x8")
                for b in loop(blocks):
                    lines, weights = values + room.of_block(b) + part * 32 + 16 * d, room.weights + b * 64
                    for k in loop(0, 16, 4):
                        for i in range(4):
                            at = lines + (k + i) * room.dim
                            line = [load("i8x8", at + 8 * u).to("i32x8").to("f32x8") for u in range(2)]
                            for m in range(rows):
                                x = splat8(weights + k * 4 + 4 * i + 4 * TILE * m)
                                for u in range(2):
                                    sums[m][u].set(fma(x, line[u], sums[m][u]))
                add_up(room, row, part * 128 + 64 * d, [[s.get() for s in both] for both in sums])


SCORES: dict[str, Floats | Halves | Bytes] = {"f16": Halves(), "f32": Floats(), "q8_0": Bytes()}
