"""From the logits of a question's options to its answer: calibrated probabilities and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from golem_core import GolemError
from golem_laya.questions import KINDS, Question, quoted


@dataclass(frozen=True)
class Calibration:
    """What logits are divided by: by kind and number of options where there is an entry, else by kind."""

    by_kind: tuple[float, ...]
    by_options: Mapping[str, float]

    def temperature(self, kind: str, options: int) -> float:
        bucket = "2" if options <= 2 else "3-5" if options <= 5 else "6-10" if options <= 10 else "11+"
        return self.by_options.get(f"{kind}:{bucket}", self.by_kind[KINDS.index(kind)])

    def answer(self, question: Question, logits: np.ndarray, act: float) -> dict[str, Any]:
        """The answer as the API gives it; `logits` is float32 (options,), `act` the probability of acting on it.

        Raises GolemError where either is no number.
        """
        with np.errstate(all="ignore"):
            p = softmax(logits / np.float32(self.temperature(question.kind, len(logits))))
        if not (np.isfinite(p).all() and isfinite(act)):
            raise GolemError(f"laya: question {quoted(question.name)}: the network gave numbers that are not finite")
        rest = {"rl_agent": {"act_probability": rounded(act)}}
        if question.kind == "noul":
            return {"type": "noul", "noul": rounded(p[1]), **rest}
        shares = {label: rounded(each) for label, each in zip(question.labels, p, strict=True)}
        rest = {"probabilities": shares, "confidence": rounded(confidence(p)), **rest}
        if question.kind == "choice":
            return {"type": "choice", "choice": question.labels[int(np.argmax(p))], **rest}
        level = float(np.sum(np.arange(len(p)) * p.astype(np.float64)))
        return {"type": "score", "score": rounded(level), "legend": dict(question.legend), **rest}


def softmax(x: np.ndarray) -> np.ndarray:
    """float32 (n,) -> exp(x) / sum(exp(x))."""
    e = np.exp(x - x.max())
    return e / e.sum()


def entropy(p: np.ndarray, least: float) -> float:
    """-sum p ln p, in nats; probabilities below `least` count as that in the logarithm."""
    p = p.astype(np.float64)
    return float(-np.sum(p * np.log(np.clip(p, least, 1.0))))


def confidence(p: np.ndarray) -> float:
    """1 for certainty, 0 where all options are equal."""
    return 1.0 if len(p) < 2 else 1.0 - entropy(p, 1e-12) / log(len(p))


def act_features(first: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """What the act head reads: the row of the first position (width,), then four facts of the uncalibrated shares.

    They are the largest, its lead over the second, the entropy as a share of the most, and the number of options.
    """
    p = softmax(logits)
    largest = np.sort(p)[::-1]
    lead = largest[0] - (largest[1] if len(p) > 1 else 0)
    facts = [largest[0], lead, entropy(p, 1e-9) / log(max(len(p), 2)), max(len(p), 2) / 255]
    return np.concatenate([first, np.array(facts, np.float32)])


def rounded(value: float | np.floating) -> float:
    """Four decimals, and no negative zero."""
    return round(float(value), 4) + 0.0
