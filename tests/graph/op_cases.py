"""The table: every op, in the shapes and types that matter.  A new op or shape is a row here; those that attend are
in `attention_cases`.
"""

from __future__ import annotations

import numpy as np

from golem_core import RUNS, Columns, KVRing, Recurrent
from golem_core.files import DECODERS

from .attention_cases import TEXTS
from .case import CASES as CASES
from .case import SEVERAL, TOKENS, case, columns, of_lengths, x
from .case import Case as Case
from .weights import random_weight

WITH_ROUNDED_SUMS = {"Q4_1", "Q5_1"}
"""Minimums meet sums of activations that a device may round to float16, as ggml does."""
WIDE = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "PQ2_0", "PTQ1_0"}

for _type in DECODERS:

    @case(f"embed-{_type}")
    def _(g, rng, t=_type):
        g.output("y", g.embed(random_weight(rng, "table", t, TOKENS, 512)))

    @case(f"embed_position-{_type}")
    def _(g, rng, t=_type):
        g.output("y", g.embed_position(random_weight(rng, "table", t, 7, 512)))

    @case(f"table_rows-{_type}")
    def _(g, rng, t=_type):
        ids, _ = g.route(x(g, rng, 9), count=5)
        table = random_weight(rng, "table", t, 7, 512)
        g.output("rows", g.table_rows(table, ids))
        g.output("one", g.table_rows(table, g.slice(g.scale(ids, by=-1.0), 2, 3)))

    for _rows, _width in ((40, 512), (7, 256)) if _type in WIDE else ((40, 160), (7, 32), (64, 2080)):

        @case(
            f"linear-{_type}-{_rows}x{_width}",
            passes=of_lengths(1, 2, 3, 4, 5, 8, 9, 33),
            tolerance=5e-5 if _type in WITH_ROUNDED_SUMS else 2e-6,
        )
        def _(g, rng, t=_type, rows=_rows, width=_width):
            g.output("y", g.linear(x(g, rng, width), random_weight(rng, "w", t, rows, width)))

    @case(f"expert_linear-{_type}", passes=of_lengths(1, 3, 33), tolerance=5e-5 if _type in WITH_ROUNDED_SUMS else 2e-6)
    def _(g, rng, t=_type):
        ids, _ = g.route(x(g, rng, 6), count=2)
        g.output("y", g.expert_linear(x(g, rng, 256), random_weight(rng, "up", t, 6, 256, 256), ids))
        g.output("z", g.expert_linear(x(g, rng, 2, 256), random_weight(rng, "down", t, 6, 27, 256), ids))


@case("expert_linear-float-odd")
def _(g, rng):
    ids, _ = g.route(x(g, rng, 6), count=2)
    g.output("down", g.expert_linear(x(g, rng, 2, 37), random_weight(rng, "down", "F16", 6, 24, 37), ids))


@case("linear-float-odd", passes=of_lengths(1, 2, 5))
def _(g, rng):
    g.output("y", g.linear(x(g, rng, 37), random_weight(rng, "w", "F16", 19, 37)))


@case("linear-float8-odd", passes=of_lengths(1, 2, 7, 9))
def _(g, rng):
    """Widths that are no whole number of anything, and fewer rows than are multiplied at once."""
    g.output("y", g.linear(x(g, rng, 37), random_weight(rng, "w", "F8_E4M3", 19, 37)))
    g.output("z", g.linear(x(g, rng, 517), random_weight(rng, "w", "F8_E4M3", 3, 517).scaled(0.25)))
    ids, _ = g.route(x(g, rng, 6), count=2)
    g.output("down", g.expert_linear(x(g, rng, 2, 37), random_weight(rng, "down", "F8_E4M3", 6, 24, 37), ids))
    g.output("rows", g.table_rows(random_weight(rng, "table", "F8_E4M3", 7, 19).scaled(3.0), ids))
    g.output("float rows", g.table_rows(random_weight(rng, "table", "F16", 7, 19), ids))
    g.output("sum", g.add(x(g, rng, 4, 19), random_weight(rng, "v", "F8_E4M3", 19)))


@case("linear-bias")
def _(g, rng):
    w, b = random_weight(rng, "w", "Q8_0", 24, 64), random_weight(rng, "b", "F32", 24)
    g.output("y", g.linear(x(g, rng, 64), w, b))


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


# Runs longer and shorter than a window, of slots that come and go, some rows of which are asked for.
STRETCHES = [*SEVERAL, columns([(1, 9, 2), (2, 34, 1), (0, 62, 5)], scored=[1, 2, 7], seed=6)]
for _features, _taps in ((64, 4), (19, 2), (8, 7)):

    @case(f"causal_conv1d-{_features}x{_taps}", passes=STRETCHES)
    def _(g, rng, features=_features, taps=_taps):
        for name, bias in (("plain", None), ("biased", random_weight(rng, "b", "F32", features))):
            weight = random_weight(rng, "w", "F32", features, taps)
            y, _ = g.causal_conv1d(x(g, rng, features), weight, Recurrent((taps - 1, features)), bias)
            g.output(name, y)
            g.output(f"{name}-scored", g.take(g.silu(y)))


for _length, _channels, _taps, _stride, _out in (
    (8, 3, 4, 2, 5),
    (16, 1, 7, 1, 24),
    (2, 40, 4, 2, 16),
    (6, 64, 9, 3, 40),
):
    for _type in ("F32", "F16", "BF16", "F8_E4M3"):

        @case(f"conv1d-{_type}-{_length}x{_channels}-{_taps}by{_stride}-{_out}", passes=STRETCHES)
        def _(g, rng, t=_type, length=_length, channels=_channels, taps=_taps, stride=_stride, out=_out):
            """Alone, and over the steps before the column too, of zeros or of the first step."""
            y = x(g, rng, length, channels)
            w, b = random_weight(rng, "w", t, out, taps * channels), random_weight(rng, "b", "F32", out)
            for start in ("zeros", "first"):
                longer, _ = g.prepend(y, Recurrent((min(length, taps - stride), channels)), start=start)
                g.output(start, g.conv1d(longer, w, b, stride=stride))
                g.output(f"{start}-longer", longer)
                g.output(f"{start}-scored", g.take(g.elu(longer)))
            each = random_weight(rng, "each", t, out, channels)
            g.output("each", g.conv1d(y, each))
            g.output("apart", g.take(g.conv1d(y, each, b, stride=stride)))


for _shape, _taps, _out in (
    ((1, 1, 5), 3, 4),
    ((3, 5, 7), 3, 24),
    ((7, 2, 19), 1, 16),
    ((2, 9, 40), 5, 3),
    ((11, 37, 32), 3, 20),
):
    for _type in ("F32", "F16", "BF16", "F8_E4M3"):

        @case(f"conv2d-{_type}-{'x'.join(map(str, _shape))}-{_taps}-{_out}", passes=of_lengths(1, 3))
        def _(g, rng, t=_type, shape=_shape, taps=_taps, out=_out):
            y, n = x(g, rng, *shape), taps * taps * shape[2]
            w, b = random_weight(rng, "w", t, out, n), random_weight(rng, "b", "F32", out)
            g.output("y", g.conv2d(y, w))
            again = random_weight(rng, "again", t, 16, out, scale=0.1)
            g.output("biased", g.conv2d(g.silu(g.conv2d(y, w, b)), again))


@case("upsample", tolerance=0)
def _(g, rng):
    g.output("one", g.upsample(x(g, rng, 1, 1, 3)))
    g.output("odd", g.upsample(x(g, rng, 3, 5, 19)))
    g.output("twice", g.upsample(g.upsample(x(g, rng, 2, 3, 16))))


@case("map", tolerance=5e-6)
def _(g, rng):
    """What works on the last axis, or entry by entry, on a map; and adding what a map was before."""
    y, n = x(g, rng, 6, 7, 24), random_weight(rng, "n", "F32", 24)
    normed = g.silu(g.rms_norm(y, n, eps=1e-6))
    conv = g.conv2d(normed, random_weight(rng, "w", "BF16", 24, 9 * 24, scale=0.1), random_weight(rng, "b", "F32", 24))
    g.output("block", y + g.scale(conv, by=0.5))
    g.output("norms", g.layer_norm(y, n, eps=1e-5) + g.l2_norm(g.gelu(y), eps=1e-6) * n)


GATES = (40.0, -20.0, 0.0), (2.0, 0.0, 1.0)
"""How far decay and beta spread, and between what they are cut."""
LONG = [
    *STRETCHES[:4],
    columns([(0, 61, 33), (1, 9, 2), (2, 34, 70)], seed=7),
    columns([(1, 11, 48), (2, 104, 1)], scored=[3, 47, 48], seed=8),
    columns([(0, 94, 1), (1, 59, 37), (2, 105, 2)], seed=9),
]
"""Devices may take a conversation's columns several at a time, where there are many."""
for _key_heads, _heads, _dk, _dv in (
    (1, 1, 16, 8),
    (2, 6, 8, 8),
    (2, 2, 20, 16),
    (3, 3, 16, 96),
    (4, 8, 64, 64),
    (1, 3, 128, 40),
    (1, 2, 160, 16),
):

    @case(f"delta_net-{_key_heads}to{_heads}x{_dk}x{_dv}", passes=LONG, tolerance=1e-5)
    def _(g, rng, key_heads=_key_heads, heads=_heads, dk=_dk, dv=_dv):
        q, k = (g.l2_norm(x(g, rng, key_heads, dk), eps=1e-6) for _ in range(2))
        decay = g.scale(g.softplus(x(g, rng, heads)), by=-0.3)
        beta = g.sigmoid(x(g, rng, heads))
        v = g.view(g.slice(x(g, rng, heads * dv + 16), 16, heads * dv + 16), (heads, dv))
        y, _ = g.delta_net(q, k, v, decay, beta, Recurrent((heads, dk, dv)), scale=dk**-0.5)
        g.output("y", y)
        g.output("scored", g.take(g.rms_norm(y, random_weight(rng, "w", "F32", dv), eps=1e-6)))


@case("delta_net-gates", passes=LONG, tolerance=1e-5)
def _(g, rng):
    """States that stay and that are forgotten at once, and columns that change nothing or all of what is known."""
    q, k = (g.slice(g.l2_norm(x(g, rng, 3, 36), eps=1e-6), 2, 34) for _ in range(2))
    decay, beta = (g.clip(x(g, rng, 6, scale=scale), low=low, high=high) for scale, low, high in GATES)
    for name, which in (("both", decay), ("kept", g.scale(decay, by=1e-4))):
        y, _ = g.delta_net(q, k, x(g, rng, 6, 24), which, beta, Recurrent((6, 32, 24)), scale=1.0)
        g.output(name, y)


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


@case("mixture")
def _(g, rng):
    scores = x(g, rng, 9)
    ids, shares = g.route(scores, count=4)
    g.output("ids", ids)
    g.output("shares", shares)
    g.output("parts", g.route(scores, count=2, normalize=False)[1])
    picked = g.lookup(random_weight(rng, "w", "F32", 9), ids)
    g.output("picked", picked)
    g.output("combined", g.combine(x(g, rng, 4, 21), g.mul(shares, picked)))


@case("route-ties", tolerance=0)
def _(g, rng):
    flat = g.scale(x(g, rng, 8), by=0.0)
    ids, _ = g.route(flat, count=3)
    g.output("ids", ids)


@case("slice-into-products")
def _(g, rng):
    """Parts of a row in the forms that products read, beside the whole row, and of the scored rows alone."""
    y = x(g, rng, 160)
    w = [random_weight(rng, name, "Q8_0", 24, width) for name, width in (("a", 64), ("b", 64), ("c", 160))]
    g.output("second", g.linear(g.slice(y, 32, 96), w[0]))
    g.output("first", g.linear(g.slice(y, 0, 64), w[1]))
    g.output("whole", g.linear(y, w[2]))
    g.output("normed", g.linear(g.slice(g.rms_norm(y, random_weight(rng, "n", "F32", 160), eps=1e-6), 96, 160), w[0]))
    g.output("late", g.take(g.linear(g.slice(g.silu(y), 64, 128), w[1])))


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


@case("block", passes=SEVERAL, tolerance=2e-5, half_tolerance=5e-3, byte_tolerance=4e-2)
def _(g, rng):
    """A whole block with norms before and after: the fusions, the cut to the scored rows, memory used twice."""

    def norm(name, y):
        return g.rms_norm(y, random_weight(rng, name, "F32", 64), eps=1e-6)

    def weight(rows, width):
        return random_weight(rng, "w", "F16", rows, width, scale=0.1)

    y = x(g, rng, 64)
    for _ in range(3):
        a = norm("a", y)
        q, k, v = (g.linear(a, weight(n * 32, 64)).heads(n) for n in (2, 1, 1))
        cache = g.store(g.rope(k, base=1e4), v, KVRing(1, 32))
        y = y + norm("p", g.linear(g.attend(g.rope(q, base=1e4), cache, scale=0.2), weight(64, 64)))
        f = norm("f", y)
        y = y + g.linear(g.gelu(g.linear(f, weight(96, 64))) * g.linear(f, weight(96, 64)), weight(64, 96))
    g.output("logits", g.linear(norm("o", g.take(y)), weight(TOKENS, 64)))


@case("encoder", passes=[*TEXTS, *of_lengths(70)], tolerance=2e-5)
def _(g, rng):
    """Blocks with norms behind their sub-layers, whose results are read in several forms, and every other a mixture."""

    def norm(y):
        w, b = random_weight(rng, "w", "F32", 64), random_weight(rng, "b", "F32", 64, scale=0.1)
        return g.layer_norm(y, w, b, eps=1e-5)

    def weight(*shape, kind="F16"):
        return random_weight(rng, "w", kind, *shape, scale=shape[-1] ** -0.5)

    y = norm(x(g, rng, 64))
    for experts in (0, 4):
        qkv = g.linear(y, weight(192, 64), weight(192, kind="F32"))
        q, k, v = (g.slice(qkv, 64 * i, 64 * i + 64).heads(4) for i in range(3))
        mixed = g.attend_columns(g.rope(q, base=1e4), g.rope(k, base=1e4), v, scale=0.25)
        y = norm(y + g.linear(mixed, weight(64, 64), weight(64, kind="F32")))
        if experts:
            ids, shares = g.route(g.linear(y, weight(experts, 64, kind="F32")), count=2, normalize=False)
            up = g.gelu(g.expert_linear(y, weight(experts, 96, 64), ids), exact=True)
            f = g.combine(g.expert_linear(up, weight(experts, 64, 96), ids), shares)
        else:
            f = g.linear(g.gelu(g.linear(y, weight(96, 64), weight(96, kind="F32"))), weight(64, 96))
        y = norm(y + f)
    g.output("states", y)
    g.output("late", g.silu(g.linear(g.take(y), weight(96, 64))))
