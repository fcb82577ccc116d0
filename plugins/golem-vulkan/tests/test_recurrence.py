"""Recurrent states: of long runs, which go in chunks, and of columns that are taken back."""

from __future__ import annotations

import numpy as np
from golem_vulkan.lowering.recurrence import MOST_STEPS
from golem_vulkan.passes import VulkanPass

from golem_core import Columns, Graph, Recurrent, Weight

FEATURES, DIM, HEADS = 96, 16, 2
LONG = MOST_STEPS + 6


def net() -> Graph:
    """A convolution over columns, and the delta rule on its results."""
    g, rng = Graph(), np.random.default_rng(4)

    def weight(name: str, *shape: int) -> Weight:
        return Weight(name, "F32", shape, rng.standard_normal(shape, np.float32).view(np.uint8).reshape(-1))

    x, _ = g.causal_conv1d(g.embed(weight("x", 50, FEATURES)), weight("taps", FEATURES, 4), Recurrent((3, FEATURES)))
    q, k, v = (g.slice(x, 32 * i, 32 * i + 32).heads(HEADS) for i in range(3))
    gates = g.sigmoid(g.embed(weight("gates", 50, HEADS)))
    q, k = (g.l2_norm(each, eps=1e-6) for each in (q, k))
    y, _ = g.delta_net(q, k, v, g.scale(gates, by=-1.0), gates, Recurrent((HEADS, DIM, DIM)), scale=0.25)
    g.output("y", y)
    return g


def columns(tokens: np.ndarray, first: int, slot: int, tentative: bool = False) -> Columns:
    n = len(tokens)
    return Columns(tokens, first + np.arange(n), np.full(n, slot), np.arange(n), tentative=tentative)


def close(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max(), rtol=0)


def test_a_long_run_may_be_taken_back_to_any_of_its_columns(device):
    tokens = np.random.default_rng(0).integers(0, 50, (2, 4 * LONG))
    made = [device.compile(net(), slots=2, context=256, width=64, scored=64, tentative=LONG) for _ in range(2)]
    tried, plain = made
    for slot, kept in ((1, 5), (0, LONG), (1, LONG - 1), (1, 1)):
        for each in made:
            each.restore(slot, None)
            each.run(columns(tokens[slot, :LONG], 0, slot))
        guesses = tokens[slot, LONG : 2 * LONG]
        got = tried.run(columns(guesses, LONG, slot, tentative=True))["y"][:kept].copy()
        tried.keep(slot, kept)
        close(got, plain.run(columns(guesses[:kept], LONG, slot))["y"])
        following = columns(tokens[slot, 2 * LONG :], LONG + kept, slot)
        close(*(each.run(following)["y"].copy() for each in made))
    for each in made:
        each.close()


def test_states_behind_chunks_are_saved_and_restored(device):
    tokens = np.random.default_rng(1).integers(0, 50, 3 * LONG)
    run: VulkanPass = device.compile(net(), slots=2, context=256, width=64, scored=64)
    run.run(columns(tokens[:LONG], 0, 1))
    saved = run.save(1)
    once = run.run(columns(tokens[LONG:], LONG, 1))["y"].copy()
    run.restore(1, saved)
    np.testing.assert_array_equal(run.run(columns(tokens[LONG:], LONG, 1))["y"], once)
    run.close()


def test_chunks_give_what_single_columns_give(device):
    tokens = np.random.default_rng(2).integers(0, 50, 45)
    run = device.compile(net(), slots=2, context=256, width=64, scored=64)
    together = run.run(columns(tokens, 0, 0))["y"].copy()
    close(together, np.concatenate([run.run(columns(tokens[i : i + 1], i, 1))["y"].copy() for i in range(45)]))
    run.close()
