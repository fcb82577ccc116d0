"""The gated delta rule in chunks of columns, as the shaders compute it, gives what it gives column after column."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph, Recurrent
from golem_core.graph import ops
from golem_core.graph.reference import Run

KEY_HEADS, HEADS, DK, DV = 2, 4, 16, 12
LENGTHS = {2: 37, 0: 1, 1: 64, 4: 8}
"""Columns of each slot's run, in the order in which they stand in the pass."""
DECAYS = {
    "mild": lambda rng, shape: -0.3 * rng.random(shape),
    "none": lambda rng, shape: np.zeros(shape),
    "strong": lambda rng, shape: -20 * rng.random(shape),
    "all at once": lambda rng, shape: rng.choice([0, -1e-3, -20], shape),
}
BETAS = {
    "between": lambda rng, shape: rng.random(shape),
    "nothing or everything": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
}


def chunk_of_columns(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, beta: np.ndarray, s: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """One head's columns all at once, in the WY form (arXiv:2406.06484, with gates arXiv:2412.06464, section 3.3).

    q and k are (columns, dk), v (columns, dv), decay and beta (columns,), the state s (dk, dv) -> y (columns, dv), and
    the state after them.  No exponent is positive, and none is a difference of long sums.
    """
    n = len(q)
    lower = np.tri(n, k=-1, dtype=bool)  # column j stands before column i
    between = np.cumsum(np.where(lower, decay[:, None], 0), axis=0)  # decay[j + 1] + ... + decay[i]
    fade = np.where(np.tri(n, dtype=bool), np.exp(between), 0)
    before = np.exp(np.cumsum(decay))[:, None]
    behind = np.exp(between[-1])[:, None]
    mixed = np.where(lower, beta[:, None] * (k @ k.T) * fade, 0)
    u = np.linalg.solve(np.eye(n, dtype=s.dtype) + mixed, beta[:, None] * (v - before * (k @ s)))
    y = scale * (before * (q @ s) + (q @ k.T * fade) @ u)
    return y, before[-1] * s + (behind * k).T @ u


def in_chunks(length: int, q, k, v, decay, beta, states: np.ndarray, runs, scale: float) -> np.ndarray:
    """The op's y; `states` (slots, heads, dk, dv) are changed as the op changes them."""
    y, scale = np.empty_like(v), v.dtype.type(scale)
    for slot, here in runs:
        for first in range(here.start, here.stop, length):
            at = slice(first, min(first + length, here.stop))
            for h in range(v.shape[1]):
                heads = q[at, h % q.shape[1]], k[at, h % k.shape[1]], v[at, h]
                gates = decay[at, h], beta[at, h]
                y[at, h], states[slot, h] = chunk_of_columns(*heads, *gates, states[slot, h], scale)
    return y


@pytest.mark.parametrize("length", [1, 8, 13, 32, 64])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("kind", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_chunks_of_any_length_give_what_single_columns_give(kind, tolerance, decay, beta, length):
    """Two passes of several slots, so that the second begins with the states that the first leaves."""
    rng = np.random.default_rng(5)
    slot = np.repeat(list(LENGTHS), list(LENGTHS.values()))
    n = len(slot)
    columns = Columns(np.zeros(n), np.zeros(n), slot)
    g, state = Graph(), Recurrent((HEADS, DK, DV))
    shapes = (KEY_HEADS, DK), (KEY_HEADS, DK), (HEADS, DV), (HEADS,), (HEADS,)
    g.delta_net(*(g.input(name, shape) for name, shape in zip("qkvdb", shapes, strict=True)), state, scale=0.25)
    single = rng.standard_normal((max(LENGTHS) + 1, HEADS, DK, DV)).astype(kind)
    chunked = single.copy()
    run = Run(columns, {state: (single,)}, "all")
    for _ in range(2):
        q, k, v = (rng.standard_normal((n, *shape)) for shape in shapes[:3])
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
        gates = DECAYS[decay](rng, (n, HEADS)), BETAS[beta](rng, (n, HEADS))
        given = [x.astype(kind) for x in (q, k, v, *gates)]
        want, _ = ops.delta_net.meaning(run, *given, state, 0.25)
        got = in_chunks(length, *given, chunked, run.runs, 0.25)
        assert got.dtype == want.dtype == kind
        np.testing.assert_allclose(got, want, atol=tolerance * np.abs(want).max(), rtol=0)
        np.testing.assert_allclose(chunked, single, atol=tolerance * np.abs(single).max(), rtol=0)
