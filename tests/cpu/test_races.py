"""Threads that share a program's steps never see each other's work half done."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph, KVRing, Value, Weight
from golem_core.cpu.device import CpuDevice

from ..graph.weights import random_weight

PASSES = 5_000
"""Of each number of columns."""
VOCABULARY, WIDTH = 40, 64


def block(g: Graph, dice: np.random.Generator) -> Value:
    """Every kind of step that threads share by claims or by fixed parts: products, a mixture, attention, norms."""

    def weight(kind: str, *shape: int) -> Weight:
        return random_weight(dice, "w", kind, *shape)

    def norm(y: Value) -> Value:
        return g.rms_norm(y, weight("F32", WIDTH), eps=1e-6)

    x = g.embed(weight("Q8_0", VOCABULARY, WIDTH))
    a = norm(x)
    q, k, v = (g.linear(a, weight("Q4_0", 32 * n, WIDTH)).heads(n) for n in (2, 1, 1))
    cache = g.store(g.rope(k, base=1e4), v, KVRing(1, 32))
    x = x + g.linear(g.attend(g.rope(q, base=1e4), cache, scale=0.2), weight("F16", WIDTH, 64))
    f = norm(x)
    ids, shares = g.route(g.linear(f, weight("F32", 5, WIDTH)), count=2)
    gated = g.gelu(g.expert_linear(f, weight("Q4_0", 5, 96, WIDTH), ids))
    x = x + g.combine(g.expert_linear(gated, weight("Q8_0", 5, WIDTH, 96), ids), shares)
    return g.linear(norm(g.take(x)), weight("Q4_1", VOCABULARY, WIDTH))


@pytest.mark.parametrize("width", [1, 11])
def test_thousands_of_passes_give_the_same_bits(width):
    g = Graph()
    g.output("logits", block(g, np.random.default_rng(1)))
    device = CpuDevice(threads=2)
    compiled = device.compile(g, slots=1, context=16, width=16)
    position = np.arange(width)
    columns = Columns(position % VOCABULARY, position, np.zeros(width, np.int64), position[-1:])
    first = compiled.run(columns)["logits"].tobytes()
    for i in range(1, PASSES):
        assert compiled.run(columns)["logits"].tobytes() == first, f"pass {i} differs"
    device.close()
