"""Ops that work entry by entry or norm by norm, alone and fused with the quantization of what they result in.

Rows are float32; a stride is the bytes from one row to the next.  Lengths need not be multiples of a
vector's eight lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from golem_core.cpu import jit
from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    const,
    fma,
    hsum,
    load,
    loop,
    number,
    select,
    share,
    store,
    vmax,
    vmin,
)
from golem_core.cpu.kernels.quantize import BLOCK, QUANTIZE
from golem_core.cpu.library import kernel
from golem_core.cpu.target import rint, round_half

FORMS = ("f32", "q32", "q256")


def each(n: Traced, body: Callable[[Traced, str], None]) -> None:
    """body(byte offset, type) over n floats: eight at a time, then one at a time."""
    for i in loop(n >> 3):
        body(i * 32, "f32x8")
    for i in loop(n & -8, n):
        body(i * 4, "f32")


def each_shared(n: Traced, thread: Traced, threads: Traced, body: Callable[[Traced, str], None]) -> None:
    """The same, divided among the threads."""
    for i in share(n >> 3, thread, threads):
        body(i * 32, "f32x8")
    with jit.when(thread.equals(0)):
        for i in loop(n & -8, n):
            body(i * 4, "f32")


def exp(x: Traced) -> Traced:
    """e^x for x <= 88 or so; below -87 about 0, NaN stays NaN.  By ln 2 and a polynomial of degree 6 (Cephes, expf)."""
    t = x.type
    whole = "i32" if str(t) == "float" else f"i32x{t.count}"
    x = select(x < -87.0, const(t, -87.0), x)
    n = rint(x * 1.4426950408889634)
    r = fma(n, const(t, -0.693359375), x)
    r = fma(n, const(t, 2.12194440e-4), r)
    p = const(t, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, const(t, c))
    p = fma(p, r * r, r) + 1.0
    return p * ((n.to(whole) + 127) << 23).bits(t)


def sigmoid_of_negative(z: Traced) -> Traced:
    """1 / (1 + e^z)."""
    return const(z.type, 1.0) / (exp(select(z > 80.0, const(z.type, 80.0), z)) + 1.0)


def silu(x: Traced) -> Traced:
    return x * sigmoid_of_negative(x * -1.0)


def gelu(x: Traced) -> Traced:
    """The tanh form; (1 + tanh(u)) / 2 is 1 / (1 + e^-2u)."""
    a = -2 * sqrt(2 / pi)
    return x * sigmoid_of_negative(x * fma(x * x, const(x.type, a * 0.044715), const(x.type, a)))


def gelu_exact(x: Traced) -> Traced:
    """x times the normal distribution function, whose tail is t * poly(t) * e^(-z^2) / 2 with z = |x| / sqrt(2) and
    t = 1 / (1 + 0.3275911 z), within 1e-7 (Abramowitz and Stegun 7.1.26)."""
    z = jit.vabs(x) * sqrt(0.5)
    t = const(x.type, 1.0) / fma(z, const(x.type, 0.3275911), const(x.type, 1.0))
    p = const(x.type, 1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = fma(p, t, const(x.type, c))
    tail = p * t * exp(z * z * -1.0) * 0.5
    return x * select(x > 0.0, const(x.type, 1.0) - tail, tail)


def elu(x: Traced) -> Traced:
    """Near 0, where the difference e^x - 1 cancels, by its series."""
    z = jit.vmin(x, 0.0)
    series = const(x.type, 1 / 40320)
    for c in (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0):
        series = fma(series, z, const(x.type, c))
    return select(x > 0.0, x, select(z > -0.5, series * z, exp(z) - 1.0))


def relu(x: Traced) -> Traced:
    return select(x < 0.0, const(x.type, 0.0), x)


def sigmoid(x: Traced) -> Traced:
    return sigmoid_of_negative(x * -1.0)


def softplus(x: Traced) -> Traced:
    """log(1 + e^x) = max(x, 0) + log(1 + u), u = e^-|x|; log(1 + u) = 2 atanh(s), s = u / (2 + u), as a series."""
    u = exp(jit.vabs(x) * -1.0)
    s = u / (u + 2.0)
    z, p = s * s, const(x.type, 1 / 17)
    for k in range(15, 0, -2):
        p = fma(p, z, const(x.type, 1 / k))
    return vmax(x, const(x.type, 0.0)) + s * p * 2.0


ACTIVATIONS = {"gelu": gelu, "gelu_exact": gelu_exact, "relu": relu, "sigmoid": sigmoid, "silu": silu}


def inverse_rms(x: Traced, n: Traced, eps: Traced) -> Traced:
    """1 / sqrt(mean of the squares of n floats + eps)."""
    sums = [Var(const("f32x8", 0)) for _ in range(2)]
    for i in loop(n >> 4):
        for k in range(2):
            v = load("f32x8", x + i * 64 + 32 * k)
            sums[k].set(fma(v, v, sums[k]))
    rest = Var(const("f32", 0))
    for i in loop(n & -16, n):
        v = load("f32", x + i * 4)
        rest += v * v
    return const("f32", 1) / jit.sqrt((hsum(sums[0] + sums[1]) + rest) / n.to("f32") + eps)


# ---------------------------------------------------------------- one input


def unary(name: str, f: Callable[[Traced, Traced], Traced]) -> None:
    @kernel(name)
    def op(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, n, count = arguments(a, 6)
        by = number(a, 6)
        for c in loop(load("i64", count)):
            source, target = x + c * x_stride, y + c * y_stride
            each_shared(n, thread, threads, lambda at, t: store(target + at, f(load(t, source + at), by)))


unary("gelu", lambda x, by: gelu(x))
unary("gelu_exact", lambda x, by: gelu_exact(x))
unary("elu", lambda x, by: elu(x))
unary("relu", lambda x, by: relu(x))
unary("silu", lambda x, by: silu(x))
unary("sigmoid", lambda x, by: sigmoid(x))
unary("softplus", lambda x, by: softplus(x))
unary("scale", lambda x, by: x * by)


def capped(x: Traced, cap: Traced) -> Traced:
    """cap * tanh(x / cap) = cap * (1 - 2 / (1 + e^(2x/cap)))."""
    return (const(x.type, 1.0) - sigmoid_of_negative(x / cap * 2.0) * 2.0) * cap


unary("softcap", capped)


@kernel("clip")
def clip(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, y, y_stride, n, count = arguments(a, 6)
    low, high = number(a, 6), number(a, 7)
    for c in loop(load("i64", count)):
        source, target = x + c * x_stride, y + c * y_stride
        each_shared(n, thread, threads, lambda at, t: store(target + at, vmin(vmax(load(t, source + at), low), high)))


# ---------------------------------------------------------------- two inputs


def binary(name: str, f: Callable[[Traced, Traced], Traced]) -> None:
    @kernel(name)
    def of_values(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, z, z_stride, y, y_stride, n, count = arguments(a, 8)
        for c in loop(load("i64", count)):
            p, q, target = x + c * x_stride, z + c * z_stride, y + c * y_stride
            each_shared(n, thread, threads, lambda at, t: store(target + at, f(load(t, p + at), load(t, q + at))))

    @kernel(f"{name}_run")
    def of_runs(a: Traced, thread: Traced, threads: Traced) -> None:
        """With the row of each column's run."""
        x, x_stride, z, z_stride, run, y, y_stride, n, count = arguments(a, 9)
        for c in loop(load("i64", count)):
            p, q, target = x + c * x_stride, z + load("i64", run + c * 8) * z_stride, y + c * y_stride
            each_shared(n, thread, threads, lambda at, t: store(target + at, f(load(t, p + at), load(t, q + at))))

    @kernel(f"{name}_vector")
    def of_vector(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, w, y, y_stride, lead, n, count = arguments(a, 8)
        for i in share(lead * load("i64", count), thread, threads):
            c, k = i // lead, i % lead
            p, target = x + c * x_stride + k * n * 4, y + c * y_stride + k * n * 4
            each(n, lambda at, t: store(target + at, f(load(t, p + at), load(t, w + at))))

    @kernel(f"{name}_number")
    def of_number(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, w, y, y_stride, n, count = arguments(a, 7)
        by = load("f32", w)
        for c in loop(load("i64", count)):
            p, target = x + c * x_stride, y + c * y_stride
            each_shared(n, thread, threads, lambda at, t: store(target + at, f(load(t, p + at), by)))


binary("add", lambda x, z: x + z)
binary("mul", lambda x, z: x * z)


# ---------------------------------------------------------------- norms


def norm(name: str, weighted: bool) -> None:
    @kernel(name)
    def rms_norm(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, w, y, y_stride, lead, n, count = arguments(a, 8)
        eps = number(a, 8)
        for i in share(lead * load("i64", count), thread, threads):
            c, k = i // lead, i % lead
            source, target = x + c * x_stride + k * n * 4, y + c * y_stride + k * n * 4
            r = inverse_rms(source, n, eps)

            def body(at: Traced, t: str, source=source, target=target, r=r) -> None:
                v = load(t, source + at) * r
                store(target + at, v * load(t, w + at) if weighted else v)

            each(n, body)


norm("rms_norm", False)
norm("rms_norm_weighted", True)


def mean_and_scale(x: Traced, n: Traced, eps: Traced) -> tuple[Traced, Traced]:
    """The mean of n floats, and 1 / sqrt(variance + eps); the variance from the differences to the mean."""

    def mean_of(f: Callable[[Traced], Traced]) -> Traced:
        sums = [Var(const("f32x8", 0)) for _ in range(2)]
        for i in loop(n >> 4):
            for k in range(2):
                sums[k] += f(load("f32x8", x + i * 64 + 32 * k))
        rest = Var(const("f32", 0))
        for i in loop(n & -16, n):
            rest += f(load("f32", x + i * 4))
        return (hsum(sums[0] + sums[1]) + rest) / n.to("f32")

    mean = mean_of(lambda v: v)
    variance = mean_of(lambda v: (v - mean) * (v - mean))
    return mean, const("f32", 1) / jit.sqrt(variance + eps)


@kernel("layer_norm")
def layer_norm(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, w, b, y, y_stride, lead, n, count = arguments(a, 9)
    eps = number(a, 9)
    for i in share(lead * load("i64", count), thread, threads):
        c, k = i // lead, i % lead
        source, target = x + c * x_stride + k * n * 4, y + c * y_stride + k * n * 4
        mean, r = mean_and_scale(source, n, eps)

        def body(at: Traced, t: str, source=source, target=target, mean=mean, r=r) -> None:
            v = (load(t, source + at) - mean) * r
            store(target + at, v * load(t, w + at) + load(t, b + at))

        each(n, body)


@kernel("l2_norm")
def l2_norm(a: Traced, thread: Traced, threads: Traced) -> None:
    x, x_stride, y, y_stride, lead, n, count = arguments(a, 7)
    eps = number(a, 7)
    size = n.to("f32")
    for i in share(lead * load("i64", count), thread, threads):
        c, k = i // lead, i % lead
        source, target = x + c * x_stride + k * n * 4, y + c * y_stride + k * n * 4
        r = inverse_rms(source, n, eps / size) / jit.sqrt(size)
        each(n, lambda at, t: store(target + at, load(t, source + at) * r))


def residual_norm(mode: int, form: str) -> None:
    """`residual{mode}_norm_{form}`: carried + what a block adds, stored; then its norm, in `form`.

    Mode 0: there is nothing to add.  1: y is added.  2: rms_norm(y) is added.
    """

    @kernel(f"residual{mode}_norm_{form}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, post, total, total_stride, w, out, out_stride, K, count = arguments(a, 12)
        scratch, scratch_stride = arguments(a + 96, 2)
        eps = number(a, 14)
        room = scratch + thread * scratch_stride
        for c in share(load("i64", count), thread, threads):
            p = x + c * x_stride
            if mode:
                q, s = y + c * y_stride, total + c * total_stride
                r = inverse_rms(q, K, eps) if mode == 2 else None

                def body(at: Traced, t: str, p=p, q=q, s=s, r=r) -> None:
                    v = load(t, q + at)
                    store(s + at, load(t, p + at) + (v * r * load(t, post + at) if r is not None else v))

                each(K, body)
                p = s
            r = inverse_rms(p, K, eps)
            target = out + c * out_stride if form == "f32" else room
            each(K, lambda at, t: store(target + at, load(t, p + at) * r * load(t, w + at)))
            if form != "f32":
                for b in loop(K // BLOCK[form]):
                    QUANTIZE[form](target + b * (4 * BLOCK[form]), out + c * out_stride, K, b)


def residual_layer_norm(mode: int, form: str) -> None:
    """`residual{mode}_layer_norm_{form}`: the same for a layer norm; mode 0 or 1."""

    @kernel(f"residual{mode}_layer_norm_{form}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, total, total_stride, w, b, out, out_stride, K, count = arguments(a, 12)
        scratch, scratch_stride = arguments(a + 96, 2)
        eps = number(a, 14)
        room = scratch + thread * scratch_stride
        for c in share(load("i64", count), thread, threads):
            p = x + c * x_stride
            if mode:
                q, s = y + c * y_stride, total + c * total_stride
                each(K, lambda at, t, p=p, q=q, s=s: store(s + at, load(t, p + at) + load(t, q + at)))
                p = s
            mean, r = mean_and_scale(p, K, eps)
            target = out + c * out_stride if form == "f32" else room

            def body(at: Traced, t: str, p=p, target=target, mean=mean, r=r) -> None:
                store(target + at, (load(t, p + at) - mean) * r * load(t, w + at) + load(t, b + at))

            each(K, body)
            if form != "f32":
                for i in loop(K // BLOCK[form]):
                    QUANTIZE[form](target + i * (4 * BLOCK[form]), out + c * out_stride, K, i)


def gated(activation: str, form: str) -> None:
    """`{activation}_mul_{form}`: activation(x) * y.

    On the way into a product of 8-bit activations, gelu goes from float16 to float16, as ggml's table does: both
    implementations then round the same numbers.
    """

    @kernel(f"{activation}_mul_{form}")
    def run(a: Traced, thread: Traced, threads: Traced) -> None:
        x, x_stride, y, y_stride, out, out_stride, K, count, scratch, scratch_stride = arguments(a, 10)
        f = ACTIVATIONS[activation]
        g = (lambda x: round_half(f(round_half(x)))) if activation == "gelu" else f

        def product(p: Traced, q: Traced, target: Traced, n: Traced) -> None:
            each(n, lambda at, t: store(target + at, g(load(t, p + at)) * load(t, q + at)))

        if form == "f32":
            for c in loop(load("i64", count)):
                p, q, target = x + c * x_stride, y + c * y_stride, out + c * out_stride
                each_shared(
                    K,
                    thread,
                    threads,
                    lambda at, t: store(target + at, f(load(t, p + at)) * load(t, q + at)),
                )
            return
        room, size = scratch + thread * scratch_stride, BLOCK[form]
        blocks = K // size
        for i in share(blocks * load("i64", count), thread, threads):
            c, b = i // blocks, i % blocks
            product(x + c * x_stride + b * (4 * size), y + c * y_stride + b * (4 * size), room, jit.value(size))
            QUANTIZE[form](room, out + c * out_stride, K, b)


for _form in FORMS:
    for _mode in range(3):
        residual_norm(_mode, _form)
    for _mode in range(2):
        residual_layer_norm(_mode, _form)
    for _activation in ACTIVATIONS:
        gated(_activation, _form)
