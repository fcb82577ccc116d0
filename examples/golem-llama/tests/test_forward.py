"""The forward pass gives what transformers gives, however the tokens are cut into passes."""

from __future__ import annotations

import numpy as np

from golem_core import Columns

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
    assert max(errors.values()) < TOLERANCE, errors


def test_logits_are_those_of_the_scored_columns(model, compile, columns):
    scored = [3, 23, 11]
    out = compile(model.graph()).run(columns(model.tokens, scored=scored))
    assert error(out["logits"], model.expected["logits"][scored]) < TOLERANCE


def test_a_prompt_in_pieces_gives_what_it_gives_at_once(model, compile, columns):
    run, rows, start = compile(model.graph()).run, [], 0
    for size in (3, 9, 7, 1, 1, 1, 1, 1):
        rows.append(run(columns(model.tokens[start : start + size], start))["logits"].copy())
        start += size
    assert start == len(model.tokens)
    assert error(np.concatenate(rows), model.expected["logits"]) < TOLERANCE


def test_conversations_in_one_pass_do_not_see_each_other(model, compile, columns):
    run, tokens = compile(model.graph(), slots=2).run, model.tokens
    run(columns(tokens[::-1][:4], slot=0))
    both = run(
        Columns(
            token=np.concatenate([tokens[::-1][4:6], tokens]),
            position=np.concatenate([[4, 5], np.arange(len(tokens))]),
            slot=np.repeat([0, 1], [2, len(tokens)]),
            scored=np.arange(2, len(tokens) + 2),
        )
    )
    assert error(both["logits"], model.expected["logits"]) < TOLERANCE
