"""Mixtures of experts: choosing them, and the weighted sum of what they give.  `order.py` and `products.py` have the
products."""

from __future__ import annotations

from golem_core.cpu.jit import Traced, Var, arguments, const, fma, load, loop, select, share, store, value, when
from golem_core.cpu.kernels.elementwise import each_shared, exp
from golem_core.cpu.library import kernel


@kernel("route")
def route(a: Traced, thread: Traced, threads: Traced) -> None:
    """The largest scores, found one after another; what is found is masked in the thread's scratch copy."""
    x, x_stride, ids, ids_stride, shares, shares_stride, experts, chosen, count = arguments(a, 9)
    scratch, scratch_stride, normalize = arguments(a + 72, 3)
    room = scratch + thread * scratch_stride
    for c in share(load("i64", count), thread, threads):
        for i in loop(experts):
            store(room + i * 4, load("f32", x + c * x_stride + i * 4))
        top = Var(const("f32", 0))
        total = Var(const("f32", 0))
        for k in loop(chosen):
            best, index = Var(const("f32", float("-inf"))), Var(value(-1))
            for i in loop(experts):
                v = load("f32", room + i * 4)
                with when(v > best):
                    best.set(v)
                    index.set(i)
            with when(k.equals(0)):
                top.set(best)
            index.set(select(index < 0, value(0), index))
            store(room + index * 4, const("f32", float("-inf")))
            share_of = exp(best - top)
            total += share_of
            store(ids + c * ids_stride + k * 4, index.to("f32"))
            store(shares + c * shares_stride + k * 4, share_of)
        with when(normalize.equals(0)):
            total.set(const("f32", 0))
            for i in loop(experts):
                total += exp(load("f32", x + c * x_stride + i * 4) - top)
        for k in loop(chosen):
            at = shares + c * shares_stride + k * 4
            store(at, load("f32", at) / total)


@kernel("lookup")
def lookup(a: Traced, thread: Traced, threads: Traced) -> None:
    w, ids, ids_stride, y, y_stride, n, count = arguments(a, 7)
    for i in share(n * load("i64", count), thread, threads):
        c, k = i // n, i % n
        index = load("f32", ids + c * ids_stride + k * 4).to("i64")
        store(y + c * y_stride + k * 4, load("f32", w + index * 4))


@kernel("combine")
def combine(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, shares, shares_stride, y, y_stride, n, features, count = arguments(a, 9)
    for c in loop(load("i64", count)):
        source, weights, target = x + c * x_stride, shares + c * shares_stride, y + c * y_stride

        def body(at: Traced, t: str, source=source, weights=weights, target=target) -> None:
            total = Var(const(t, 0))
            for k in loop(n):
                s = load("f32", weights + k * 4)
                total.set(fma(load(t, source + k * features * 4 + at), const(t, 1.0) * s, total))
            store(target + at, total.get())

        each_shared(features, thread, threads, body)
