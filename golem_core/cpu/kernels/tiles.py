"""What products decode weights to: bytes of eight rows for a few columns, and tiles of 16 rows for many.

A tile holds a stretch of features once decoded, and multiplies several columns with it.
"""

from __future__ import annotations

from typing import ClassVar

from golem_core.cpu import dots
from golem_core.cpu.dots import maddwd
from golem_core.cpu.formats import Blocks256, Format
from golem_core.cpu.jit import (
    Traced,
    Var,
    broadcast,
    const,
    fma,
    load,
    loop,
    prefetch,
    shuffle,
    splat,
    store,
    tracer,
    when,
)
from golem_core.cpu.kernels.quantize import Q32, Q256
from golem_core.cpu.target import load_half, pin

TILE = 1024
"""Features of a decoded tile of quants."""
WORDS_TILE = 640
"""The same of one whose quants are widened to 16 bits: with scales and activations it fits into the first cache."""
AHEAD = 4096
"""Bytes that the software prefetch of weights runs ahead; hides more latency than the hardware's own."""


def fetch(p: Traced, size: int, ahead: int | Traced | None = None) -> None:
    """Fetches what lies `ahead` bytes (default: `AHEAD`) behind `size` bytes at p."""
    p = p + (AHEAD if ahead is None else ahead)
    for i in range(0, size, 64):
        prefetch(p + i)


def zeros(lanes: int = 8) -> Var:
    return Var(const(f"f32x{lanes}", 0))


def pairs(v: Traced) -> Traced:
    """i8x8, a number per row -> i16x16, twice per row."""
    wide = v.to("i32x8") & 0xFFFF
    return (wide | (wide << 16)).bits("i16x16")


def widened(q: Traced) -> tuple[Traced, Traced]:
    """Bytes, four to a 32-bit lane -> their bytes 0 and 2, and their bytes 1 and 3, as 16-bit lanes."""
    words = q.bits(f"i16x{q.type.count // 2}")
    return (words << 8).sar(8), words.sar(8)


def interleave(a: Traced, b: Traced) -> Traced:
    """i8x8 twice -> i16x16: a and b of each row side by side."""
    return shuffle(a, b, [i // 2 + 8 * (i % 2) for i in range(16)]).to("i16x16")


def start32(F: type[Format], at: Traced, K: Traced, lanes: int = 8) -> Traced | None:
    """What the sum of block b of a column starts from; `at` is b * 4 into the column."""
    stored = 16 if F.offset == 16 else 8
    return dots.start(F, at + Q32.start(K, stored), stored, lanes)


def start256(F: type[Blocks256], x: Traced, K: Traced, b: Traced, s: Traced, lanes: int = 8) -> Traced | None:
    """The same for sub-block s of super-block b."""
    if F.sub == 16 or not dots.offset(F):
        return dots.start(F, x + Q256.start(K) + b * 64 + s * 4, 32, lanes)
    total = load("i16", x + Q256.sums(K) + b * 16 + s * 2).to("i32") * -dots.offset(F)
    return splat(total, lanes)


def stored_minimums(F: type[Blocks256], p: Traced) -> list[tuple[int, Traced]]:
    """(index of the activations' sums, minimums as i16x16): two sub-blocks of 32 at a time, or one of 16."""
    if F.sub == 32:
        return [(i, interleave(F.minimums(p, 2 * i), F.minimums(p, 2 * i + 1))) for i in range(4)]
    return [(i, pairs(F.minimums(p, i))) for i in range(16)]


def minimum_sums(F: type[Blocks256], x: Traced, K: Traced, b: Traced, i: int, lanes: int = 8) -> Traced:
    at = x + Q256.sums(K) + b * 16 if F.sub == 32 else x + Q256.start(K) + b * 64
    return broadcast(f"i16x{2 * lanes}", "i32", at + 4 * i)


def minimum_unit(F: type[Blocks256]) -> float:
    """What the products of minimums and sums are multiples of: the stored pair sums are times -32."""
    return 1.0 if F.sub == 32 else -1 / 32


# ---------------------------------------------------------------- tiles


class Tile:
    """How 16 rows of a stretch of features lie once decoded, and the product of it with some columns.

    Quants are at `data`: for each step of `dots.features()`, so many bytes of each of 16 rows.  Scales are at
    `side`.  `K` is the width of the whole columns, `k` where the stretch begins in them.
    """

    data_bytes: ClassVar[int] = 16 * TILE
    """Where `side` begins in the memory of a tile."""

    def __init__(self, F: type[Format], room: Traced):
        self.F, self.data, self.side = F, room, room + self.data_bytes
        self.lanes = tracer.target.lanes
        self.parts = [4 * self.lanes * r for r in range(16 // self.lanes)]
        """Byte offsets of the vectors that make up 16 rows of 32-bit numbers."""

    def vectors(self, kind: str, address: Traced) -> list[Traced]:
        """What lies at `address` for 16 rows, 32 bits each, in lanes of type `kind`."""
        count = self.lanes * 32 // int(kind[1:])
        return [load(f"{kind}x{count}", address + r) for r in self.parts]

    def begin(self, y: Traced, first: Traced) -> list[Var]:
        """What a column's sums start from: nothing for the first stretch of features, else what is stored there."""
        totals = [zeros(self.lanes) for _ in self.parts]
        with when(first.differs(0)):
            for total, v in zip(totals, self.vectors("f32", y), strict=True):
                total.set(v)
        return totals

    def broadcast(self, address: Traced) -> Traced:
        """One float32, the same for every row."""
        return broadcast(f"f32x{self.lanes}", "f32", address)


class Tile32(Tile):
    """Sides: the scales of 16 rows for each block; after all those, the minimums."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        for b in loop(blocks * (self.F.block >> 5)):
            p, quants = self.F.part(w, b)
            store(self.side + b * 64 + 32 * half, load_half(p))
            if self.F.mins:
                store(self.side + 2 * TILE + b * 64 + 32 * half, load_half(p + 16))
            for n, q in dots.arranged(self.F, self.F.quants(quants)):
                store(self.data + b * 512 + (16 * n + 8 * half) * dots.features(), q)

    def product(self, columns, K, k, blocks, y, y_stride):
        F = self.F
        totals = [self.begin(y + y_stride * c, k) for c in range(len(columns))]
        first = (k >> 5) * 4
        for b in loop(blocks * (F.block >> 5)):
            at = [x + first + b * 4 for x in columns]
            sums = dots.sums_of(F, [start32(F, a, K, self.lanes) for a in at], [None] * len(self.parts))
            for i in range(0, 32, dots.features()):
                sums.add(self.data + b * 512 + 16 * i, [x + k + b * 32 + i for x in columns])
            d = self.vectors("f32", self.side + b * 64)
            for c, a in enumerate(at):
                scale = self.broadcast(a + Q32.scale(K))
                for r, total in enumerate(totals[c]):
                    total.set(fma(sums.result(c, r).to(d[r].type), d[r] * scale, total))
            if F.mins:
                for c, a in enumerate(at):
                    scaled = self.broadcast(a + Q32.scaled_sum(K))
                    minimums = self.vectors("f32", self.side + 2 * TILE + b * 64)
                    for m, total in zip(minimums, totals[c], strict=True):
                        total.set(fma(m, scaled, total))
        return totals


class TileWords(Tile32):
    """Signed quants, widened to 16 bits: with AVX2 signed bytes would need their signs moved for every column.

    Of each group of four features lie first the pairs of features 0 and 2 of 16 rows, then those of 1 and 3.  The
    activations of a column are widened in the same order, behind the scales.
    """

    data_bytes = 32 * WORDS_TILE

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        for b in loop(blocks):
            p, quants = self.F.part(w, b)
            store(self.side + b * 64 + 32 * half, load_half(p))
            for g, q in self.F.quants(quants):
                for i, pairs_of in enumerate(widened(q)):
                    store(self.data + b * 1024 + 128 * g + 64 * i + 32 * half, pairs_of)

    def product(self, columns, K, k, blocks, y, y_stride):
        totals = [self.begin(y + y_stride * c, k) for c in range(len(columns))]
        first, words = (k >> 5) * 4, self.side + 2 * WORDS_TILE
        for b in loop(blocks):
            for c, x in enumerate(columns):
                for i, pairs_of in enumerate(widened(load("i8x32", x + k + b * 32))):
                    store(words + (b * len(columns) + c) * 64 + 32 * i, pairs_of)
        for b in loop(blocks):
            sums = [[Var(const(f"i32x{self.lanes}", 0)) for _ in self.parts] for _ in columns]
            for g in range(8):
                for i in range(2):
                    quants = self.vectors("i16", self.data + b * 1024 + 128 * g + 64 * i)
                    for c in range(len(columns)):
                        at = words + (b * len(columns) + c) * 64 + 32 * i + 4 * g
                        v = broadcast(f"i16x{2 * self.lanes}", "i32", at)
                        for r, q in enumerate(quants):
                            sums[c][r].set(pin(sums[c][r] + maddwd(q, v)))
            d = self.vectors("f32", self.side + b * 64)
            for c, x in enumerate(columns):
                scale = self.broadcast(x + first + b * 4 + Q32.scale(K))
                for r, total in enumerate(totals[c]):
                    total.set(fma(sums[c][r].to(d[r].type), d[r] * scale, total))
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
                    store(side + s * 64 + 128, dots.scales(scale))
                    for n, q in dots.arranged(F, enumerate(quants)):
                        store(self.data + b * 4096 + s * (16 * F.sub) + (16 * n + 8 * half) * dots.features(), q)

    def product(self, columns, K, k, blocks, y, y_stride):
        F = self.F
        totals = [self.begin(y + y_stride * c, k) for c in range(len(columns))]
        first = k >> 8
        for i in loop(blocks):
            b, side = first + i, self.side + i * self.side_bytes
            weighted = [[Var(const(f"i32x{self.lanes}", 0)) for _ in self.parts] for _ in columns]
            for s in loop(self.subs):
                starts = [start256(F, x, K, b, s, self.lanes) for x in columns]
                scales = self.vectors(dots.scale_kind(), side + 128 + s * 64)
                sums = dots.sums_of(F, starts, scales)
                rows, at = self.data + i * 4096 + s * (16 * F.sub), [x + b * 256 + s * F.sub for x in columns]
                for n in range(0, F.sub, dots.features()):
                    sums.add(rows + 16 * n, [a + n for a in at])
                for c, column in enumerate(weighted):
                    for r, total in enumerate(column):
                        total += sums.result(c, r)
            for c, x in enumerate(columns):
                scale = self.broadcast(x + Q256.scale(K) + b * 4)
                d = self.vectors("f32", side)
                for r, total in enumerate(totals[c]):
                    total.set(fma(weighted[c][r].to(d[r].type), d[r] * scale, total))
                if F.mins:
                    minimums = [const(f"i32x{self.lanes}", 0) for _ in self.parts]
                    for n in range(4 if F.sub == 32 else 16):
                        x_sums = minimum_sums(F, x, K, b, n, self.lanes)
                        for r, m in enumerate(self.vectors("i16", side + 64 * (2 + self.subs + n))):
                            minimums[r] = minimums[r] + maddwd(m, x_sums)
                    dmin = self.vectors("f32", side + 64)
                    for r, total in enumerate(totals[c]):
                        total -= minimums[r].to(d[r].type) * (dmin[r] * scale * minimum_unit(F))
        return totals
