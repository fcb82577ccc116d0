"""Products of bytes: groups of four summed into 32-bit lanes, by whatever instructions the target has for it.

`dot4` is the primitive.  Where it is one instruction (`vpdpbusd`, `sdot`), the sum of a block of features is a chain
of them.  Elsewhere sums of pairs are kept in 16 bits, two to a lane, and moved to 32 bits before they can overflow:
`vpmaddubsw` and `vpmaddwd` with AVX2, widening multiplications on any other processor.  All give the same integers.

Quants are unsigned bytes up to 128, or signed ones; activations are -127...127.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from golem_core.cpu.jit import Traced, broadcast, call, const, select, shuffle, tracer
from golem_core.cpu.target import pin

BIAS = 128
"""Added to signed quants where the instruction takes unsigned bytes on that side."""


class Quants(Protocol):
    """What has to be known of the quants of a weight type."""

    offset: ClassVar[int]
    largest: ClassVar[int]
    signed: ClassVar[bool]


def lanes_of(x: Traced) -> int:
    """32-bit lanes of a vector."""
    element = x.type.element
    return x.type.count * element.width // 32


def halves(x: Traced) -> tuple[Traced, Traced]:
    n = x.type.count // 2
    return shuffle(x, x, range(n)), shuffle(x, x, range(n, 2 * n))


def join(a: Traced, b: Traced) -> Traced:
    return shuffle(a, b, range(2 * a.type.count))


# ---------------------------------------------------------------- instructions


def maddubs(u: Traced, s: Traced) -> Traced:
    """Unsigned by signed bytes, sums of neighbours -> 16-bit lanes.  No sum may exceed 16 bits."""
    n = lanes_of(u)
    if tracer.target.avx2 and n == 8:
        return call("llvm.x86.avx2.pmadd.ub.sw", "i16x16", u, s)
    return pair_sums(u.zext(f"i16x{4 * n}") * s.to(f"i16x{4 * n}"))


def pair_sums(p: Traced) -> Traced:
    n = p.type.count
    return shuffle(p, p, range(0, n, 2)) + shuffle(p, p, range(1, n, 2))


def maddwd(x: Traced, y: Traced | int) -> Traced:
    """Products of 16-bit lanes, sums of neighbours -> 32-bit lanes."""
    y = y if isinstance(y, Traced) else const(x.type, y)
    n = lanes_of(x)
    if tracer.target.avx2 and n == 8:
        return call("llvm.x86.avx2.pmadd.wd", "i32x8", x, y)
    if tracer.target.lanes == 16 and n == 16:
        return call("llvm.x86.avx512.pmaddw.d.512", "i32x16", x, y)
    return pair_sums(x.to(f"i32x{2 * n}") * y.to(f"i32x{2 * n}"))


def sign(x: Traced, y: Traced) -> Traced:
    """x with the sign of y, 0 where y is 0, bytes."""
    if tracer.target.avx2 and x.type.count == 32:
        return call("llvm.x86.avx2.psign.b", "i8x32", x, y)
    zero = const(x.type, 0)
    return select(y < 0, zero - x, select(y.equals(0), zero, x))


def dot4(sums: Traced, u: Traced, s: Traced) -> Traced:
    """sums + the products of each lane's four bytes of u, 0...128 (0...127 on Arm), and s, -127...127; 32-bit lanes."""
    target, n = tracer.target, sums.type.count
    if target.vnni:
        words = (x.bits(f"i32x{n}") for x in (u, s))
        return call(f"llvm.x86.avx512.vpdpbusd.{32 * n}", sums.type, sums, *words)
    if target.dotprod:
        if n > 4:
            parts = zip(halves(sums), halves(u), halves(s), strict=True)
            return join(*(dot4(*part) for part in parts))
        return call("llvm.aarch64.neon.sdot.v4i32.v16i8", sums.type, sums, u, s)
    return sums + maddwd(maddubs(u, s), 1)


# ---------------------------------------------------------------- the sum of a block


def encode(F: type[Quants], q: Traced) -> Traced:
    """Decoded quants as sums take them; done once for any number of columns."""
    return q ^ -BIAS if F.signed and tracer.target.vnni else q


def offset(F: type[Quants]) -> int:
    """What encoded quants have in excess; their sum starts from -offset * sum(x)."""
    return BIAS if F.signed and tracer.target.vnni else F.offset


def start(F: type[Quants], address: Traced, stored: int, lanes: int) -> Traced | None:
    """What a sum starts from; at `address` are the block's two pair sums of activations times -`stored`, as i16."""
    wanted = offset(F)
    if not wanted:
        return None
    pairs = broadcast(f"i16x{2 * lanes}", "i32", address)
    if wanted < stored:
        pairs = pairs.sar((stored // wanted).bit_length() - 1)
    return maddwd(pairs, max(1, wanted // stored)) if tracer.target.dots else pairs


def scales(s: Traced) -> Traced:
    """i8 scales, one to a lane -> what sums are weighted with, as many 32-bit lanes."""
    n = s.type.count
    wide = s.to(f"i32x{n}")
    if tracer.target.dots:
        return wide
    wide = wide & 0xFFFF
    return (wide | (wide << 16)).bits(f"i16x{2 * n}")


def scale_kind() -> str:
    """The lanes of what `scales` returns."""
    return "i32" if tracer.target.dots else "i16"


class Sum:
    """The sum over a block's groups of four, of one column, for each lane's row; times `scale` if there is one."""

    def __init__(self, F: type[Quants], begin: Traced | None = None, scale: Traced | None = None):
        self.F, self.scale = F, scale
        self.sum, self.total = begin, None
        # from an offset's start the last sum provably fits into 16 bits, and earlier ones may wrap
        self.most = 1 << 30 if F.offset else max(1, 0x7FFF // (2 * 127 * F.largest))
        self.count = 0

    def add(self, q: Traced, x: Traced) -> None:
        """One group: encoded quants, activations."""
        if tracer.target.dots:
            begin = const(f"i32x{lanes_of(q)}", 0) if self.sum is None else self.sum
            self.sum = dot4(begin, q, x)
            return
        if self.count == self.most:
            self.widen()
        step = self.product(q, x)
        step = step if self.sum is None else self.sum + step
        self.sum = step if self.most == 1 else pin(step)
        self.count += 1

    def product(self, q: Traced, x: Traced) -> Traced:
        if not self.F.signed:
            return maddubs(q, x)
        if tracer.target.avx2:
            return maddubs(sign(q, q), sign(x, q))
        wide = f"i16x{q.type.count}"
        return pair_sums(q.to(wide) * x.to(wide))

    def widen(self) -> None:
        assert self.sum is not None
        part = maddwd(self.sum, 1 if self.scale is None else self.scale)
        total = part if self.total is None else self.total + part
        self.total = pin(total) if self.scale is None else total
        self.sum, self.count = None, 0

    def result(self) -> Traced:
        """32-bit lanes."""
        if tracer.target.dots:
            assert self.sum is not None
            return self.sum if self.scale is None else self.sum * self.scale
        self.widen()
        assert self.total is not None
        return self.total
