"""The rows of the table of ops that are whole blocks: fusions, the cut to the scored rows, memory used twice."""

from __future__ import annotations

from golem_core import KVRing

from .attention_cases import TEXTS
from .case import SEVERAL, TOKENS, case, columns, of_lengths, x
from .weights import random_weight


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


@case("gates", passes=[*of_lengths(1, 3), columns([(0, 0, 70)], scored=[2, 40, 69])], tolerance=2e-5)
def _(g, rng):
    """Products that go through an activation and are multiplied, by each other or by something else, with a change of
    low rank to either or without; some are read by products, some as they are."""

    def weight(*shape, kind="F16"):
        return random_weight(rng, "w", kind, *shape, scale=shape[-1] ** -0.5)

    y, bias = x(g, rng, 64), random_weight(rng, "b", "F32", 320, scale=0.1)
    low = g.linear(y, weight(64, 64))
    wide = lambda: g.linear(y, weight(320, 64))
    change = lambda start: g.linear(g.slice(low, start, start + 32), weight(320, 32))
    down = lambda z: g.linear(z, weight(64, 320))
    g.output("read by a product", down(g.silu(wide()) * g.linear(y, weight(320, 64), bias)))
    g.output("turned round", g.linear(y, weight(320, 64), bias) * g.gelu(wide()))
    g.output("both changed", down(g.silu(wide() + change(0)) * (wide() + change(32))))
    g.output("gate changed", g.relu(change(0) + wide()) * wide())
    g.output("other changed", down((wide() + change(32)) * g.gelu(wide(), exact=True)))
    other = g.scale(wide(), by=0.5)
    g.output("by something else", down(other * g.sigmoid(wide())))
    g.output("changed, by something else", g.sigmoid(wide() + change(32)) * other)
    g.output("alone", down(g.gelu(g.linear(y, weight(320, 64), bias))))
    up = wide()
    g.output("of scored rows", down(g.take(g.silu(wide()) * up)))
    g.output("read twice", down(g.silu(wide()) * up + up))
    parts = wide()
    g.output("parts", g.silu(g.slice(parts, 0, 160)) * g.slice(parts, 160, 320))


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
