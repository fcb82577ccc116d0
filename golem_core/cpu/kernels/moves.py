"""Ops that put rows, or parts of them, elsewhere, and those that make one row of many."""

from __future__ import annotations

from golem_core.cpu.jit import Traced, Var, arguments, const, load, loop, share, store
from golem_core.cpu.kernels.elementwise import each, each_shared
from golem_core.cpu.library import kernel


@kernel("slice")
def slice_rows(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, y, y_stride, lead, width, start, n, count = arguments(a, 9)
    for i in share(lead * load("i64", count), thread, threads):
        c, k = i // lead, i % lead
        source, target = x + c * x_stride + (k * width + start) * 4, y + c * y_stride + k * n * 4
        each(n, lambda at, t: store(target + at, load(t, source + at)))


@kernel("concat")
def concat(a: Traced, thread: Traced, threads: Traced) -> None:
    """Row after row of n floats of x, then m floats of y."""
    x, x_stride, y, y_stride, out, out_stride, lead, n, m, count = arguments(a, 10)
    for i in share(lead * load("i64", count), thread, threads):
        c, k = i // lead, i % lead
        first, second = x + c * x_stride + k * n * 4, y + c * y_stride + k * m * 4
        target = out + c * out_stride + k * (n + m) * 4
        each(n, lambda at, t: store(target + at, load(t, first + at)))
        each(m, lambda at, t: store(target + n * 4 + at, load(t, second + at)))


@kernel("transpose")
def transpose(a: Traced, thread: Traced, threads: Traced) -> None:
    """(first, second, n) floats -> (second, first, n)."""
    x, x_stride, y, y_stride, first, second, n, count = arguments(a, 8)
    for i in share(first * second * load("i64", count), thread, threads):
        c, k = i // (first * second), i % (first * second)
        source = x + c * x_stride + k * n * 4
        target = y + c * y_stride + (k % second * first + k // second) * n * 4
        each(n, lambda at, t: store(target + at, load(t, source + at)))


@kernel("gather")
def gather(a: Traced, thread: Traced, threads: Traced) -> None:
    """Rows `index` of x, whole strides (multiples of 64 bytes)."""
    x, x_stride, y, y_stride, index, count = arguments(a, 6)
    for c in share(load("i64", count), thread, threads):
        source = x + load("i64", index + c * 8) * x_stride
        for i in loop(0, y_stride, 32):
            store(y + c * y_stride + i, load("f32x8", source + i))


def pool(how: str) -> None:
    """`pool_{how}`: the mean, the first or the last of the columns of each run."""

    @kernel(f"pool_{how}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, n, first, length, count = arguments(a, 8)
        for r in loop(load("i64", count)):
            begin, columns = x + load("i64", first + r * 8) * x_stride, load("i64", length + r * 8)
            target = y + r * y_stride

            def body(at: Traced, t: str, begin=begin, columns=columns, target=target) -> None:
                if how == "mean":
                    total = Var(const(t, 0))
                    for c in loop(columns):
                        total += load(t, begin + c * x_stride + at)
                    store(target + at, total / columns.to("f32"))
                else:
                    store(target + at, load(t, begin + at + ((columns - 1) * x_stride if how == "last" else 0)))

            each_shared(n, thread, threads, body)


for _how in ("mean", "first", "last"):
    pool(_how)
