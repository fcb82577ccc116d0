"""The forward passes give what transformers gives, however the tokens are cut into passes."""

from __future__ import annotations

import numpy as np
import pytest

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
    errors["logits"] = error(out["logits"], model.expected["logits"])
    assert max(errors.values()) < TOLERANCE, errors


def test_logits_are_those_of_the_scored_columns(model, compile, columns):
    scored = [3, 23, 11]
    out = compile(model.graph()).run(columns(model.tokens, scored=scored))
    assert error(out["logits"], model.expected["logits"][scored]) < TOLERANCE


@pytest.mark.parametrize("sizes", [(3, 9, 7, 1, 1, 1, 1, 1), (1,) * 24, (2, 22), (16, 8)], ids=str)
def test_a_prompt_in_pieces_gives_what_it_gives_at_once(model, compile, columns, sizes):
    run, rows, start = compile(model.graph()).run, [], 0
    for size in sizes:
        rows.append(run(columns(model.tokens[start : start + size], start))["logits"].copy())
        start += size
    assert start == len(model.tokens)
    assert error(np.concatenate(rows), model.expected["logits"]) < TOLERANCE


def test_conversations_in_one_pass_do_not_see_each_other(model, compile, columns):
    """Three slots: two have read something already, in the other order, when the third's prompt comes along."""
    run, tokens = compile(model.graph(), slots=3).run, model.tokens
    other, third = tokens[::-1], tokens[5:9]
    first = run(columns(other[:4], slot=0))["logits"].copy()
    run(columns(third[:3], slot=2))
    both = run(
        Columns(
            token=np.concatenate([third[3:], other[4:6], tokens]),
            position=np.concatenate([[3], [4, 5], np.arange(len(tokens))]),
            slot=np.repeat([2, 0, 1], [1, 2, len(tokens)]),
            scored=np.arange(len(tokens) + 3),
        )
    )["logits"].copy()
    assert error(both[3:], model.expected["logits"]) < TOLERANCE
    alone = compile(model.graph()).run(columns(other[:6]))["logits"]
    assert error(np.concatenate([first, both[1:3]]), alone) < TOLERANCE
    alone = compile(model.graph()).run(columns(third, scored=[3]))["logits"]
    assert error(both[:1], alone) < TOLERANCE


@pytest.mark.parametrize("name", ["qwen35-tied", "qwen35-untied"])
def test_a_slot_put_back_to_what_was_saved_goes_on_from_there(load, compile, columns, name):
    """Keys and values of the abandoned end are written over; the recurrent states come from the copy."""
    model = load(name)
    compiled, tokens = compile(model.graph(), slots=2), model.tokens
    compiled.run(columns(tokens[:9], slot=1))
    saved = compiled.save(1)
    compiled.run(columns(tokens[::-1][:12], start=9, slot=1))
    compiled.run(columns(tokens[:5], slot=0))
    compiled.restore(1, saved)
    rest = compiled.run(columns(tokens[9:], start=9, slot=1))["logits"].copy()
    assert error(rest, model.expected["logits"][9:]) < TOLERANCE
    compiled.restore(1, None)
    again = compiled.run(columns(tokens, slot=1))["logits"]
    assert error(again, model.expected["logits"]) < TOLERANCE


@pytest.mark.parametrize("name", ["qwen35-tied"])
def test_without_going_back_to_the_copy_the_states_are_others(load, compile, columns, name):
    model = load(name)
    compiled, tokens = compile(model.graph()), model.tokens
    compiled.run(columns(tokens[:9]))
    compiled.run(columns(tokens[::-1][:12], start=9))
    rest = compiled.run(columns(tokens[9:], start=9))["logits"]
    assert error(rest, model.expected["logits"][9:]) > 100 * TOLERANCE
