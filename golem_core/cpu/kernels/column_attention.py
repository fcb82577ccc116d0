"""Attention over the columns of a text that lie in the pass itself, in both directions: no cache, float32."""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    claim,
    const,
    fma,
    hsum,
    imax,
    imin,
    load,
    loop,
    number,
    store,
    vmax,
)
from golem_core.cpu.kernels.elementwise import each, exp
from golem_core.cpu.library import kernel


def dot(x: Traced, y: Traced, n: Traced) -> Traced:
    total = Var(const("f32x8", 0))
    for i in loop(n >> 3):
        total.set(fma(load("f32x8", x + i * 32), load("f32x8", y + i * 32), total))
    rest = Var(const("f32", 0))
    for i in loop(n & -8, n):
        rest += load("f32", x + i * 4) * load("f32", y + i * 4)
    return hsum(total.get()) + rest


@kernel("attend_columns")
def attend_columns(a: Traced, thread: Traced, threads: Traced) -> None:
    q, q_stride, k, k_stride, v, v_stride, y, y_stride, index, first, end, heads, kv_heads, dim = arguments(a, 14)
    window, count, scratch, scratch_stride, counter = arguments(a + 112, 5)
    scale = number(a, 19)
    room = scratch + thread * scratch_stride
    for i in claim(counter, heads * load("i64", count), threads):
        row, h = i // heads, i % heads
        at = load("i64", index + row * 8)
        low = imax(load("i64", first + row * 8), at - window)
        high = imin(load("i64", end + row * 8), at + window + 1)
        own, head = q + row * q_stride + h * dim * 4, (h * kv_heads // heads) * dim * 4
        top = Var(const("f32", -1e30))
        for c in loop(low, high):
            score = dot(own, k + c * k_stride + head, dim) * scale
            top.set(vmax(top.get(), score))
            store(room + (c - low) * 4, score)
        total = Var(const("f32", 0))
        for c in loop(low, high):
            p = exp(load("f32", room + (c - low) * 4) - top)
            total += p
            store(room + (c - low) * 4, p)
        inverse = const("f32", 1) / total.get()

        def body(part: Traced, t: str, row=row, h=h, low=low, high=high, head=head, inverse=inverse) -> None:
            out = Var(const(t, 0))
            for c in loop(low, high):
                p = load("f32", room + (c - low) * 4)
                out.set(fma(load(t, v + c * v_stride + head + part), const(t, 1.0) * p, out))
            store(y + row * y_stride + h * dim * 4 + part, out * inverse)

        each(dim, body)
