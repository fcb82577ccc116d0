"""The rows of the table of ops that read tables and matrices, of every type, and that choose experts."""

from __future__ import annotations

from golem_core.files import DECODERS

from .case import TOKENS, case, of_lengths, x
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
