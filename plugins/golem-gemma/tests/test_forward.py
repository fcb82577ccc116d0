"""The forward passes give what transformers gives, however the tokens are cut into passes."""

from __future__ import annotations

import numpy as np
from golem_gemma import gemma4

from golem_core import Columns, Graph

TOLERANCE = 1e-4


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest value expected."""
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_every_block_gives_what_transformers_gives(model, compile, columns):
    out = compile(model.waypoints()).run(columns(model.tokens))
    errors = {"embedding": error(out["embedding"], model.expected["embedding"])}
    for i, expected in enumerate(model.expected["blocks"]):
        errors[f"block {i}"] = error(out[f"block {i}"], expected)
    errors["logits"] = error(out["logits"], model.expected["logits"])
    assert max(errors.values()) < TOLERANCE, errors


def test_inputs_per_layer_are_those_of_transformers(load, compile, columns):
    model, g = load("gemma4-e2b"), Graph()
    embedding = g.scale(g.embed(model.file.weights.token_embd), by=model.config.width**0.5)
    g.output("inputs", gemma4.per_layer_inputs(g, model.config, model.file.weights, embedding))
    assert error(compile(g).run(columns(model.tokens))["inputs"], model.expected["per_layer"]) < TOLERANCE


def test_logits_are_those_of_the_scored_columns(model, compile, columns):
    scored = [3, 23, 11]
    out = compile(model.graph()).run(columns(model.tokens, scored=scored))
    assert error(out["logits"], model.expected["logits"][scored]) < TOLERANCE


def test_a_prompt_in_pieces_gives_what_it_gives_at_once(model, compile, columns):
    """The pieces are shorter and longer than the window, and the last tokens come one by one."""
    run, rows, start = compile(model.graph()).run, [], 0
    for size in (3, 9, 7, 1, 1, 1, 1, 1):
        rows.append(run(columns(model.tokens[start : start + size], start))["logits"].copy())
        start += size
    assert start == len(model.tokens)
    assert error(np.concatenate(rows), model.expected["logits"]) < TOLERANCE


def test_conversations_in_one_pass_do_not_see_each_other(model, compile, columns):
    """Two slots: one has read four tokens already when the other's prompt comes along."""
    run, tokens = compile(model.graph(), slots=2).run, model.tokens
    other = tokens[::-1]
    first = run(columns(other[:4], slot=0))["logits"].copy()
    both = run(
        Columns(
            token=np.concatenate([other[4:6], tokens]),
            position=np.concatenate([[4, 5], np.arange(len(tokens))]),
            slot=np.repeat([0, 1], [2, len(tokens)]),
            scored=np.arange(len(tokens) + 2),
        )
    )["logits"].copy()
    assert error(both[2:], model.expected["logits"]) < TOLERANCE
    alone = compile(model.graph()).run(columns(other[:6]))["logits"]
    assert error(np.concatenate([first, both[:2]]), alone) < TOLERANCE
