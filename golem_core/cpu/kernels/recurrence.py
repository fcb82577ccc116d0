"""Ops that go through the columns of a conversation in order: short convolutions, and the gated delta rule.

The threads share the features of a state, which never meet, and each goes through every stretch of columns alone.  A
stretch finds its state in one share and leaves it in another, which may be the same.
"""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    broadcast,
    const,
    fma,
    load,
    loop,
    number,
    share,
    store,
    when,
)
from golem_core.cpu.kernels.elementwise import exp
from golem_core.cpu.library import kernel


def stretches(source: Traced, into: Traced, first: Traced, length: Traced, count: Traced):
    """(share it begins with, share it ends with, first column, columns) of every stretch of columns; none is empty."""
    for r in loop(load("i64", count)):
        yield tuple(load("i64", fact + r * 8) for fact in (source, into, first, length))


TAPS = range(2, 9)
"""Of the convolutions that there are kernels for."""


def causal_conv1d(taps: int, biased: bool) -> None:
    """Weights are (taps, features), a window (taps - 1, features).  The columns under the taps stay in registers."""

    @kernel(f"causal_conv1d_{taps}" + ("_biased" if biased else ""))
    def conv(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, w, bias, y, y_stride, windows, features = arguments(a, 8)
        facts = arguments(a + 64, 5)
        row = features * 4

        def convolve(at: Traced, t: str, vectors: int) -> None:
            places = [at + 32 * u for u in range(vectors)]
            weights = [[load(t, w + j * row + p) for j in range(taps)] for p in places]
            first_terms = [load(t, bias + p) if biased else const(t, 0) for p in places]
            for source, into, first, n in stretches(*facts):
                before, window = (windows + each * (taps - 1) * row for each in (source, into))
                past = [[Var(load(t, before + j * row + p)) for j in range(taps - 1)] for p in places]
                for c in loop(first, first + n):
                    for p, kept, factors, total in zip(places, past, weights, first_terms, strict=True):
                        line = [each.get() for each in kept] + [load(t, x + c * x_stride + p)]
                        for value, factor in zip(line, factors, strict=True):
                            total = fma(factor, value, total)
                        store(y + c * y_stride + p, total)
                        for each, value in zip(kept, line[1:], strict=True):
                            each.set(value)
                for p, kept in zip(places, past, strict=True):
                    for j, each in enumerate(kept):
                        store(window + j * row + p, each.get())

        for i in share(features >> 4, thread, threads):  # whole lines of cache: columns lie far apart
            convolve(i * 64, "f32x8", 2)
        with when(thread.equals(0)):
            for i in loop(features & -16, features):
                convolve(i * 4, "f32", 1)


for _taps in TAPS:
    causal_conv1d(_taps, False)
    causal_conv1d(_taps, True)

LANES = (32, 16, 8)
"""Value components that one thread goes through at a time, by preference."""


def add_row(sums: list[Var], factor: Traced, row: Traced) -> None:
    """Adds the vectors at `row`, times the number at `factor`, to the sums."""
    by = broadcast("f32x8", "f32", factor)
    for u, total in enumerate(sums):
        total.set(fma(by, load("f32x8", row + 32 * u), total))


def delta_net(lanes: int) -> None:
    """`delta_net_{lanes}`: through every run, for so many of a head's value components at a time.

    A head's matrix lies as [dv/lanes][dk][lanes], so that what one thread goes through stays in its nearest cache.
    """
    vectors = range(lanes // 8)

    @kernel(f"delta_net_{lanes}")
    def net(a: Traced, thread: Traced, threads: Traced) -> None:
        q, q_stride, k, k_stride, v, v_stride, decay, decay_stride, beta, beta_stride, y, y_stride = arguments(a, 12)
        states, key_heads, heads, dk, dv, *facts = arguments(a + 96, 10)
        scale = number(a, 22)
        blocks = dv // lanes
        for unit in share(heads * blocks, thread, threads):
            h, d = unit // blocks, unit % blocks * lanes
            key_at, value_at = h % key_heads * dk * 4, (h * dv + d) * 4
            for source, into, first, n in stretches(*facts):
                before = Var(states + ((source * heads + h) * dv + d) * dk * 4)
                matrix = states + ((into * heads + h) * dv + d) * dk * 4
                for c in loop(first, first + n):
                    held = before.get()
                    keys, queries = k + c * k_stride + key_at, q + c * q_stride + key_at
                    kept = exp(load("f32", decay + c * decay_stride + h * 4))
                    share_of = load("f32", beta + c * beta_stride + h * 4)
                    # two sums of everything: a single one would wait for itself
                    sums = [[Var(const("f32x8", 0)) for _ in vectors] for _ in range(2)]
                    even = dk & -2
                    for i in loop(0, even, 2):
                        for at, each in enumerate(sums):
                            add_row(each, keys + (i + at) * 4, held + (i + at) * (4 * lanes))
                    for i in loop(even, dk):
                        add_row(sums[0], keys + i * 4, held + i * (4 * lanes))
                    known = [one + other for one, other in zip(*sums, strict=True)]
                    delta = [
                        (load("f32x8", v + c * v_stride + value_at + 32 * u) - known[u] * kept) * share_of
                        for u in vectors
                    ]
                    found = [Var(const("f32x8", 0)) for _ in vectors]
                    for i in loop(dk):
                        key = broadcast("f32x8", "f32", keys + i * 4)
                        query = broadcast("f32x8", "f32", queries + i * 4)
                        for u in vectors:
                            at = i * (4 * lanes) + 32 * u
                            s = fma(key, delta[u], load("f32x8", held + at) * kept)
                            store(matrix + at, s)
                            found[u].set(fma(query, s, found[u]))
                    for u in vectors:
                        store(y + c * y_stride + value_at + 32 * u, found[u] * scale)
                    before.set(matrix)


for _lanes in LANES:
    delta_net(_lanes)
