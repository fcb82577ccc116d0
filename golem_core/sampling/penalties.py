"""Penalties on tokens that occurred lately: repeat_penalty, frequency_penalty and presence_penalty.

The rule is that of llama.cpp (src/llama-sampler.cpp), over the last `repeat_last_n` tokens of prompt and
answer together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams


class TokenCounts:
    """How often each token occurs among the last `length` (None: all), kept up as the window slides.

    The distinct tokens and their counts stand in two arrays, so that looking at them costs nothing per draw.
    """

    def __init__(self, length: int | None, tokens: Sequence[int]):
        start = tokens if length is None else tokens[max(0, len(tokens) - length) :]
        self._length = length
        self._window = deque(start)
        distinct, counts = np.unique(np.asarray(start, dtype=np.int64), return_counts=True)
        self._size = len(distinct)
        self._tokens = distinct
        self._counts = counts.astype(np.int64)
        self._index = {int(token): at for at, token in enumerate(distinct)}

    @property
    def tokens(self) -> np.ndarray:
        """The distinct tokens, int64 (n,), in no particular order."""
        return self._tokens[: self._size]

    @property
    def counts(self) -> np.ndarray:
        """Their counts, int64 (n,), each at least 1."""
        return self._counts[: self._size]

    def push(self, token: int) -> None:
        """Let `token` enter the window, and the oldest one fall out of a full one."""
        at = self._index.get(token)
        if at is None:
            if self._size == len(self._tokens):
                self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens, shape=self._size + 64)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts, shape=self._size + 64)])
            at = self._index[token] = self._size
            self._tokens[at], self._counts[at] = token, 0
            self._size += 1
        self._counts[at] += 1
        if self._length is None:
            return
        self._window.append(token)
        if len(self._window) > self._length:
            self._drop(self._window.popleft())

    def _drop(self, token: int) -> None:
        at = self._index[token]
        self._counts[at] -= 1
        if self._counts[at] > 0:
            return
        self._size -= 1
        del self._index[token]
        if at != self._size:  # the last entry moves into the gap
            last = int(self._tokens[self._size])
            self._tokens[at], self._counts[at] = last, self._counts[self._size]
            self._index[last] = at


class Penalties:
    """Scales and lowers the logits of the tokens in the window."""

    def __init__(self, window: TokenCounts, repeat: float, frequency: float, presence: float):
        self._window = window
        self._repeat = np.float32(repeat)
        self._frequency = np.float32(frequency)
        self._presence = np.float32(presence)

    def apply(self, candidates: Candidates) -> None:
        given, present = candidates.find(self._window.tokens)
        counts = self._window.counts[given].astype(np.float32)
        logits = candidates.logits[present]
        with np.errstate(over="ignore"):  # a huge penalty may make a logit minus infinity, which is what it asks for
            logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
            candidates.logits[present] = logits - (counts * self._frequency + self._presence)
        candidates.descending = False

    def accept(self, token: int) -> None:
        self._window.push(token)


def from_request(params: SamplingParams, context: SamplerContext) -> Penalties | None:
    """None where no penalty is set or the window is empty by request."""
    off = params.repeat_penalty == 1 and params.frequency_penalty == 0 and params.presence_penalty == 0
    if off or params.repeat_last_n == 0:
        return None
    window = TokenCounts(None if params.repeat_last_n < 0 else params.repeat_last_n, context.prompt)
    return Penalties(window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty)


STAGE = SamplerStage("penalties", 20, from_request)
