"""A device whose answers give away every mistake in bookkeeping, and a model to run on it.

It keeps caches as a real one does: one entry for every position, and a ring for the layers with a sliding window.
What it stores for a position is a hash of the token and of everything that the position sees *in those caches*, so
a stale, overwritten or foreign entry changes all tokens that follow.  `continuation` computes the same from a list
of tokens alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from golem_core import Graph
from golem_core.engine import ChatModel, Engine, GenerationRequest
from golem_core.sampling import STAGES, SamplingParams

VOCABULARY = 97
END = 0


@dataclass(frozen=True)
class Ring:
    length: int
    window: int | None


class Tokenizer:
    """Token n is a letter, a piece of a longer character, or one of two control tokens."""

    eog = frozenset({END})
    vocab_size = VOCABULARY
    euro = (90, 91, 92)  # three tokens for the three bytes of one character

    def prepare(self):
        pass

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token in (END, 1):
            return b"<control>" if special else b""
        if token in self.euro:
            return "€".encode()[token - 90 :][:1]
        return chr(0x100 + token).encode()


def stored(token: int, position: int, far: list[int | None], window: list[int | None]) -> int:
    return hash((token, position, tuple(far), tuple(window)))


def logits_after(value: int) -> np.ndarray:
    """A row with one clear favourite and many ties."""
    row = ((np.arange(VOCABULARY, dtype=np.int64) * 2654435761 + value % 1_000_003) % 1009 % 8).astype(np.float32)
    row[value % VOCABULARY] = 12.0
    return row


def looked_at(position: int) -> list[int]:
    """The positions that full attention looks at, here: some of all those before."""
    return sorted({0, position // 3, position // 2, position - 1}) if position else []


def values_of(tokens: list[int], window: int) -> list[int]:
    """What is stored for each token of a conversation that stands alone."""
    values: list[int] = []
    for position, token in enumerate(tokens):
        near = values[max(0, position - window + 1) : position]
        values.append(stored(token, position, [values[p] for p in looked_at(position)], near))
    return values


def continuation(prompt: list[int], count: int, window: int, *, past_end: bool = False) -> list[int]:
    """The greedy answer of at most `count` tokens to a prompt."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        token = int(logits_after(values_of(tokens, window)[-1]).argmax())
        tokens.append(token)
        if token == END and not past_end:
            break
    return tokens[len(prompt) :]


class Pass:
    saved_bytes = 0

    def __init__(self, slots: int, context: int, width: int, window: int, spare: int):
        self.width = width
        length = min(window + width + spare, context)
        self.rings = (Ring(context, None), Ring(length, window), Ring(length, window))
        self.full = np.full((slots, context), None)
        self.near = np.full((slots, length), None)
        self.window = window
        self.ran: list[dict[int, int]] = []  # of each pass: how many columns each slot had
        self.scored = 0
        self.seconds = 0.0
        self.before: Callable[[dict[int, int]], None] = lambda columns: None
        self.inside = threading.Lock()

    def run(self, columns) -> dict[str, np.ndarray]:
        assert self.inside.acquire(blocking=False), "two threads in one pass"
        try:
            assert 0 < len(columns.token) <= self.width
            per_slot: dict[int, list[int]] = {}
            for index, slot in enumerate(columns.slot.tolist()):
                per_slot.setdefault(slot, []).append(index)
            counts = {slot: len(indices) for slot, indices in per_slot.items()}
            self.ran.append(counts)
            if self.seconds:
                time.sleep(self.seconds)
            self.before(counts)
            values = {}
            for slot, indices in per_slot.items():
                positions = columns.position[indices].tolist()
                assert positions == list(range(positions[0], positions[0] + len(positions)))
                self.near[slot, [p % self.near.shape[1] for p in positions]] = None  # all are stored before any is read
                for index, position in zip(indices, positions, strict=True):
                    values[index] = self.store(slot, position, int(columns.token[index]))
            rows = [logits_after(values[index]) for index in columns.scored.tolist()]
            self.scored += len(rows)
            logits = np.stack(rows) if rows else np.empty((0, VOCABULARY), np.float32)
            return {"logits": logits, "hidden": np.zeros((len(columns.token), 1), np.float32)}
        finally:
            self.inside.release()

    def keep(self, slot: int, count: int) -> None:
        """What was taken back stays in the caches, as it does on a real device."""

    def store(self, slot: int, position: int, token: int) -> int:
        ring = self.near[slot]
        near = [ring[p % len(ring)] for p in range(max(0, position - self.window + 1), position)]
        value = stored(token, position, [self.full[slot, p] for p in looked_at(position)], near)
        self.full[slot, position] = value
        ring[position % len(ring)] = value
        return value


class Oracle:
    """Guesses what it is told that a conversation will be, one of about three wrongly."""

    rings, saved_bytes, width = (), 0, 8

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def run(self, columns) -> dict[str, np.ndarray]:
        (place,) = columns.position[columns.scored].tolist() or [-1]
        logits = np.zeros((len(columns.scored), VOCABULARY), np.float32)
        if 0 <= place < len(self.tokens) - 2:
            logits[0, (self.tokens[place + 2] + (place * place // 5 % 3 == 0)) % VOCABULARY] = 1
        return {"logits": logits, "hidden": np.zeros((len(columns.scored), 1), np.float32)}


@dataclass
class Device:
    window: int = 8
    width: int = 8
    spare: int = 0
    passes: list[Pass] = field(default_factory=list)
    oracle: Oracle = field(default_factory=Oracle)

    def compile(
        self, graph: object, *, slots: int, context: int, width: int | None = None, scored: int = 1, tentative: int = 0
    ) -> Any:
        if graph == "guess":
            return self.oracle
        compiled = Pass(slots, context, min(self.width, width or self.width), self.window, self.spare)
        self.passes.append(compiled)
        return compiled


def graph() -> Graph:
    found = Graph()
    found.output("logits", found.take(found.input("logits", (VOCABULARY,))))
    return found


def model(**changes) -> ChatModel:
    facts = dict(
        name="fake",
        architecture="fake",
        vocab_size=VOCABULARY,
        context_train=1024,
        build=graph,
        tokenizer=Tokenizer(),
        template=None,
        fallback_template=None,
        file=SimpleNamespace(),
    )
    return ChatModel(**(facts | changes))


def engine(
    device: Device | None = None, *, stages=STAGES, suppress: tuple[int, ...] = (), drafting=None, **sizes
) -> Engine:
    sizes = {"context": 64} | sizes
    return Engine(model(suppress=suppress, drafting=drafting), device or Device(), stages=stages, **sizes)


GREEDY = SamplingParams(temperature=0)


def greedy(prompt: list[int], max_tokens: int = 8, **changes) -> GenerationRequest:
    return GenerationRequest(list(prompt), max_tokens, GREEDY, **changes)


def ids(generation) -> list[int]:
    return [token.id for token in generation]
