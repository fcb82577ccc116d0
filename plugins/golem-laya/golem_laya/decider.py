"""A checkpoint on a device: questions about a state come in, answers go out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import Columns, Device, Unavailable, Weights, duration, open_device
from golem_laya.answers import act_features, softmax
from golem_laya.checkpoint import Checkpoint
from golem_laya.encoder import build
from golem_laya.questions import KINDS, Question, state_text
from golem_laya.sequences import Fed

WIDTH = 512
"""Most positions of a pass, unless a sequence may be longer."""
SEQUENCES = 64
"""Most sequences of a pass."""


class Gone(Exception):
    """Nobody wants the answers any more."""


@dataclass(frozen=True)
class Asked:
    """A question and the sequence that it became."""

    question: Question
    fed: Fed


@dataclass(frozen=True)
class Decisions:
    """The answers by the questions' names, in their order, and how many positions were read."""

    answers: dict[str, Any]
    positions: int


class ActHead:
    """Whether a decision is to be acted upon: two small layers on a row and the facts of the answer."""

    def __init__(self, weights: Weights):
        named = [f"act_head.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")]
        self._parts = [weights[name].dequantize() for name in named]

    def __call__(self, row: np.ndarray, logits: np.ndarray) -> float:
        """Row of the first position (width,) and logits (options,) -> a probability."""
        first, first_bias, second, second_bias = self._parts
        hidden = first @ act_features(row, logits) + first_bias
        hidden = np.array([h / 2 * (1 + erf(h / sqrt(2))) for h in hidden.tolist()], np.float32)
        return float(softmax(second @ hidden + second_bias)[0])


class Decider:
    """Answers requests in turn; the questions of one go through the encoder together.

    `name` and `described` are what a server says of it.
    """

    def __init__(
        self, checkpoint: Checkpoint, device: Device, progress: Callable[[int, int], None] | None = None
    ) -> None:
        start = time.perf_counter()
        self.checkpoint, self.name = checkpoint, "laya"
        self._device, self._lock, self._closed = device, threading.Lock(), False
        weights, longest = checkpoint.file.weights, checkpoint.budget.whole
        self._kinds = weights.type_emb.dequantize()
        self._act = ActHead(weights)
        self._width = max(WIDTH, longest)
        self._pass = device.compile(
            build(checkpoint.config, weights),
            slots=SEQUENCES,
            context=longest,
            width=self._width,
            scored=self._width,
            progress=progress,
        )
        self.described = (
            f"{self.name}: {checkpoint.config.layers} layers, sequences of up to {longest} positions, "
            f"on {device.name}, loaded in {duration(time.perf_counter() - start)}"
        )

    @classmethod
    def open(
        cls, path: str | Path, options: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Decider:
        """The checkpoint in a directory, on the device that `options` name.

        Raises BadFile, Unsupported or GolemError naming what is wrong with directory or device.
        """
        checkpoint = Checkpoint.open(path)
        try:
            device = open_device(options)
            try:
                return cls(checkpoint, device, progress)
            except BaseException:
                device.close()
                raise
        except BaseException:
            checkpoint.close()
            raise

    def decide(
        self, state: Any, questions: Mapping[str, Mapping[str, Any]], gone: Callable[[], bool] = lambda: False
    ) -> Decisions:
        """Answer `questions`, by name, about a JSON value.

        `gone` is asked before every pass.  Raises BadQuestion for a question that cannot be answered, Gone where nobody
        wants the answers any more, and Unavailable when the server ends.
        """

        def go_on() -> None:
            if self._closed:
                raise Unavailable("the server is stopping")
            if gone():
                raise Gone

        asked = self.sequences(state, questions)
        answers: dict[str, Any] = {}
        with self._lock:
            go_on()
            for each, row, logits in self.passes(asked, go_on):
                act = self._act(row, logits)
                answers[each.question.name] = self.checkpoint.calibration.answer(each.question, logits, act)
        return Decisions(answers, sum(len(each.fed.ids) for each in asked))

    def sequences(self, state: Any, questions: Mapping[str, Mapping[str, Any]]) -> list[Asked]:
        """What is fed for each question.  Raises BadQuestion."""
        tokens, budget = self.checkpoint.tokens, self.checkpoint.budget
        read = [Question.read(name, asked) for name, asked in questions.items()]
        ids = tokens.first(state_text(state), budget.whole) if read else []
        return [Asked(question, budget.sequence(question, tokens, ids)) for question in read]

    def passes(
        self, asked: Sequence[Asked], before: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Asked, np.ndarray, np.ndarray]]:
        """Each question with float32 (width,) at the first position and logits (options,), valid until the next.

        As many sequences as fit go into a pass together; `before` is called before each.
        """
        for together in self._packed(asked):
            before()
            for each, (row, logits) in zip(together, self.run(together), strict=True):
                yield each, row, logits

    def run(self, asked: Sequence[Asked]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """One pass over sequences that fit into it: float32 (width,) at the first position, and logits (options,)."""
        lengths = [len(each.fed.ids) for each in asked]
        starts = np.cumsum([0, *lengths[:-1]])
        scored = [start + place for start, each in zip(starts, asked, strict=True) for place in (0, *each.fed.marks)]
        kinds = [KINDS.index(each.question.kind) for each in asked]
        out = self._pass.run(
            Columns(
                token=np.concatenate([each.fed.ids for each in asked]),
                position=np.concatenate([np.arange(length) for length in lengths]),
                slot=np.repeat(np.arange(len(asked)), lengths),
                scored=np.array(scored),
                inputs={"kind": np.repeat(self._kinds[kinds], lengths, axis=0)},
            )
        )
        at = 0
        for each in asked:
            stop = at + 1 + len(each.fed.marks)
            yield out["row"][at], out["logit"][at + 1 : stop, 0]
            at = stop

    def _packed(self, asked: Sequence[Asked]) -> Iterator[list[Asked]]:
        """The sequences in their order, as many together as a pass takes."""
        together: list[Asked] = []
        room = self._width
        for each in asked:
            if len(each.fed.ids) > room or len(together) == SEQUENCES:
                yield together
                together, room = [], self._width
            together.append(each)
            room -= len(each.fed.ids)
        if together:
            yield together

    def cancel(self) -> None:
        """Let no further request begin."""
        self._closed = True

    def close(self) -> None:
        """Let go of device and file."""
        self._closed = True
        with self._lock:
            self._device.close()
            self.checkpoint.close()
