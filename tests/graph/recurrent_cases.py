"""The rows of the table of ops that go through the columns of a conversation in order."""

from __future__ import annotations

from golem_core import Recurrent

from .case import STRETCHES, case, columns, x
from .weights import random_weight

for _features, _taps in ((64, 4), (19, 2), (8, 7)):

    @case(f"causal_conv1d-{_features}x{_taps}", passes=STRETCHES)
    def _(g, rng, features=_features, taps=_taps):
        for name, bias in (("plain", None), ("biased", random_weight(rng, "b", "F32", features))):
            weight = random_weight(rng, "w", "F32", features, taps)
            y, _ = g.causal_conv1d(x(g, rng, features), weight, Recurrent((taps - 1, features)), bias)
            g.output(name, y)
            g.output(f"{name}-scored", g.take(g.silu(y)))


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
