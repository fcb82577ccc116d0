"""The rows of the table of ops that go over stretches and maps."""

from __future__ import annotations

from golem_core import Recurrent

from .case import STRETCHES, case, of_lengths, x
from .weights import random_weight

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
