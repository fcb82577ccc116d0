"""8-bit blocks of activations, the forms "q32" and "q256" that quantized products read.

A column of K features takes `stride(K)` bytes:

  q32   i8 q[K] | f32 d[K/32]  | f32 d*sum(q)[K/32] | i16 pair sums times -8 [K/32][2] | the same times -16
  q256  i8 q[K] | f32 d[K/256] | i16 sum(q)[K/32]   | i16 pair sums times -32 [K/16][2]

Scales are max|x| / 127, quants rounded to the nearest, halves to even; scales and scaled sums of q32 are rounded to
float16, as ggml stores them.  The pair sums of a block are those of bytes 0 and 1, and of bytes 2 and 3, of its groups
of four; they start the 16-bit sums of formats with an offset.
"""

from __future__ import annotations

import numpy as np

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    const,
    hmax,
    hsum,
    load,
    loop,
    select,
    share,
    shuffle,
    store,
    vmax,
)
from golem_core.cpu.library import kernel
from golem_core.cpu.target import rint, round_half

BLOCK = {"q32": 32, "q256": 256}


def stride(features: int) -> int:
    """Bytes of one quantized column of `features` features, either form."""
    return -(-features * 3 // 2 // 64) * 64 + 64


class Q32:
    """Byte offsets of the parts of a q32 column, relative to block b's own bytes at b * 32."""

    @staticmethod
    def scale(K: Traced) -> Traced:
        return K

    @staticmethod
    def scaled_sum(K: Traced) -> Traced:
        return K + (K >> 3)

    @staticmethod
    def start(K: Traced, offset: int) -> Traced:
        """An offset of 1 takes the sums times -8."""
        return K + (K >> 3) * {1: 2, 8: 2, 16: 3}[offset]


class Q256:
    @staticmethod
    def scale(K: Traced) -> Traced:
        return K

    @staticmethod
    def sums(K: Traced) -> Traced:
        return K + (K >> 6)

    @staticmethod
    def start(K: Traced) -> Traced:
        return K + (K >> 6) + (K >> 4)


def pack(low: Traced, high: Traced) -> Traced:
    return (low & 0xFFFF) | (high << 16)


def pair_sums(q: Traced) -> tuple[Traced, Traced]:
    """i32x8 of two groups of four -> the sums over bytes 0 and 1, and over bytes 2 and 3."""
    return hsum(shuffle(q, q, (0, 1, 4, 5))), hsum(shuffle(q, q, (2, 3, 6, 7)))


def inverse(maximum: Traced) -> Traced:
    return select(maximum > 0.0, const("f32", 127) / maximum, 0.0)


def magnitude(x: Traced) -> Traced:
    """The bits of |x|, which order as whole numbers do, with NaN above everything: a NaN becomes the block's scale."""
    return x.bits("i32x8") & 0x7FFFFFFF


def quantize32(source: Traced, column: Traced, K: Traced, b: Traced) -> None:
    """The 32 floats at `source` become block b of a q32 column."""
    v = [load("f32x8", source + 32 * i) for i in range(4)]
    m = [magnitude(x) for x in v]
    top = hmax(vmax(vmax(m[0], m[1]), vmax(m[2], m[3]))).bits("f32")
    d, factor = top * (1 / 127), inverse(top)
    q = [rint(x * factor).to("i32x8") for x in v]
    for i in range(4):
        store(column + b * 32 + 8 * i, q[i].to("i8x8"))
    even, odd = pair_sums(q[0] + q[1] + q[2] + q[3])
    at = column + b * 4
    store(at + Q32.scale(K), round_half(d))
    store(at + Q32.scaled_sum(K), round_half(d * (even + odd).to("f32")))
    for offset in (8, 16):
        store(at + Q32.start(K, offset), pack(even * -offset, odd * -offset))


def quantize256(source: Traced, column: Traced, K: Traced, b: Traced) -> None:
    """The 256 floats at `source` become super-block b of a q256 column."""
    largest = Var(const("i32x8", 0))
    for i in loop(32):
        largest.set(vmax(largest, magnitude(load("f32x8", source + i * 32))))
    top = hmax(largest.get()).bits("f32")
    factor = inverse(top)
    store(column + Q256.scale(K) + b * 4, top * (1 / 127))
    sums, start = column + Q256.sums(K) + b * 16, column + Q256.start(K) + b * 64
    for i in loop(8):
        total = const("i32", 0)
        for half in range(2):
            v = [load("f32x8", source + i * 128 + 64 * half + 32 * k) for k in range(2)]
            q = [rint(x * factor).to("i32x8") for x in v]
            for k in range(2):
                store(column + b * 256 + i * 32 + 16 * half + 8 * k, q[k].to("i8x8"))
            even, odd = pair_sums(q[0] + q[1])
            store(start + i * 8 + 4 * half, pack(even * -32, odd * -32))
            total = total + even + odd
        store(sums + i * 2, total.to("i16"))


QUANTIZE = {"q32": quantize32, "q256": quantize256}


def register(form: str) -> None:
    block = BLOCK[form]

    @kernel(f"quantize_{form}")
    def quantize(a: Traced, thread: Traced, threads: Traced) -> None:
        # a row is `parts` columns of K features, each quantized for itself
        x, x_stride, y, y_stride, K, part_stride, parts, count = arguments(a, 8)
        blocks = K // block
        for i in share(blocks * parts * load("i64", count), thread, threads):
            column, b = i // blocks, i % blocks
            c, part = column // parts, column % parts
            source = x + c * x_stride + (part * K + b * block) * 4
            QUANTIZE[form](source, y + c * y_stride + part * part_stride, K, b)


for _form in BLOCK:
    register(_form)


def rounded(form: str, x: np.ndarray) -> np.ndarray:
    """What a product in `form` sees of activations x (..., K) float32: the meaning of the kernels above, in numpy."""
    if form not in BLOCK:
        return x
    blocks = x.reshape(-1, BLOCK[form])
    top = np.abs(blocks).max(1, keepdims=True)
    factor = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    scale = top * np.float32(1 / 127)
    if form == "q32":
        scale = scale.astype(np.float16).astype(np.float32)
    return (np.rint(blocks * factor) * scale).reshape(x.shape)
