"""What texts become of a question and a state, and what is refused."""

from __future__ import annotations

import json

import pytest
from golem_laya.questions import BadQuestion, Question, state_text


def read(**asked) -> Question:
    return Question.read("q", {"instructions": "Is it?", **asked})


def test_a_choice_from_labels_with_descriptions():
    found = read(type="choice", criteria={"billing": "payments, refunds", "support": None, "sales": "", "n": 3})
    assert found.head == "choice question: Is it?"
    assert found.options == (" billing: payments, refunds", " support", " sales", " n: 3")
    assert found.labels == ("billing", "support", "sales", "n")


def test_a_choice_from_a_list_leaves_out_repetitions():
    assert read(type="choice", criteria=["a", "b", "a"]).options == (" a", " b")


def test_a_score():
    found = read(type="score", criteria=["low", 2, True, None, 1.5, {"é": [1]}])
    levels = ("low", "2", "True", "None", "1.5", '{"é": [1]}')
    assert found.options == tuple(f" level {i}: {each}" for i, each in enumerate(levels))
    assert found.legend == {str(i): each for i, each in enumerate(levels)}


@pytest.mark.parametrize("criteria", [None, {}, {"other": "x"}, {"true": "", "false": None}])
def test_a_noul_has_statements_of_its_own(criteria):
    found = read(type="noul", criteria=criteria)
    assert found.options == (" false: no, the statement does not hold", " true: yes, the statement holds")


def test_a_noul_with_descriptions():
    assert read(type="noul", criteria={"true": "oui", "false": "non"}).options == (" false: non", " true: oui")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"type": "rank"}, 'type is "rank"'),
        ({}, "type is null"),
        ({"type": ["choice"]}, "type is"),
        ({"type": "noul", "instructions": None}, "no instructions"),
        ({"type": "choice"}, "criteria is null"),
        ({"type": "choice", "criteria": "ab"}, 'criteria is "ab"'),
        ({"type": "choice", "criteria": []}, "0 labels"),
        ({"type": "choice", "criteria": ["one"]}, "1 labels"),
        ({"type": "choice", "criteria": ["a", 1]}, "criteria has 1"),
        ({"type": "score", "criteria": {"a": 1}}, "a score has a list"),
        ({"type": "score", "criteria": []}, "0 levels"),
        ({"type": "noul", "criteria": ["a"]}, "a noul has none"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(asked, reason):
    with pytest.raises(BadQuestion, match='question "q": ') as refusal:
        read(**asked)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('"plain é"', "plain é"),
        ('{"a":1,"b":[1.0,1e22,1E16,0.00001]}', '{"a": 1, "b": [1.0, 1e+22, 1e+16, 1e-05]}'),
        ('{"a":1,"b":2,"a":3}', '{"a": 3, "b": 2}'),
        ('["\\u007f/\\n\\"\\u0001é🦊", true, null]', '["\x7f/\\n\\"\\u0001é🦊", true, null]'),
        ("0.0001", "0.0001"),
    ],
)
def test_a_state_is_written_as_python_writes_json(body, text):
    assert state_text(json.loads(body)) == text


def test_instructions_that_are_no_text_are_written_in_ascii():
    assert read(type="noul", instructions=["é🦊"]).head == 'noul question: ["\\u00e9\\ud83e\\udd8a"]'
