"""Calibration and the arithmetic of answers, against worked numbers."""

from __future__ import annotations

import numpy as np
import pytest
from golem_laya.answers import Calibration, act_features, rounded
from golem_laya.questions import Question

from golem_core import GolemError

ENGLISH = Calibration(
    (1.6369030475616455, 1.2514300346374512, 1.983399510383606),
    {
        "choice:2": 1.9063563346862793,
        "choice:3-5": 1.7601518630981445,
        "choice:6-10": 1.0000158548355103,
        "choice:11+": 0.10058280825614929,
        "score:3-5": 1.2514300346374512,
        "noul:2": 1.983399510383606,
    },
)
PLAIN = Calibration((1.0, 1.0, 1.0), {})


def question(kind: str, count: int) -> Question:
    criteria = None if kind == "noul" else [f"o{i}" for i in range(count)]
    return Question.read("q", {"type": kind, "instructions": "?", "criteria": criteria})


def answer(calibration: Calibration, kind: str, logits: list[float]) -> dict:
    return calibration.answer(question(kind, len(logits)), np.array(logits, np.float32), 0.25)


@pytest.mark.parametrize(
    ("calibration", "kind", "logits", "shares", "sure", "value"),
    [
        (ENGLISH, "choice", [3.2, -1.1, -2.4], [0.8862, 0.0770, 0.0368], 0.6122, "o0"),
        (PLAIN, "choice", [3.2, -1.1, -2.4], [0.9830, 0.0133, 0.0036], 0.9137, "o0"),
        (ENGLISH, "score", [-1.5, 0.4, 1.9, -0.2], [0.0425, 0.1940, 0.6433, 0.1201], 0.2853, 1.8411),
        (
            ENGLISH,
            "score",
            [0.5, 0.1, 0.2, 0.3, -0.4, 1.0],
            [0.1871, 0.1359, 0.1472, 0.1595, 0.0912, 0.2790],
            0.0321,
            2.6687,
        ),
    ],
)
def test_probabilities_confidence_and_value(calibration, kind, logits, shares, sure, value):
    found = answer(calibration, kind, logits)
    assert list(found["probabilities"].values()) == shares
    assert found["confidence"] == sure
    assert found[kind] == value
    assert found["rl_agent"] == {"act_probability": 0.25}


def test_many_options_are_divided_by_the_small_temperature_of_the_file():
    found = answer(ENGLISH, "choice", np.linspace(-0.2, 0.2, 12).tolist())
    expected = [0.0058, 0.0083, 0.0119, 0.0170, 0.0245, 0.0351, 0.0504, 0.0724, 0.1039, 0.1492, 0.2141, 0.3074]
    assert list(found["probabilities"].values()) == expected


def test_a_noul_is_the_probability_of_true():
    assert answer(ENGLISH, "noul", [-0.5, 2.0]) == {
        "type": "noul",
        "noul": 0.7791,
        "rl_agent": {"act_probability": 0.25},
    }


def test_keys_stand_in_the_order_of_the_api():
    assert list(answer(PLAIN, "choice", [1, 2])) == ["type", "choice", "probabilities", "confidence", "rl_agent"]
    found = answer(PLAIN, "score", [1, 2])
    assert list(found) == ["type", "score", "legend", "probabilities", "confidence", "rl_agent"]
    assert found["legend"] == {"0": "o0", "1": "o1"}


def test_the_first_of_equal_options_is_chosen():
    assert answer(PLAIN, "choice", [1.0, 1.0, 0.0])["choice"] == "o0"


def test_the_act_heads_facts():
    row = np.zeros(3, np.float32)
    facts = act_features(row, np.array([3.2, -1.1, -2.4], np.float32))[3:]
    np.testing.assert_allclose(facts, [0.983027, 0.969688, 0.086318, 0.011765], atol=1e-6)
    np.testing.assert_allclose(act_features(row, np.array([0.3], np.float32))[3:], [1, 1, 0, 0.007843], atol=1e-6)


@pytest.mark.parametrize(
    ("logits", "act"), [([float("nan"), 1.0], 0.5), ([1e38, -1e38], 0.5), ([1.0, 2.0], float("nan"))]
)
def test_what_is_no_number_is_no_answer(logits, act):
    calibration = Calibration((1e-6, 1e-6, 1e-6), {})
    with pytest.raises(GolemError, match='question "q": the network gave numbers that are not finite'):
        calibration.answer(question("choice", 2), np.array(logits, np.float32), act)


def test_there_is_no_negative_zero():
    assert str(rounded(-0.00001)) == "0.0"
