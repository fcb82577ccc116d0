"""Tentative columns: recurrent states go on from whichever of them is kept, to the last bit as if no more had run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from golem_core import Columns, Graph, GraphError, KVRing, Recurrent, Reference
from golem_core.cpu.device import CpuDevice

from .weights import random_weight

TOKENS, MOST, SLOTS, CONTEXT = 50, 4, 3, 32


@pytest.fixture(scope="module")
def cpu():
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


def build(recurrent: bool = True) -> Graph:
    """Convolutions over columns and within them, the delta rule and attention, one after another."""
    dice, g = np.random.default_rng(3), Graph()
    x = g.embed(random_weight(dice, "table", "F32", TOKENS, 64))
    if recurrent:
        x, _ = g.causal_conv1d(x, random_weight(dice, "taps", "F32", 64, 4), Recurrent((3, 64)))
        longer, _ = g.prepend(x.heads(4), Recurrent((2, 16)), start="first")
        x = g.view(g.conv1d(longer, random_weight(dice, "window", "F32", 16, 48, scale=0.2)), (64,))
        heads = g.l2_norm(x.heads(4), eps=1e-6)
        few = g.sigmoid(g.linear(x, random_weight(dice, "few", "F32", 4, 64)))
        x, _ = g.delta_net(heads, heads, x.heads(4), g.scale(few, by=-1.0), few, Recurrent((4, 16, 16)), scale=0.25)
    heads = g.view(x, (4, 16))
    x = g.attend(heads, g.store(heads, heads, KVRing(4, 16)), scale=0.25)
    g.output("y", g.take(x))
    return g


@pytest.fixture(params=["reference", "cpu"])
def compile(request, cpu):
    def make(graph: Graph):
        if request.param == "reference":
            return Reference(graph, slots=SLOTS, context=CONTEXT)
        return cpu.compile(graph, slots=SLOTS, context=CONTEXT, width=16, scored=8, tentative=MOST)

    return make


def columns(tokens, start: int, slot: int, tentative: bool = False) -> Columns:
    n = len(tokens)
    return Columns(tokens, start + np.arange(n), np.full(n, slot), np.arange(n), tentative=tentative)


@pytest.mark.parametrize("recurrent", [True, False])
def test_what_follows_is_as_if_only_the_kept_columns_had_run(compile, recurrent):
    """Twice over in each of two slots, so that shares have changed hands."""
    tokens = np.random.default_rng(0).integers(0, TOKENS, (SLOTS, CONTEXT))
    tried, plain = compile(build(recurrent)), compile(build(recurrent))
    for slot in range(SLOTS):
        for each in (tried, plain):
            each.run(columns(tokens[slot, :5], 0, slot))
    exact = not isinstance(plain, Reference)  # numpy's products round by the number of rows
    same = np.testing.assert_array_equal if exact else partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    at = [5] * SLOTS
    for slot, run, kept in ((0, 4, 1), (1, 4, 3), (0, 3, 2), (2, 1, 1), (1, 2, 1), (0, 4, 4), (1, 3, 3)):
        start = at[slot]
        guesses = tokens[slot, start : start + run].copy()
        guesses[kept:] = (guesses[kept:] + 1) % TOKENS
        rows = tried.run(columns(guesses, start, slot, tentative=True))["y"][:kept].copy()
        tried.keep(slot, kept)
        expected = [
            plain.run(columns(tokens[slot, p : p + 1], p, slot))["y"][0].copy() for p in range(start, start + kept)
        ]
        same(rows, expected)
        at[slot] += kept
    for slot in range(SLOTS):
        following = columns(tokens[slot, at[slot] : at[slot] + 2], at[slot], slot)
        last = [each.run(following)["y"].copy() for each in (tried, plain)]
        same(*last)
        for a, b in zip(tried.save(slot), plain.save(slot), strict=True):
            same(a, b)


def test_without_a_choice_all_columns_stand(compile):
    tokens = np.arange(6)
    tried, plain = compile(build()), compile(build())
    tried.run(columns(tokens[:3], 0, 0, tentative=True))
    plain.run(columns(tokens[:3], 0, 0))
    np.testing.assert_allclose(*(each.run(columns(tokens[3:], 3, 0))["y"].copy() for each in (tried, plain)), rtol=1e-5)


def test_a_slot_is_saved_and_restored_wherever_its_states_are(cpu):
    compiled = cpu.compile(build(), slots=SLOTS, context=CONTEXT, width=16, scored=8, tentative=MOST)
    compiled.run(columns([1, 2, 3, 4], 0, 1, tentative=True))
    compiled.keep(1, 2)
    saved = compiled.save(1)
    once = compiled.run(columns([5, 6], 2, 1))["y"].copy()
    compiled.restore(1, saved)
    np.testing.assert_array_equal(compiled.run(columns([5, 6], 2, 1))["y"], once)
    compiled.restore(1, None)
    assert all((each == 0).all() for each in compiled.save(1))


def test_more_than_the_pass_was_made_for_is_refused(cpu):
    compiled = cpu.compile(build(), slots=2, context=CONTEXT, width=16, scored=8, tentative=2)
    with pytest.raises(ValueError, match="2 tentative columns, not 3"):
        compiled.run(columns([1, 2, 3], 0, 0, tentative=True))
    compiled.run(columns([1, 2], 0, 0, tentative=True))
    with pytest.raises(ValueError, match="2 tentative columns, not 3"):
        compiled.keep(0, 3)
    with pytest.raises(GraphError, match="several slots"):
        Columns([1, 2], [0, 0], [0, 1], [1], tentative=True)
