"""What products decode weights to: bytes of eight rows for a few columns, and tiles of 16 rows for many.

A tile holds a stretch of features once decoded, and multiplies several columns with it.
"""

from __future__ import annotations

from golem_core.cpu.formats import Blocks32, Blocks256, Format
from golem_core.cpu.jit import Traced, Var, broadcast, const, fma, load, loop, shuffle, store, when
from golem_core.cpu.kernels.quantize import Q32, Q256
from golem_core.cpu.target import load_half, maddubs, maddwd, pin, sign

TILE = 1024
"""Features of a decoded tile of quants."""
FLOAT_TILE = 256
"""Features of a decoded tile of floats."""


def zero8() -> Var:
    return Var(const("f32x8", 0))


def four(column: Traced) -> Traced:
    """Four 8-bit activations, the same for eight rows."""
    return broadcast("i8x32", "i32", column)


def pairs(v: Traced) -> Traced:
    """i8x8 or i32x8, a number per row -> i16x16, twice per row."""
    wide = v.to("i32x8") & 0xFFFF
    return (wide | (wide << 16)).bits("i16x16")


def interleave(a: Traced, b: Traced) -> Traced:
    """i8x8 twice -> i16x16: a and b of each row side by side."""
    return shuffle(a, b, [i // 2 + 8 * (i % 2) for i in range(16)]).to("i16x16")


def signed_product(q: Traced, magnitude: Traced, x: Traced) -> Traced:
    return maddubs(magnitude, sign(x, q))


def start32(F: type[Format], address: Traced) -> Traced:
    if F.signed:
        return const("i32x8", 0)
    if not F.offset:
        return const("i16x16", 0)
    stored = broadcast("i16x16", "i32", address)
    return stored.sar(3) if F.offset == 1 else stored


def start256(F: type[Format], address: Traced) -> Traced:
    """What the 16-bit sum of a sub-block starts from; the stored pair sums are times -32."""
    if not F.offset:
        return const("i16x16", 0)
    stored = broadcast("i16x16", "i32", address)
    shift = {32: 0, 16: 1, 8: 2, 4: 3}[F.offset]
    return stored.sar(shift) if shift else stored


def stored_minimums(F: type[Blocks256], p: Traced) -> list[tuple[int, Traced]]:
    """(index of the activations' sums, minimums as i16x16): two sub-blocks of 32 at a time, or one of 16."""
    if F.sub == 32:
        return [(i, interleave(F.minimums(p, 2 * i), F.minimums(p, 2 * i + 1))) for i in range(4)]
    return [(i, pairs(F.minimums(p, i))) for i in range(16)]


def minimum_sums(F: type[Blocks256], x: Traced, K: Traced, b: Traced, i: int) -> Traced:
    if F.sub == 32:
        return broadcast("i16x16", "i32", x + Q256.sums(K) + b * 16 + 4 * i)
    return broadcast("i16x16", "i32", x + Q256.start(K) + b * 64 + 4 * i)


def minimum_unit(F: type[Blocks256]) -> float:
    """What the products of minimums and sums are multiples of: the stored pair sums are times -32."""
    return 1.0 if F.sub == 32 else -1 / 32


# ---------------------------------------------------------------- tiles


def begin(address: Traced, first: Traced) -> Traced:
    """What a tile's sums start from: nothing for the first stretch of features, else what is stored there."""
    v = Var(const("f32x8", 0))
    with when(first.differs(0)):
        v.set(load("f32x8", address))
    return v.get()


class Tile:
    """How 16 rows of a stretch of features lie once decoded, and the product of it with some columns.

    Quants are at `data`: for each group of four features, four bytes of each of 16 rows.  Scales are at
    `side`.  `K` is the width of the whole columns, `k` where the stretch begins in them.
    """

    def __init__(self, F: type[Format], data: Traced, side: Traced):
        self.F, self.data, self.side = F, data, side


class Tile32(Tile):
    """Sides: the scales of 16 rows for each block; after all those, the minimums."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        for b in loop(blocks * (self.F.block >> 5)):
            p, quants = self.F.part(w, b)
            store(self.side + b * 64 + 32 * half, load_half(p))
            if self.F.mins:
                store(self.side + 2 * TILE + b * 64 + 32 * half, load_half(p + 16))
            for g, q in self.F.quants(quants):
                store(self.data + b * 512 + 64 * g + 32 * half, q)

    def product(self, columns, K, k, blocks, y, y_stride):
        F = self.F
        totals = [[Var(begin(y + y_stride * c + 32 * r, k)) for r in range(2)] for c in range(len(columns))]
        first = (k >> 5) * 4
        for b in loop(blocks * (F.block >> 5)):
            at = [x + first + b * 4 for x in columns]
            begun = [start32(F, a + Q32.start(K, F.offset) if F.offset else a) for a in at]
            sums = [[v, v] for v in begun]
            for g in range(8):
                q = [load("i8x32", self.data + b * 512 + 64 * g + 32 * r) for r in range(2)]
                magnitude = [sign(v, v) for v in q] if F.signed else q
                for c, x in enumerate(columns):
                    v = four(x + k + b * 32 + 4 * g)
                    for r in range(2):
                        step = maddwd(signed_product(q[r], magnitude[r], v), 1) if F.signed else maddubs(q[r], v)
                        sums[c][r] = pin(sums[c][r] + step)
            d = [load("f32x8", self.side + b * 64 + 32 * r) for r in range(2)]
            for c, a in enumerate(at):
                scale = broadcast("f32x8", "f32", a + Q32.scale(K))
                for r in range(2):
                    whole = sums[c][r] if F.signed else maddwd(sums[c][r], 1)
                    totals[c][r].set(fma(whole.to("f32x8"), d[r] * scale, totals[c][r]))
            if F.mins:
                for c, a in enumerate(at):
                    total = broadcast("f32x8", "f32", a + Q32.scaled_sum(K))
                    for r in range(2):
                        m = load("f32x8", self.side + 2 * TILE + b * 64 + 32 * r)
                        totals[c][r].set(fma(m, total, totals[c][r]))
        return totals


class Tile256(Tile):
    """Sides of a super-block: d, dmin, then the scales of its sub-blocks, then its minimums, 64 bytes each."""

    @property
    def subs(self) -> int:
        return 256 // self.F.sub

    @property
    def side_bytes(self) -> int:
        minimums = (4 if self.F.sub == 32 else 16) if self.F.mins else 0
        return 64 * (2 + self.subs + minimums)

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        F = self.F
        for b in loop(blocks):
            p, side = w + b * F.bytes8, self.side + b * self.side_bytes + 32 * half
            store(side, load_half(p))
            if F.mins:
                store(side + 64, load_half(p + 16))
                for i, m in stored_minimums(F, p):
                    store(side + 64 * (2 + self.subs + i), m)
            for j in loop(F.steps):
                for s, scale, quants in F.step(p, j):
                    store(side + s * 64 + 128, pairs(scale))
                    for g, q in enumerate(quants):
                        store(self.data + b * 4096 + s * (16 * F.sub) + 64 * g + 32 * half, q)

    def product(self, columns, K, k, blocks, y, y_stride):
        F = self.F
        totals = [[Var(begin(y + y_stride * c + 32 * r, k)) for r in range(2)] for c in range(len(columns))]
        first = k >> 8
        for i in loop(blocks):
            b, side = first + i, self.side + i * self.side_bytes
            weighted = [[Var(const("i32x8", 0)) for _ in range(2)] for _ in columns]
            for s in loop(self.subs):
                starts = [start256(F, x + Q256.start(K) + b * 64 + s * (F.sub // 4)) for x in columns]
                sums = [[v, v] for v in starts]
                scales = [load("i16x16", side + 128 + s * 64 + 32 * r) for r in range(2)]
                for g in range(F.sub // 4):
                    q = [load("i8x32", self.data + i * 4096 + s * (16 * F.sub) + 64 * g + 32 * r) for r in range(2)]
                    magnitude = [sign(v, v) for v in q] if F.signed else q
                    for c, x in enumerate(columns):
                        v = four(x + b * 256 + s * F.sub + 4 * g)
                        for r in range(2):
                            if F.signed:
                                weighted[c][r] += maddwd(signed_product(q[r], magnitude[r], v), scales[r])
                            else:
                                sums[c][r] = pin(sums[c][r] + maddubs(q[r], v))
                if not F.signed:
                    for c in range(len(columns)):
                        for r in range(2):
                            weighted[c][r] += maddwd(sums[c][r], scales[r])
            for c, x in enumerate(columns):
                scale = broadcast("f32x8", "f32", x + Q256.scale(K) + b * 4)
                for r in range(2):
                    d = load("f32x8", side + 32 * r)
                    totals[c][r].set(fma(weighted[c][r].to("f32x8"), d * scale, totals[c][r]))
                if F.mins:
                    count = 4 if F.sub == 32 else 16
                    for r in range(2):
                        minimum = const("i32x8", 0)
                        for i_min in range(count):
                            m = load("i16x16", side + 64 * (2 + self.subs + i_min) + 32 * r)
                            minimum = minimum + maddwd(m, minimum_sums(F, x, K, b, i_min))
                        dmin = load("f32x8", side + 64 + 32 * r)
                        totals[c][r] -= minimum.to("f32x8") * (dmin * scale * minimum_unit(F))
        return totals


class TileFloat(Tile):
    """float32, for each feature 16 rows."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        for b in loop(blocks):
            store(self.data + b * 64 + 32 * half, self.F.load8(w + b * self.F.bytes8))

    def product(self, columns, K, k, blocks, y, y_stride):
        totals = [[Var(begin(y + y_stride * c + 32 * r, k)) for r in range(2)] for c in range(len(columns))]
        for b in loop(blocks):
            w = [load("f32x8", self.data + b * 64 + 32 * r) for r in range(2)]
            for c, x in enumerate(columns):
                v = broadcast("f32x8", "f32", x + (k + b) * 4)
                for r in range(2):
                    totals[c][r].set(fma(w[r], v, totals[c][r]))
        return totals


def tile_of(F: type[Format]) -> tuple[type[Tile], int, int]:
    """(tile class, features of a stretch, bytes of its data)."""
    if issubclass(F, Blocks32):
        return Tile32, TILE, 16 * TILE
    if issubclass(F, Blocks256):
        return Tile256, TILE, 16 * TILE
    return TileFloat, FLOAT_TILE, 64 * FLOAT_TILE
