"""The forward pass gives what torch gives, whatever texts share it."""

from __future__ import annotations

import numpy as np
import pytest
from golem_nomic import model as nomic

TOLERANCE = 1e-5


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest value expected."""
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_every_block_gives_what_torch_gives(model, compile, columns):
    out = compile(model.waypoints()).run(columns(model.texts))
    errors = {"start": error(out["start"], model.expected["embedding"])}
    for i, expected in enumerate(model.expected["blocks"]):
        errors[f"block {i}"] = error(out[f"block {i}"], expected)
    errors["vectors"] = error(out["embedding"], model.expected["vectors"])
    assert max(errors.values()) < TOLERANCE, errors


def test_a_text_has_the_same_vector_alone_and_in_company_to_the_last_bit(model, cpu, columns):
    run = cpu.compile(model.waypoints(), slots=8, context=64, width=256).run
    texts = model.texts
    together = run(columns(texts))["embedding"].copy()
    for order in ([3, 2, 1, 0], [2, 0, 3, 1, 1, 2]):
        shuffled = run(columns([texts[i] for i in order]))["embedding"]
        np.testing.assert_array_equal(shuffled, together[order])
    for index, text in enumerate(texts):
        np.testing.assert_array_equal(run(columns([text]))["embedding"][0], together[index])


def test_shares_that_add_up_to_one_would_be_noticed(load, cpu, columns, monkeypatch):
    def mixture(g, cfg, w, x):
        ids, shares = g.route(g.linear(x, w.ffn_gate_inp), count=cfg.experts_used)
        up = g.gelu(g.expert_linear(x, w.ffn_up_exps, ids), exact=True)
        return g.combine(g.expert_linear(up, w.ffn_down_exps, ids), shares)

    monkeypatch.setattr(nomic, "mixture", mixture)
    model = load("nomic-moe")
    got = cpu.compile(model.waypoints(), slots=8, context=64, width=256).run(columns(model.texts))
    assert error(got["block 0"], model.expected["blocks"][0]) < TOLERANCE
    assert error(got["block 1"], model.expected["blocks"][1]) > 1000 * TOLERANCE


@pytest.mark.parametrize("pooling, rows", [(1, None), (2, 0), (3, -1)])
def test_a_vector_is_the_mean_the_first_or_the_last_position(altered, cpu, load, columns, pooling, rows):
    file = altered(keys={"pooling_type": pooling})
    model = load("nomic-moe")
    g = nomic.build(nomic.NomicConfig.read(file, model.config.vocabulary), file.weights)
    got = cpu.compile(g, slots=8, context=64, width=256).run(columns(model.texts))["embedding"]
    last = np.split(model.expected["blocks"][-1], np.cumsum(model.expected["lengths"])[:-1])
    expected = np.stack([part.mean(0) if rows is None else part[rows] for part in last])
    assert error(got, expected) < TOLERANCE
