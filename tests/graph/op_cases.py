"""The table: every op, in the shapes and types that matter.  A new op or shape is a row.

Here are norms, turned heads, rows of runs and what goes entry by entry; the rest has modules of its own.
"""

from __future__ import annotations

import numpy as np

from golem_core import RUNS, Columns

from . import block_cases, convolution_cases, product_cases, recurrent_cases  # noqa: F401 - they fill the table
from .attention_cases import TEXTS
from .case import CASES as CASES
from .case import Case as Case
from .case import case, columns, x
from .weights import random_weight

for _n in (64, 20, 3, 4096):

    @case(f"rms_norm-{_n}")
    def _(g, rng, n=_n):
        g.output("plain", g.rms_norm(x(g, rng, n), eps=1e-6))
        g.output("weighted", g.rms_norm(x(g, rng, 4, n), random_weight(rng, "w", "F32", n), eps=1e-2))
        g.output("bare", g.rms_norm(x(g, rng, 4, n), eps=1e-5))
        g.output("length", g.l2_norm(x(g, rng, 4, n), eps=1e-1))

    @case(f"layer_norm-{_n}", tolerance=4e-6)
    def _(g, rng, n=_n):
        w, b = (random_weight(rng, name, "F32", n) for name in "wb")
        shifted = g.add(x(g, rng, 4, n), random_weight(rng, "shift", "F32", 1, n, scale=3.0))
        g.output("plain", g.layer_norm(x(g, rng, n), eps=1e-5))
        g.output("heads", g.layer_norm(shifted, w, b, eps=1e-5))
        g.output("scaled", g.layer_norm(shifted, w, eps=1e-1))
        g.output("shifted", g.layer_norm(shifted, bias=b, eps=1e-12))


for _pairs in ("halves", "neighbours"):
    for _dims in (None, 16, 10):

        @case(f"rope-{_pairs}-{_dims}", passes=[columns([(0, 0, 5)]), columns([(0, 70_000, 3)])], tolerance=2e-5)
        def _(g, rng, pairs=_pairs, dims=_dims):
            y = x(g, rng, 3, 32)
            g.output("y", g.rope(y, base=1e4, dims=dims, pairs=pairs))
            factors = random_weight(rng, "f", "F32", (dims or 32) // 2)
            g.output("factors", g.rope(y, base=5e5, dims=dims, pairs=pairs, factors=factors, scale=0.125))
            weight = random_weight(rng, "w", "F32", 32)
            g.output("normed", g.rope(g.rms_norm(y, weight, eps=1e-6), base=1e4, dims=dims, pairs=pairs))


for _pairs, _dims, _blocks in (("halves", 32, 1), ("neighbours", 32, 1), ("halves", 28, 2), ("halves", 30, 3)):

    @case(f"rope_at-{_pairs}-{_dims}in{_blocks}", tolerance=4e-6)
    def _(g, rng, pairs=_pairs, dims=_dims, blocks=_blocks):
        """Alone, normed, by places on three axes of columns and of the rows that are asked for, on into a ring."""
        y, at = x(g, rng, 3, 32), x(g, rng, 3, scale=50.0)
        count = dims // 2
        how = {"axes": tuple((2 * j) % 3 for j in range(count)), "pairs": pairs, "blocks": blocks}
        how["frequencies"] = tuple(float(f) for f in 100.0 ** -np.linspace(0, 1, count))
        turned = g.rope_at(y, at, **how)
        g.output("y", turned)
        g.output("half", g.rope_at(y, g.scale(at, by=0.5), **how))
        weight = random_weight(rng, "w", "F32", 32)
        g.output("normed", g.rope_at(g.rms_norm(y, weight, eps=1e-6), at, **how))
        g.output("bare", g.rope_at(g.rms_norm(y, eps=1e-6), at, **how))
        g.output("scored", g.take(g.rope_at(g.silu(y), at, **how)))


@case("pool", passes=TEXTS)
def _(g, rng):
    """Rows of runs, and what is computed from them."""
    y = x(g, rng, 3, 19)
    for how in ("mean", "first", "last"):
        g.output(how, g.pool(y, how))
    wide = g.pool(g.silu(x(g, rng, 64)), "mean")
    g.output("head", g.linear(g.gelu(wide), random_weight(rng, "w", "Q8_0", 40, 64)))


def given(passes: list[Columns], name: str, *shape: int) -> list[Columns]:
    """The same passes with rows of an input."""
    dice = np.random.default_rng(11)
    rows = [dice.normal(size=(len(p), *shape)) for p in passes]
    return [Columns(p.token, p.position, p.slot, p.scored, inputs={name: r}) for p, r in zip(passes, rows, strict=True)]


@case("runs", passes=given(TEXTS, "of all", 64), tolerance=5e-6)
def _(g, rng):
    """What the first column of each conversation has, and what its columns, or some of them, do with it."""
    y, shift = x(g, rng, 3, 19), g.take(g.scale(x(g, rng, 3, 19), by=0.5), RUNS)
    g.output("taken", shift)
    g.output("sum", g.add(y, shift))
    g.output("turned round", g.mul(shift, g.silu(y)))
    g.output("scored", g.mul(g.take(y), shift))
    g.output("of a run", g.add(g.pool(y, "mean"), shift))
    first = g.take(g.input("of all", (64,)), RUNS)
    steps = g.silu(g.linear(first, random_weight(rng, "w", "Q8_0", 128, 64), random_weight(rng, "b", "F32", 128)))
    by, more = g.slice(steps, 0, 64), g.slice(steps, 64, 128)
    wide = x(g, rng, 64)
    normed = g.rms_norm(wide, random_weight(rng, "n", "F32", 64), eps=1e-6) * by + more
    g.output("modulated", g.linear(normed, random_weight(rng, "v", "Q4_0", 24, 64)))
    g.output("late", g.linear(g.take(wide + normed) * by, random_weight(rng, "u", "F16", 24, 64)))
    total = wide + g.linear(g.silu(wide), random_weight(rng, "z", "F16", 64, 64)) * more
    g.output("total", total)
    normed = g.rms_norm(total, random_weight(rng, "m", "F32", 64), eps=1e-6)
    g.output("gated", g.linear(normed * by + more, random_weight(rng, "t", "F16", 24, 64)))
    g.output("position", g.take(g.rope(g.view(wide, (2, 32)), base=1e4), RUNS))
    both = g.gelu(wide)
    g.output("both", g.add(both, g.take(both, RUNS)))


@case(
    "input",
    passes=[
        Columns(np.zeros(n), np.arange(n), np.zeros(n), [n - 1], {"row": dice.normal(size=(n, 64)),
                                                                  "heads": dice.normal(size=(n, 3, 5))})
        for n, dice in ((n, np.random.default_rng(n)) for n in (1, 9))
    ],
)  # fmt: skip
def _(g, rng):
    row = g.input("row", (64,))
    g.output("heads", g.scale(g.input("heads", (3, 5)), by=2.0))
    g.output("row", row)
    g.output("product", g.take(g.linear(row, random_weight(rng, "w", "Q8_0", 24, 64))))
    g.output("late", g.silu(g.take(row)))


for _n in (64, 19):

    @case(f"elementwise-{_n}", tolerance=4e-6)
    def _(g, rng, n=_n):
        a, b = x(g, rng, n, scale=4.0), x(g, rng, n, scale=4.0)
        w, one = random_weight(rng, "w", "F32", n), random_weight(rng, "one", "F32", 1)
        for name, y in {
            "gelu": g.gelu(a), "gelu-exact": g.gelu(a, exact=True),
            "elu": g.elu(a), "relu": g.relu(a), "gated-relu": g.relu(a) * b,
            "silu": g.silu(a), "softcap": g.softcap(a, cap=3.0), "scale": g.scale(a, by=-1.5),
            "sigmoid": g.sigmoid(a), "softplus": g.softplus(a), "gated-sigmoid": b * g.sigmoid(a),
            "add": a + b, "mul": a * b, "twice": a + a, "add-vector": a + w, "mul-vector": a * w, "mul-one": a * one,
            "add-row": a + random_weight(rng, "row", "F32", 1, n), "gated-exact": g.gelu(a, exact=True) * b,
            "rows-vector": g.mul(x(g, rng, 3, n), w), "gated": g.gelu(a) * b, "gated-silu": b * g.silu(a),
        }.items():  # fmt: skip
            g.output(name, y)


@case("clip", tolerance=0)
def _(g, rng):
    y = x(g, rng, 3, 19, scale=4.0)
    g.output("both", g.clip(y, low=-1.5, high=0.25))
    g.output("low", g.clip(y, low=-1.0, high=np.inf))
    g.output("high", g.clip(y, low=-np.inf, high=1.0))


@case("concat")
def _(g, rng):
    g.output("rows", g.concat(x(g, rng, 40), x(g, rng, 19)))
    g.output("heads", g.silu(g.concat(x(g, rng, 3, 5), x(g, rng, 3, 16))))
    g.output("twice", g.linear(g.concat(a := x(g, rng, 32), a), random_weight(rng, "w", "Q8_0", 16, 64)))


for _block in (1, 4, 8, 32, 256):

    @case(f"hadamard-{_block}")
    def _(g, rng, block=_block):
        g.output("row", g.hadamard(x(g, rng, 2 * 256), block=block))
        g.output("heads", g.hadamard(x(g, rng, 3, block), block=block))


@case("layer_norm-fused", tolerance=5e-6)
def _(g, rng):
    """On the way into products in every form, of a sum that others read and of one that nobody does."""

    def weight(name, *shape, kind="F32"):
        return random_weight(rng, name, kind, *shape, scale=0.2)

    y, n = x(g, rng, 256), 256
    for kind in ("Q8_0", "Q4_K", "F32"):
        y = y + g.linear(y, weight("w", n, n, kind="F16"))
        normed = g.layer_norm(y, weight("n", n), weight("b", n), eps=1e-5)
        g.output(f"{kind}-pre", g.linear(normed, weight("w", 8, n, kind=kind)))
        g.output(f"{kind}-bare", g.linear(g.layer_norm(g.silu(y), eps=1e-5), weight("w", 8, n, kind=kind)))
        late = g.take(y) + g.take(g.silu(y))
        g.output(f"{kind}-late", g.linear(g.layer_norm(late, weight("n", n), eps=1e-2), weight("w", 8, n, kind=kind)))
        g.output(f"{kind}-alone", g.layer_norm(y + g.silu(y), bias=weight("b", n), eps=1e-5))


@case("transpose", tolerance=0)
def _(g, rng):
    g.output("three", g.transpose(x(g, rng, 3, 5, 19)))
    g.output("two", g.transpose(x(g, rng, 4, 6)))


@case("extremes")
def _(g, rng):
    a = x(g, rng, 32, scale=1000.0)
    for name in ("elu", "gelu", "relu", "sigmoid", "silu", "softplus"):
        g.output(name, getattr(g, name)(a))
    g.output("gelu-exact", g.gelu(a, exact=True))
    g.output("softcap", g.softcap(a, cap=30.0))


@case("slice", tolerance=0)
def _(g, rng):
    a, b = x(g, rng, 40), x(g, rng, 3, 21)
    g.output("look", g.slice(a, 5, 24))
    g.output("copy", g.slice(b, 4, 17))
    g.output("sum", g.slice(a, 0, 20) + g.slice(a, 20, 40))
    g.output("nested", g.slice(g.view(g.slice(a, 4, 36), (32,)), 1, 9))


@case(
    "take",
    passes=[
        columns([(0, 0, 9), (1, 3, 1)], scored=[8, 9]),
        columns([(0, 9, 3)], scored=[0]),
        columns([(0, 2, 4)], scored=[]),
    ],
)
def _(g, rng):
    a, w = x(g, rng, 64), random_weight(rng, "w", "Q4_0", 40, 64)
    y = g.linear(a, w)
    g.output("all", a)
    g.output("scored", g.take(y))
    g.output("both", g.take(g.rms_norm(a, random_weight(rng, "n", "F32", 64), eps=1e-6)))
