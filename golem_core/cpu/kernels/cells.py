"""How keys and values lie in memory, and how they get there.

A head's share is a row of blocks of 16 positions, keys apart from values.  Of each kind of cells a block holds

  f32   keys [dim][16] and values [16][dim], float32;
  f16   keys i16 [dim/2][16][2] and values i16 [8][dim][2] (positions k and k + 8 side by side), then 16 float32 scales.
        Every position of a head has a scale of its own: a key's length becomes 32760, so that no product of two of them
        leaves 32 bits; a value's largest component lies between 4096 and 8192 and its scale is a power of two;
  q8_0  keys i8 [dim/2][16][2] and values i8 [16][dim], then float16 scales [dim/32][16]: max|x| / 127 for every 32
        components of a position, as ggml's Q8_0 has them.
"""

from __future__ import annotations

from golem_core.cpu import jit
from golem_core.cpu.jit import Traced, Var, arguments, const, hmax, hsum, load, loop, number, select, share, store, vmax
from golem_core.cpu.kernels.elementwise import each
from golem_core.cpu.kernels.rotation import name_of, turn
from golem_core.cpu.library import kernel
from golem_core.cpu.target import rint, store_half

KINDS = ("f16", "f32", "q8_0")
LENGTH = 32760.0
"""What the length of a whole-number key or query becomes: less than 2^15, rounding included."""
LARGEST = 8191
"""Most that a whole-number value may be."""
SMALLEST = 2.0**-60
"""The scale of values below which they are not told apart from nothing."""


def block_bytes(kind: str, dim: int | Traced):
    """Bytes of a block of 16 positions of one head, of the keys or of the values."""
    if kind == "f32":
        return dim * 64
    return dim * 32 + 64 if kind == "f16" else dim * 17


def whole(x: Traced, factor: Traced, t: str) -> Traced:
    """x * factor to the nearest whole number, as `t`."""
    return rint(x * factor).to("i32x8").to(t)


def length(x: Traced, n: Traced) -> Traced:
    total = Var(const("f32x8", 0))
    for i in loop(0, n * 4, 32):
        v = load("f32x8", x + i)
        total.set(jit.fma(v, v, total))
    return jit.sqrt(hsum(total.get()))


def largest(x: Traced, n: Traced) -> Traced:
    """The largest magnitude of n floats; NaN and infinity count as larger than any number."""
    top = Var(const("i32x8", 0))
    for i in loop(0, n * 4, 32):
        top.set(vmax(top.get(), load("i32x8", x + i) & 0x7FFFFFFF))
    return hmax(top.get()).bits("f32")


def fraction(x: Traced, y: Traced) -> Traced:
    """x / y, 0 where y is 0."""
    return select(y.equals(0.0), const("f32", 0), x / y)


class Ring:
    """Where the cells of a ring lie, as `golem_core.cpu.rings` lays them out; `words`: its facts in their order."""

    def __init__(self, kind: str, dim: Traced, words: list[Traced]):
        self.keys, self.values, self.length, self.slot_bytes, self.chunk, self.chunk_bytes = words
        self.size = block_bytes(kind, dim)

    def block(self, slot: Traced, head: Traced, position: Traced) -> Traced:
        """The byte offset of the block that a position of a slot's head is in, among keys and among values."""
        at = position % self.length
        chunk = at >> self.chunk
        within = at - (chunk << self.chunk)
        block = (head << (self.chunk - 4)) + (within >> 4)
        return slot * self.slot_bytes + chunk * self.chunk_bytes + block * self.size


RING_WORDS = 6
"""How many words of a kernel's arguments say where a ring lies."""


def store_f32(k: Traced, v: Traced, keys: Traced, values: Traced, dim: Traced, lane: Traced) -> None:
    for d in loop(dim):
        store(keys + d * 64 + lane * 4, load("f32", k + d * 4))
    each(dim, lambda at, t: store(values + lane * dim * 4 + at, load(t, v + at)))


def store_f16(k: Traced, v: Traced, keys: Traced, values: Traced, dim: Traced, lane: Traced) -> None:
    size, top = length(k, dim), largest(v, dim)
    factor = fraction(const("f32", LENGTH), size)
    for i in loop(dim >> 3):
        pairs = whole(load("f32x8", k + i * 32), factor, "i16x8").bits("i32x4")
        for j in range(4):
            store(keys + (i * 4 + j) * 64 + lane * 4, jit.element(pairs, j))
    # a value that is no number must not be lost among the whole ones, so it spoils the key's scale
    store(keys + dim * 32 + lane * 4, size * (1 / LENGTH) + (top - top))
    # 2^-12 of the largest power of two in `top`
    scale = ((top.bits("i32") & 0x7F800000) - (12 << 23)).bits("f32")
    scale = select(top < SMALLEST * LARGEST, const("f32", SMALLEST), scale)
    inverse = const("f32", 1) / scale
    target = values + (lane & 7) * dim * 4 + (lane >> 3) * 2
    for i in loop(dim >> 3):
        numbers = load("f32x8", v + i * 32) * inverse
        numbers = rint(vmax(jit.vmin(numbers, float(LARGEST)), float(-LARGEST))).to("i32x8").to("i16x8")
        for j in range(8):
            store(target + i * 32 + 4 * j, jit.element(numbers, j))
    store(values + dim * 32 + lane * 4, scale)


def store_q8_0(k: Traced, v: Traced, keys: Traced, values: Traced, dim: Traced, lane: Traced) -> None:
    for b in loop(dim >> 5):
        for x, target in ((k, keys), (v, values)):
            source = x + b * 128
            top = largest(source, jit.value(32))
            store_half(target + dim * 16 + b * 32 + lane * 2, top * (1 / 127))
            factor = fraction(const("f32", 127), top)
            for i in range(4):
                numbers = whole(load("f32x8", source + 32 * i), factor, "i8x8")
                if target is values:
                    store(values + lane * dim + b * 32 + 8 * i, numbers)
                else:
                    pairs = numbers.bits("i16x4")
                    for j in range(4):
                        store(keys + (b * 16 + 4 * i + j) * 32 + lane * 2, jit.element(pairs, j))


STORE = {"f16": store_f16, "f32": store_f32, "q8_0": store_q8_0}


def kv_store(kind: str, pairs: str | None, normed: bool) -> None:
    """`store_{kind}...`: keys, normed and rotated on the way if the name says so, and values into a ring."""

    @kernel(name_of(f"store_{kind}", pairs, normed))
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        k, k_stride, v, v_stride, *words = arguments(a, 4 + RING_WORDS)
        heads, dim, position, slot, count, table, table_stride, half, turned, w = arguments(a + 80, 10)
        scratch, scratch_stride = arguments(a + 160, 2)
        eps, ring = number(a, 22), Ring(kind, dim, words)
        room = scratch + thread * scratch_stride
        for i in share(heads * load("i64", count), thread, threads):
            c, h = i // heads, i % heads
            at = load("i64", position + c * 8)
            base = ring.block(load("i64", slot + c * 8), h, at)
            source = k + c * k_stride + h * dim * 4
            if pairs or normed:
                angles = table + c * table_stride
                turn(source, room, dim, turned, angles, half, pairs or "halves", w if normed else None, eps)
                source = room
            value = v + c * v_stride + h * dim * 4
            STORE[kind](source, value, ring.keys + base, ring.values + base, dim, at & 15)


@kernel("pack_columns")
def pack_columns(a: Traced, thread: Traced, threads: Traced) -> None:
    """Keys and values of a pass as f32 cells; every run starts a new block, and zeros fill its last one up.

    `dim` is the components that a head has, `room` that number rounded up to a multiple of 16.
    """
    k, k_stride, v, v_stride, keys, values, head_bytes, heads, dim, room = arguments(a, 10)
    first, size, aligned, count = arguments(a + 80, 4)
    for i in share(heads * load("i64", count), thread, threads):
        r, h = i // heads, i % heads
        start, n = load("i64", first + r * 8), load("i64", size + r * 8)
        base = h * head_bytes + (load("i64", aligned + r * 8) >> 4) * (room * 64)
        for p in loop((n + 15) & -16):
            lane = base + (p >> 4) * (room * 64)
            key, value = keys + lane + (p & 15) * 4, values + lane + (p & 15) * room * 4
            with jit.when(p < n):
                k_row, v_row = (x + h * dim * 4 for x in (k + (start + p) * k_stride, v + (start + p) * v_stride))
                for d in loop(dim):
                    store(key + d * 64, load("f32", k_row + d * 4))
                each(dim, lambda at, t, row=v_row, to=value: store(to + at, load(t, row + at)))
                fill(key + dim * 64, value + dim * 4, room - dim)
            with jit.when(p >= n):
                fill(key, value, room)


def fill(key: Traced, value: Traced, n: Traced) -> None:
    for d in loop(n):
        store(key + d * 64, const("f32", 0))
        store(value + d * 4, const("f32", 0))


for _kind in KINDS:
    for _pairs in (None, "halves", "neighbours"):
        for _normed in (False, True):
            if _pairs or not _normed:
                kv_store(_kind, _pairs, _normed)
