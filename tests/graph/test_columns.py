"""On the CPU a column's result is the same to the last bit however many columns run with it.

So what a conversation draws at temperature 0 doesn't depend on who else is being answered.
"""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph, KVRing
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.formats import FORMATS
from golem_core.cpu.library import Library
from golem_core.cpu.target import Target

from .weights import random_weight

LENGTH, SLOTS, VOCABULARY = 29, 13, 50


@pytest.fixture(scope="module", params=["host", "without extensions"])
def device(request):
    device = CpuDevice(
        threads=2, library=None if request.param == "host" else Library(Target.host().on_path("baseline"))
    )
    yield device
    device.close()


def outcome(compiled, parts: list[tuple[int, int, int]]) -> dict[int, np.ndarray]:
    """Of each slot the row of its last column; `parts` are (slot, first position, end)."""
    tokens = np.random.default_rng(5).integers(0, VOCABULARY, 256)
    position = np.concatenate([np.arange(first, end) for _, first, end in parts])
    slot = np.repeat([slot for slot, _, _ in parts], [end - first for _, first, end in parts])
    scored = np.cumsum([end - first for _, first, end in parts]) - 1
    rows = compiled.run(Columns(tokens[position], position, slot, scored))["y"].copy()
    return dict(zip([slot for slot, _, _ in parts], rows, strict=True))


def check(compiled, length: int = LENGTH) -> None:
    for position in range(length):
        row = outcome(compiled, [(0, position, position + 1)])[0]
    for slot, chunk in enumerate([2, 3, 4, 5, 7, 8, 9, 16, min(length, 33)], start=1):
        for first in range(0, length, chunk):
            end = min(first + chunk, length)
            # another conversation is read meanwhile, from its beginning again and again
            other = outcome(compiled, [(slot, first, end), (12, 0, 1 + first % 7)])
        np.testing.assert_array_equal(other[slot], row, err_msg=f"read {chunk} columns at a time")
    every = outcome(compiled, [(slot, length - 1, length) for slot in range(10)])
    for slot in range(10):
        np.testing.assert_array_equal(every[slot], row, err_msg=f"conversation {slot} of ten")


@pytest.mark.parametrize("kind", FORMATS)
def test_products(device, kind):
    dice, g = np.random.default_rng(1), Graph()
    table = random_weight(dice, "table", "F32", VOCABULARY, 512)
    g.output("y", g.take(g.linear(g.embed(table), random_weight(dice, "w", kind, 40, 512))))
    check(device.compile(g, slots=SLOTS, context=32, width=64))


@pytest.mark.parametrize("kind", FORMATS)
def test_products_of_experts(device, kind):
    """Every choice of company gives an expert other numbers of columns to multiply at once."""
    dice, g = np.random.default_rng(3), Graph()
    x = g.embed(random_weight(dice, "table", "F32", VOCABULARY, 256))
    ids, shares = g.route(g.linear(x, random_weight(dice, "router", "F32", 3, 256)), count=2)
    up = g.expert_linear(x, random_weight(dice, "up", kind, 3, 256, 256), ids)
    down = g.expert_linear(g.silu(up), random_weight(dice, "down", kind, 3, 40, 256), ids)
    g.output("y", g.take(g.combine(down, shares)))
    check(device.compile(g, slots=SLOTS, context=32, width=64))


@pytest.mark.parametrize("kv", ["f16", "f32", "q8_0"])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("heads", [1, 6])
def test_attention(device, window, heads, kv):
    """Over more than one tile of positions."""
    device = CpuDevice(threads=2, kv=kv, library=device.library)
    dice, g = np.random.default_rng(2), Graph()
    x = g.embed(random_weight(dice, "table", "F32", VOCABULARY, 64))
    q, k, v = (
        g.linear(x, random_weight(dice, name, "F32", n * 32, 64)).heads(n)
        for name, n in (("q", 2 * heads), ("k", 2), ("v", 2))
    )
    cache = g.store(g.rope(k, base=1e4), v, KVRing(2, 32, window))
    y = g.attend(g.rope(q, base=1e4), cache, scale=0.2, window=window)
    norm = random_weight(dice, "norm", "F32", 64 * heads)
    g.output("y", g.take(g.rms_norm(y, norm, eps=1e-6)))
    check(device.compile(g, slots=SLOTS, context=96, width=96), 80)
