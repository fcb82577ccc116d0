"""Ops that go through the columns of a conversation in order: short convolutions, and the gated delta rule.

The threads share the features of a state, which never meet, and each goes through every run of columns alone.
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
    select,
    share,
    store,
)
from golem_core.cpu.kernels.elementwise import each_shared, exp
from golem_core.cpu.library import kernel


def runs(slot: Traced, first: Traced, length: Traced, count: Traced):
    """(slot, first column, columns) of every conversation of the pass."""
    for r in loop(load("i64", count)):
        yield load("i64", slot + r * 8), load("i64", first + r * 8), load("i64", length + r * 8)


def causal_conv1d(name: str, biased: bool) -> None:
    """Weights are (taps, features), a window (taps - 1, features): a column that lies before the run is in it."""

    @kernel(name)
    def conv(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, w, bias, y, y_stride, windows, features, taps = arguments(a, 9)
        facts = arguments(a + 72, 4)
        row, kept = features * 4, taps - 1

        def body(at: Traced, t: str) -> None:
            for slot, first, n in runs(*facts):
                window = windows + slot * kept * row + at
                here = x + first * x_stride + at

                def line(i: Traced, window=window, here=here) -> Traced:
                    """Row i - taps + 1 of the run, in the window if negative."""
                    return load(t, select(i < kept, window + i * row, here + (i - kept) * x_stride))

                for c in loop(n):
                    total = Var(load(t, bias + at) if biased else const(t, 0))
                    for j in loop(taps):
                        total.set(fma(load(t, w + j * row + at), line(c + j), total))
                    store(y + (first + c) * y_stride + at, total.get())
                for i in loop(kept):  # ascending, so that nothing is read after it was written
                    store(window + i * row, line(n + i))

        each_shared(features, thread, threads, body)


causal_conv1d("causal_conv1d", False)
causal_conv1d("causal_conv1d_biased", True)

LANES = (32, 16, 8)
"""Value components that one thread goes through at a time, by preference."""


def delta_net(lanes: int) -> None:
    """`delta_net_{lanes}`: so many columns of a head's matrix (dk, dv), through every run."""
    vectors = range(lanes // 8)

    @kernel(f"delta_net_{lanes}")
    def net(a: Traced, thread: Traced, threads: Traced) -> None:
        q, q_stride, k, k_stride, v, v_stride, decay, decay_stride, beta, beta_stride, y, y_stride = arguments(a, 12)
        states, key_heads, heads, dk, dv, *facts = arguments(a + 96, 9)
        scale = number(a, 21)
        blocks = dv // lanes
        for unit in share(heads * blocks, thread, threads):
            h, d = unit // blocks, unit % blocks * lanes
            key_at, value_at = h % key_heads * dk * 4, (h * dv + d) * 4
            for slot, first, n in runs(*facts):
                matrix = states + ((slot * heads + h) * dk * dv + d) * 4
                for c in loop(first, first + n):
                    keys, queries = k + c * k_stride + key_at, q + c * q_stride + key_at
                    kept = exp(load("f32", decay + c * decay_stride + h * 4))
                    share_of = load("f32", beta + c * beta_stride + h * 4)
                    known = [Var(const("f32x8", 0)) for _ in vectors]
                    for i in loop(dk):
                        key = broadcast("f32x8", "f32", keys + i * 4)
                        for u in vectors:
                            known[u].set(fma(key, load("f32x8", matrix + i * dv * 4 + 32 * u), known[u]))
                    delta = [
                        (load("f32x8", v + c * v_stride + value_at + 32 * u) - known[u] * kept) * share_of
                        for u in vectors
                    ]
                    found = [Var(const("f32x8", 0)) for _ in vectors]
                    for i in loop(dk):
                        key = broadcast("f32x8", "f32", keys + i * 4)
                        query = broadcast("f32x8", "f32", queries + i * 4)
                        for u in vectors:
                            at = matrix + i * dv * 4 + 32 * u
                            s = fma(key, delta[u], load("f32x8", at) * kept)
                            store(at, s)
                            found[u].set(fma(query, s, found[u]))
                    for u in vectors:
                        store(y + c * y_stride + value_at + 32 * u, found[u] * scale)


for _lanes in LANES:
    delta_net(_lanes)
