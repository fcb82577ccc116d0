"""Products of bytes: groups of four summed into 32-bit lanes, by whatever instructions the target has for it.

`dot4` is the primitive.  Where it is one instruction (`vpdpbusd`, `sdot`), the sum of a block of features is a chain
of them.  Elsewhere sums of pairs are kept in 16 bits, two to a lane, and moved to 32 bits before they can overflow:
`vpmaddubsw` and `vpmaddwd` with AVX2, widening multiplications on any other processor.  `smmla` multiplies matrices:
two rows' eight bytes with two columns' eight bytes.  All give the same integers.

Quants are unsigned bytes up to 128, or signed ones; activations are -127...127.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

from golem_core.cpu.jit import Traced, broadcast, call, const, load, select, shuffle, tracer
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


def four(column: Traced, lanes: int = 8) -> Traced:
    """Four 8-bit activations, the same for every lane's row."""
    return broadcast(f"i8x{4 * lanes}", "i32", column)


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


def smmla(sums: Traced, rows: Traced, columns: Traced) -> Traced:
    """sums + the products of two rows and two columns of eight bytes."""
    return call("llvm.aarch64.neon.smmla.v4i32.v16i8", sums.type, sums, rows, columns)


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


# ---------------------------------------------------------------- many columns


def features() -> int:
    """Features that sums of many columns take at once."""
    return 8 if tracer.target.matrices else 4


def arranged(F: type[Quants], groups: Iterable[tuple[int, Traced]]) -> Iterator[tuple[int, Traced]]:
    """Groups of four features by number, decoded quants of eight rows -> steps of `features()`, encoded: first all
    features of the first row, then those of the second."""
    if features() == 4:
        for g, q in groups:
            yield g, encode(F, q)
        return
    encoded = {g: encode(F, q).bits("i32x8") for g, q in groups}
    for step in range(len(encoded) // 2):
        both = shuffle(encoded[2 * step], encoded[2 * step + 1], [i // 2 + 8 * (i % 2) for i in range(16)])
        yield step, both.bits("i8x64")


class Sums:
    """The sums over a block of several columns and 16 rows.

    `begins` are what each column's sums start from, `scales` what those of each vector of rows are multiplied by; None:
    nothing.
    """

    def __init__(self, F: type[Quants], begins: Sequence[Traced | None], scales: Sequence[Traced | None]):
        self.sums = [[Sum(F, begin, scale) for scale in scales] for begin in begins]
        self.row_bytes = 64 // len(scales)

    def add(self, rows: Traced, columns: Sequence[Traced]) -> None:
        """The next features: where the arranged quants of all rows lie, and each column's activations."""
        quants = [load(f"i8x{self.row_bytes}", rows + i) for i in range(0, 64, self.row_bytes)]
        for sums, at in zip(self.sums, columns, strict=True):
            x = four(at, self.row_bytes // 4)
            for each, q in zip(sums, quants, strict=True):
                each.add(q, x)

    def result(self, column: int, part: int) -> Traced:
        """32-bit lanes of one vector of rows."""
        return self.sums[column][part].result()


class MatrixSums:
    """The same by products of matrices.  A register has the sums of two rows and two columns, the first row's first.

    The last of an odd number of columns is multiplied twice.
    """

    def __init__(self, F: type[Quants], begins: Sequence[Traced | None], scales: Sequence[Traced | None]):
        self.begins, self.scales = begins, scales
        self.sums = [[const("i32x4", 0)] * 8 for _ in begins[::2]]

    def add(self, rows: Traced, columns: Sequence[Traced]) -> None:
        quants = [load("i8x16", rows + i) for i in range(0, 128, 16)]
        for number, sums in enumerate(self.sums):
            two = columns[2 * number : 2 * number + 2]
            x = join(load("i8x8", two[0]), load("i8x8", two[-1]))
            self.sums[number] = [smmla(each, q, x) for each, q in zip(sums, quants, strict=True)]

    def result(self, column: int, part: int) -> Traced:
        registers = 8 // len(self.scales)
        parts = self.sums[column // 2][part * registers : (part + 1) * registers]
        while len(parts) > 1:
            parts = [join(*two) for two in zip(parts[::2], parts[1::2], strict=True)]
        total = shuffle(parts[0], parts[0], range(column % 2, parts[0].type.count, 2))
        begin, scale = self.begins[column], self.scales[part]
        total = total if begin is None else total + begin
        return total if scale is None else total * scale


def sums_of(F: type[Quants], begins: Sequence[Traced | None], scales: Sequence[Traced | None]) -> Sums | MatrixSums:
    """`Sums`, by the instructions that the target has."""
    return (MatrixSums if tracer.target.matrices else Sums)(F, begins, scales)
