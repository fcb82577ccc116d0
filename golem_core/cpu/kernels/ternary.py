"""Weight types of two bits and less in blocks of 128 with one scale, repacked to two bits.

Products take 8-bit blocks of 32 activations, four of them to a block of weights.
"""

from __future__ import annotations

from golem_core.cpu.formats import FORMATS, Blocks32, copy_half, low_bits, words
from golem_core.cpu.jit import Traced, load, store


class TwoBits(Blocks32):
    """d of 8 rows, then for each 32 features 64 bytes: bits 2t and 2t + 1 of the first half for group t of four
    features, of the second half for group 4 + t.  A feature is d * (its bits - 1)."""

    block, bytes8, offset = 128, 272, 1

    @classmethod
    def part(cls, w, b):
        p = w + (b >> 2) * cls.bytes8
        return p, p + 16 + (b & 3) * 64

    @classmethod
    def quants(cls, p):
        for i, q in enumerate(words(p, 2)):
            for t in range(4):
                yield 4 * i + t, low_bits(q, 2 * t, 3)


class PQ2_0(TwoBits):
    name, source_bytes = "PQ2_0", 34

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source, target, row)
        for i in range(8):
            store(target + 16 + 32 * i + row * 4, transpose(load("i32", source + 2 + 4 * i)))


def transpose(x: Traced) -> Traced:
    """Pair of bits j of byte t becomes pair t of byte j."""
    for shift, mask in ((6, 0x00CC00CC), (12, 0x0000F0F0)):
        y = (x ^ (x >> shift)) & mask
        x = x ^ y ^ (y << shift)
    return x


def digits(address: Traced, count: int, n: int) -> Traced:
    """Digit n, 0 to 2, of `count` bytes of five base-3 digits, as an integer with a byte for each."""
    power = (load(f"i8x{count}", address).zext(f"i16x{count}") * 3**n) & 255
    return ((power * 3) >> 8).to(f"i8x{count}").bits(f"i{8 * count}").zext("i32")


class PTQ1_0(TwoBits):
    name, source_bytes = "PTQ1_0", 28

    @classmethod
    def group(cls, source: Traced, g: int) -> Traced:
        """The four features of group g, each in a byte."""
        if g < 20:
            return digits(source + 4 * (g % 4), 4, g // 4)
        if g < 30:
            return digits(source + 16 + 4 * (g % 2), 4, (g - 20) // 2)
        low, high = (digits(source + 24, 2, 2 * (g - 30) + i) for i in range(2))
        return low | (high << 16)

    @classmethod
    def repack(cls, source, target, row):
        copy_half(source + 26, target, row)
        for i in range(8):
            first, *rest = (cls.group(source, 4 * i + t) for t in range(4))
            for t, group in enumerate(rest, 1):
                first = first | (group << (2 * t))
            store(target + 16 + 32 * i + row * 4, first)


FORMATS |= {f.name: f for f in (PQ2_0, PTQ1_0)}
