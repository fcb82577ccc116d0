"""How weights lie in memory: a class per type, with its repack and one generator of what products read.

Eight rows are interleaved in units of four bytes, so that each 32-bit lane of a vector is a row and no
sum has to cross lanes.  A format's products take activations in one `form`: "q32" or "q256", 8-bit
blocks of that many features (`quantize.py` has their layout), or "f32".

Quants are bytes that `dots.py` multiplies with activations.  Those with an `offset` are that much too large; the
sum over a block starts from -offset * sum(x).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from golem_core.cpu.jit import Traced, load, loop, store
from golem_core.cpu.target import (
    load_bfloat,
    load_float8,
    load_half,
    lookup16,
    shift_left,
    shift_right,
)

IQ4_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The 16 values of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl)."""


def copy_half(source: Traced, target: Traced, row: Traced) -> None:
    """A row's float16 to its place among eight."""
    store(target + row * 2, load("i16", source))


def copy_words(source: Traced, target: Traced, row: Traced, count: int) -> None:
    """`count` words of a row to their places among eight rows' words."""
    for i in loop(count):
        store(target + i * 32 + row * 4, load("i32", source + i * 4))


def words(address: Traced, count: int) -> list[Traced]:
    return [load("i8x32", address + 32 * i) for i in range(count)]


def low_bits(q: Traced, shift: int, mask: int) -> Traced:
    return (shift_right(q, shift) if shift else q) & mask


class Format:
    """A weight type.  `block` features of a row take `source_bytes` in a file, and `bytes8` for eight rows here."""

    name: ClassVar[str]
    form: ClassVar[str]
    block: ClassVar[int]
    source_bytes: ClassVar[int]
    bytes8: ClassVar[int]
    offset: ClassVar[int] = 0
    mins: ClassVar[bool] = False
    signed: ClassVar[bool] = False
    """Whether quants are signed bytes."""
    largest: ClassVar[int] = 128
    """No quant's magnitude is larger; at most 128."""

    @classmethod
    def repack(cls, source: Traced, target: Traced, row: Traced) -> None:
        """Traces the copy of one block of row `row` (0...7) to its group of eight."""
        raise NotImplementedError


class Blocks32(Format):
    """Blocks of 32 with a float16 scale, and a float16 minimum if `mins`: d of 8 rows, m of 8 rows, quants."""

    form = "q32"
    block = 32

    @classmethod
    def part(cls, w: Traced, b: Traced) -> tuple[Traced, Traced]:
        """Where the scales of 32 features of eight rows lie, and what `quants` takes; `w` is where the rows begin."""
        p = w + b * cls.bytes8
        return p, p

    @classmethod
    def quants(cls, p: Traced) -> Iterator[tuple[int, Traced]]:
        """(group of four features, bytes of eight rows) for every group 0...7."""
        raise NotImplementedError


class Q4_0(Blocks32):
    name, source_bytes, bytes8, offset = "Q4_0", 18, 144, 8

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_words(source + 2, target + 16, row, 4)

    @classmethod
    def quants(cls, p):
        for i, q in enumerate(words(p + 16, 4)):
            yield i, q & 15
            yield i + 4, low_bits(q, 4, 15)


class Q4_1(Blocks32):
    name, source_bytes, bytes8, mins, largest = "Q4_1", 20, 160, True, 15

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_half(source + 2, target + 16, row)
        copy_words(source + 4, target + 32, row, 4)

    @classmethod
    def quants(cls, p):
        yield from Q4_0.quants(p + 16)


def repack_fifth_bits(source: Traced, target: Traced, row: Traced) -> None:
    """Bit 4i + j of a row's word becomes bit i of its byte j."""
    bits = load("i32", source)
    for j in range(4):
        x = (bits >> j) & 0x11111111
        x = (x | (x >> 3)) & 0x03030303
        x = (x | (x >> 6)) & 0x000F000F
        store(target + row * 4 + j, (x | (x >> 12)).to("i8"))


class Q5_0(Blocks32):
    name, source_bytes, bytes8, offset = "Q5_0", 22, 176, 16

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_words(source + 6, target + 16, row, 4)
        repack_fifth_bits(source + 2, target + 144, row)

    @classmethod
    def quants(cls, p):
        high = load("i8x32", p + 144)
        for i, q in enumerate(words(p + 16, 4)):
            yield i, (q & 15) | ((shift_left(high, 4 - i)) & 16)
            yield i + 4, low_bits(q, 4, 15) | ((shift_right(high, i) if i else high) & 16)


class Q5_1(Blocks32):
    name, source_bytes, bytes8, mins, largest = "Q5_1", 24, 192, True, 31

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_half(source + 2, target + 16, row)
        copy_words(source + 8, target + 32, row, 4)
        repack_fifth_bits(source + 4, target + 160, row)

    @classmethod
    def quants(cls, p):
        yield from Q5_0.quants(p + 16)


class Q8_0(Blocks32):
    name, source_bytes, bytes8, signed = "Q8_0", 34, 272, True

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_words(source + 2, target + 16, row, 8)

    @classmethod
    def quants(cls, p):
        yield from enumerate(words(p + 16, 8))


class IQ4_NL(Blocks32):
    name, source_bytes, bytes8, signed = "IQ4_NL", 18, 144, True
    repack = Q4_0.repack

    @classmethod
    def quants(cls, p):
        for i, q in Q4_0.quants(p):
            yield i, lookup16(IQ4_TABLE, q)


# ---------------------------------------------------------------- super-blocks of 256


class Blocks256(Format):
    """Super-blocks of 256 with a float16 scale and `256 / sub` integer scales: d, dmin if `mins`, then the rest.

    `steps` calls of `step` cover a super-block; each gives some sub-blocks of `sub` features as
    (sub-block, scales of eight rows as i8x8, bytes of each group of four features).
    """

    form = "q256"
    block = 256
    sub: ClassVar[int] = 32
    steps: ClassVar[int] = 4

    @classmethod
    def step(cls, p: Traced, j: Traced) -> list[tuple[Traced, Traced, list[Traced]]]:
        raise NotImplementedError

    @classmethod
    def minimums(cls, p: Traced, i: int | Traced) -> Traced:
        """i8x8: the minimums of eight rows for sub-block i."""
        raise NotImplementedError


def repack_k_scales(source: Traced, target: Traced, row: Traced) -> None:
    """The twelve bytes of eight 6-bit scales and minimums -> a byte each, 8 rows apart, the scales first."""
    for i in range(4):
        low, mid, high = (load("i8", source + i + 4 * k) for k in range(3))
        store(target + row + 8 * i, low & 63)
        store(target + row + 8 * (i + 4), (high & 15) | ((low >> 6) << 4))
        store(target + row + 8 * (i + 8), mid & 63)
        store(target + row + 8 * (i + 12), ((high >> 4) & 15) | ((mid >> 6) << 4))


class Q4_K(Blocks256):
    name, source_bytes, bytes8, mins, largest = "Q4_K", 144, 1184, True, 15

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_half(source + 2, target + 16, row)
        repack_k_scales(source + 4, target + 32, row)
        copy_words(source + 16, target + 160, row, 32)

    @classmethod
    def step(cls, p, j):
        q = words(p + 160 + j * 256, 8)
        low, high = [x & 15 for x in q], [low_bits(x, 4, 15) for x in q]
        return [(j * 2, load("i8x8", p + 32 + j * 16), low), (j * 2 + 1, load("i8x8", p + 40 + j * 16), high)]

    @classmethod
    def minimums(cls, p, i):
        return load("i8x8", p + 96 + 8 * i)


class Q5_K(Blocks256):
    name, source_bytes, bytes8, mins, largest = "Q5_K", 176, 1440, True, 31

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        copy_half(source + 2, target + 16, row)
        repack_k_scales(source + 4, target + 32, row)
        copy_words(source + 48, target + 160, row, 32)
        copy_words(source + 16, target + 1184, row, 8)

    @classmethod
    def step(cls, p, j):
        fifth = words(p + 1184, 8)
        out = []
        for k, (i, scale, q) in enumerate(Q4_K.step(p, j)):
            bits = [shift_left(shift_right(h, j * 2 + k) & 1, 4) for h in fifth]
            out.append((i, scale, [x | bit for x, bit in zip(q, bits, strict=True)]))
        return out

    @classmethod
    def minimums(cls, p, i):
        return Q4_K.minimums(p, i)


class Q6_K(Blocks256):
    name, source_bytes, bytes8, offset, sub = "Q6_K", 210, 1680, 32, 16

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source + 208, target, row)
        for i in loop(16):
            store(target + 16 + i * 8 + row, load("i8", source + 192 + i))
        for half in range(2):
            for g in range(2):
                at = target + 144 + 384 * (2 * half + g)
                copy_words(source + 64 * half + 16 * g, at, row, 4)
                copy_words(source + 64 * half + 32 + 16 * g, at + 128, row, 4)
                copy_words(source + 128 + 32 * half + 16 * g, at + 256, row, 4)

    @classmethod
    def step(cls, p, j):
        at = p + 144 + j * 384
        a, b, h = words(at, 4), words(at + 128, 4), words(at + 256, 4)
        quarter = [
            [(x & 15) | (shift_left(y, 4) & 48) for x, y in zip(a, h, strict=True)],
            [(x & 15) | (shift_left(y, 2) & 48) for x, y in zip(b, h, strict=True)],
            [low_bits(x, 4, 15) | (y & 48) for x, y in zip(a, h, strict=True)],
            [low_bits(x, 4, 15) | (shift_right(y, 2) & 48) for x, y in zip(b, h, strict=True)],
        ]
        subs = [(j >> 1) * 8 + (j & 1) + 2 * t for t in range(4)]
        return [(s, load("i8x8", p + 16 + s * 8), q) for s, q in zip(subs, quarter, strict=True)]


def two_bits(p: Traced, j: Traced) -> list[tuple[Traced, list[Traced]]]:
    """Sub-blocks of 16 out of pairs of bits: step j covers half j div 2, and the features 16 (j mod 2) + 32 t."""
    q = words(p + j * 128, 4)
    return [((j >> 1) * 8 + (j & 1) + 2 * t, [low_bits(x, 2 * t, 3) for x in q]) for t in range(4)]


class Q2_K(Blocks256):
    name, source_bytes, bytes8, mins, sub, largest = "Q2_K", 84, 672, True, 16, 3

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source + 80, target, row)
        copy_half(source + 82, target + 16, row)
        for i in loop(16):
            store(target + 32 + i * 8 + row, load("i8", source + i))
        copy_words(source + 16, target + 160, row, 16)

    @classmethod
    def step(cls, p, j):
        return [(s, load("i8x8", p + 32 + s * 8) & 15, q) for s, q in two_bits(p + 160, j)]

    @classmethod
    def minimums(cls, p, i):
        return (load("i8x8", p + 32 + 8 * i) >> 4) & 15


class Q3_K(Blocks256):
    name, source_bytes, bytes8, offset, sub = "Q3_K", 110, 912, 4, 16

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source + 108, target, row)
        for i in range(16):  # 6-bit scales: low nibbles in bytes 0-7, pairs of high bits in bytes 8-11
            low = load("i8", source + 96 + i % 8)
            high = load("i8", source + 104 + i % 4)
            nibble = (low >> 4) & 15 if i >= 8 else low & 15
            store(target + 16 + 8 * i + row, (nibble | (((high >> (2 * (i // 4))) & 3) << 4)) - 32)
        copy_words(source + 32, target + 144, row, 16)
        copy_words(source, target + 656, row, 8)

    @classmethod
    def step(cls, p, j):
        mask = words(p + 656 + (j & 1) * 128, 4)
        out = []
        for t, (s, q) in enumerate(two_bits(p + 144, j)):
            third = [shift_left(shift_right(h, (j >> 1) * 4 + t) & 1, 2) for h in mask]
            out.append((s, load("i8x8", p + 16 + s * 8), [x | bit for x, bit in zip(q, third, strict=True)]))
        return out


class IQ4_XS(Blocks256):
    name, source_bytes, bytes8, signed, steps = "IQ4_XS", 136, 1104, True, 8

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        high = load("i16", source + 2).zext("i32")
        for i in range(8):
            low = load("i8", source + 4 + i // 2).zext("i32") >> (4 * (i % 2))
            store(target + 16 + 8 * i + row, (((low & 15) | (((high >> (2 * i)) & 3) << 4)) - 32).to("i8"))
        copy_words(source + 8, target + 80, row, 32)

    @classmethod
    def step(cls, p, j):
        q = words(p + 80 + j * 128, 4)
        values = [lookup16(IQ4_TABLE, x & 15) for x in q] + [lookup16(IQ4_TABLE, low_bits(x, 4, 15)) for x in q]
        return [(j, load("i8x8", p + 16 + j * 8), values)]


# ---------------------------------------------------------------- floats


class Floats(Format):
    """Numbers as they are, eight rows side by side; products take float32 activations.

    Those that are `scaled` are multiplied by the weight's own scale times `unit`: products multiply their sums by it.
    """

    form = "f32"
    block = 1
    scaled: ClassVar[bool] = False
    unit: ClassVar[float] = 1.0

    @classmethod
    def load8(cls, p: Traced) -> Traced:
        """One feature of eight rows -> f32x8, in units of `unit`."""
        raise NotImplementedError


class F32(Floats):
    name, source_bytes, bytes8 = "F32", 4, 32

    @classmethod
    def repack(cls, source, target, row):
        store(target + row * 4, load("i32", source))

    @classmethod
    def load8(cls, p):
        return load("f32x8", p)


class F16(Floats):
    name, source_bytes, bytes8 = "F16", 2, 16

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)

    @classmethod
    def load8(cls, p):
        return load_half(p)


class BF16(Floats):
    name, source_bytes, bytes8 = "BF16", 2, 16

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)

    @classmethod
    def load8(cls, p):
        return load_bfloat(p)


class F8_E4M3(Floats):
    """Decoded through the bits of float16, whose exponents are 8 larger."""

    name, source_bytes, bytes8, scaled, unit = "F8_E4M3", 1, 8, True, 256.0

    @classmethod
    def repack(cls, source, target, row):
        store(target + row, load("i8", source))

    @classmethod
    def load8(cls, p):
        return load_float8(p)


FORMATS: dict[str, type[Format]] = {
    f.name: f
    for f in (
        Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, F32, F16, BF16, F8_E4M3,
    )
}  # fmt: skip
"""Weight types with kernels, by name; a plugin's own format registers here and with `products.register`."""
