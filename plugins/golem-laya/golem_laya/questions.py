"""Questions as a client asks them, and the texts that the encoder reads of them.

Three kinds: "choice" (one of several labels), "score" (a level of an ordered scale) and "noul" (whether a statement
holds).  Each becomes a head and one text for each option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from golem_core import GolemError

KINDS = ("choice", "score", "noul")
"""In the order in which the checkpoints number them."""

_FALSE, _TRUE = "no, the statement does not hold", "yes, the statement holds"


class BadQuestion(GolemError):
    """A question that cannot be read, or whose options do not fit; the message names it."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"laya: question {quoted(name)}: {reason}")


def quoted(name: str) -> str:
    """A question's name as messages show it."""
    return json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True)
class Question:
    """`head` and `options` are the texts to encode; `labels` what an answer calls the options.

    `legend` has what a score's levels are called.
    """

    name: str
    kind: str
    head: str
    options: tuple[str, ...]
    labels: tuple[str, ...]
    legend: Mapping[str, str]

    @classmethod
    def read(cls, name: str, asked: Mapping[str, Any]) -> Question:
        """Raises BadQuestion naming what is missing or wrong."""
        kind = asked.get("type")
        if kind not in KINDS:
            raise BadQuestion(name, f"type is {_shown(kind)}; it is one of {', '.join(KINDS)}")
        instructions = asked.get("instructions")
        if instructions is None:
            raise BadQuestion(name, "there are no instructions")
        if not isinstance(instructions, str):
            instructions = json.dumps(instructions)
        labels, texts = _OPTIONS[kind](name, asked.get("criteria"))
        legend = dict(zip(labels, texts, strict=True)) if kind == "score" else {}
        return cls(
            name=name,
            kind=kind,
            head=f"{kind} question: {instructions}",
            options=tuple(f" {text}" for text in _option_texts(kind, labels, texts)),
            labels=labels,
            legend=legend,
        )


def state_text(state: Any) -> str:
    """A state as the encoder reads it: a text as it is, anything else as JSON."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


def _option_texts(kind: str, labels: tuple[str, ...], texts: tuple[str, ...]) -> list[str]:
    if kind == "score":
        return [f"level {label}: {text}" for label, text in zip(labels, texts, strict=True)]
    return [f"{label}: {text}" if text else label for label, text in zip(labels, texts, strict=True)]


_Options = tuple[tuple[str, ...], tuple[str, ...]]


def _choice(name: str, criteria: Any) -> _Options:
    """Labels, and what describes each; "" for nothing."""
    if isinstance(criteria, list):
        for label in criteria:
            if not isinstance(label, str):
                raise BadQuestion(name, f"criteria has {_shown(label)} for a label; labels are texts")
        criteria = dict.fromkeys(criteria)
    if not isinstance(criteria, dict):
        raise BadQuestion(name, f"criteria is {_shown(criteria)}; a choice has a list or an object of labels")
    _at_least_two(name, len(criteria), "labels")
    return tuple(criteria), tuple(_text(each) if each else "" for each in criteria.values())


def _score(name: str, criteria: Any) -> _Options:
    if not isinstance(criteria, list):
        raise BadQuestion(name, f"criteria is {_shown(criteria)}; a score has a list of levels")
    _at_least_two(name, len(criteria), "levels")
    return tuple(str(level) for level in range(len(criteria))), tuple(map(_text, criteria))


def _noul(name: str, criteria: Any) -> _Options:
    if criteria is not None and not isinstance(criteria, dict):
        raise BadQuestion(name, f'criteria is {_shown(criteria)}; a noul has none or an object of "false" and "true"')
    said = criteria or {}
    texts = [_text(said[label]) if said.get(label) else default for label, default in _DEFAULTS.items()]
    return tuple(_DEFAULTS), tuple(texts)


_DEFAULTS = {"false": _FALSE, "true": _TRUE}
_OPTIONS = {"choice": _choice, "score": _score, "noul": _noul}


def _at_least_two(name: str, count: int, what: str) -> None:
    if count < 2:
        raise BadQuestion(name, f"criteria has {count} {what}; at least two are needed")


def _text(value: Any) -> str:
    """A description as a text: Python's own writing of a number or a truth value, JSON of a list or an object."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
