"""Walsh-Hadamard transforms of blocks of a row, by butterflies."""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    const,
    load,
    loop,
    number,
    repeat_while,
    share,
    shuffle,
    store,
    value,
    when_else,
)
from golem_core.cpu.library import kernel


def within(v: Traced, half: int) -> Traced:
    """Butterflies between entries of a vector that are `half` apart: the sum first, then the difference."""
    lanes = range(v.type.count)
    signs = const(v.type, [-1.0 if i & half else 1.0 for i in lanes])
    return shuffle(v, v, [i ^ half for i in lanes]) + v * signs


def between(y: Traced, n: Traced, half: Traced, t: str, size: int) -> None:
    """Butterflies between vectors of `size` entries that lie `half` entries apart, over n entries."""
    for start in loop(0, n, half * 2):
        for i in loop(start, start + half, size):
            first, second = y + i * 4, y + (i + half) * 4
            a, b = load(t, first), load(t, second)
            store(first, a + b)
            store(second, a - b)


@kernel("hadamard")
def hadamard(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, y, y_stride, blocks, n, count = arguments(a, 7)
    scale = number(a, 7)
    for i in share(blocks * load("i64", count), thread, threads):
        c, k = i // blocks, i % blocks
        source, target = x + c * x_stride + k * n * 4, y + c * y_stride + k * n * 4
        half = Var(value(8))
        with when_else(n >= 8) as (whole, small):
            with whole:
                for j in loop(0, n, 8):
                    v = load("f32x8", source + j * 4) * scale
                    for distance in (1, 2, 4):
                        v = within(v, distance)
                    store(target + j * 4, v)
            with small:
                for j in loop(n):
                    store(target + j * 4, load("f32", source + j * 4) * scale)
                half.set(1)
        with when_else(n >= 8) as (whole, small):
            for branch, t, size in ((whole, "f32x8", 8), (small, "f32", 1)):
                with branch:

                    def stage(t: str = t, size: int = size) -> None:
                        between(target, n, half.get(), t, size)
                        half.set(half + half)

                    repeat_while(lambda: half < n, stage)
