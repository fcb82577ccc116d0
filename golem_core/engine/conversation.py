"""One request in flight: which tokens are fed, which are not yet, and what becomes of the next logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.engine.answer import AnswerText
from golem_core.engine.media import inside, places
from golem_core.engine.request import FinishReason, Generation, GenerationRequest, Token
from golem_core.engine.slots import Slot
from golem_core.sampling import ListedLogProbs, LogProbs, SamplerChain, Shortlist

if TYPE_CHECKING:
    from golem_core.engine.roles import ChatModel


class Conversation:
    """The state of one request.  It is handed from thread to thread; only one works on it at a time."""

    def __init__(
        self, model: ChatModel, request: GenerationRequest, generation: Generation, chain: SamplerChain, context: int
    ):
        self.request = request
        self.generation = generation
        self.slot: Slot | None = None
        self.whole = [span for span in request.media if span.whole]
        """The spans that a pass must have all of."""
        self.position = 0  # where the next token is fed
        self._tokens = list(request.prompt)  # the prompt and what was drawn after it
        self._chain = chain
        self._context = context
        self._suppress = np.array(model.suppress, np.int64)
        self._ends: frozenset[int] = frozenset() if request.ignore_eos else model.tokenizer.eog
        self._untouched: np.ndarray | None = (
            None  # the logits before sampling, kept where log-probabilities are asked for
        )
        self._text = AnswerText(model.tokenizer, request.stop, request.shown)

    @property
    def waiting(self) -> int:
        """How many tokens are known and not yet fed."""
        return len(self._tokens) - self.position

    @property
    def ahead(self) -> int:
        """How many of those one pass may feed: it ends where the slot is to be saved."""
        assert self.slot is not None
        return self.waiting if self.slot.room is None else min(self.waiting, self.slot.room)

    def part(self, most: int) -> int:
        """How many of the tokens known a pass that has room for `most` may feed: a whole span or nothing of it."""
        stop = self.position + min(self.ahead, most)
        return inside(stop, self.whole) - self.position

    @property
    def least(self) -> int:
        """How many tokens a pass must have room for to feed any."""
        return next((len(span.rows) for span in self.whole if span.start == self.position), 1)

    @property
    def reading(self) -> bool:
        """Whether the prompt is not yet fed to its end."""
        return self.position < len(self.request.prompt)

    def begin(self, slot: Slot) -> None:
        """Take a slot, and resume where its contents part from the prompt.  Raises what the device raises."""
        self.slot = slot
        self.position = slot.resume(self.request.prompt, self.whole)
        self.generation.start(slot.index, self.position)

    @property
    def left(self) -> int:
        """How many more tokens the answer may have."""
        drawn = len(self._tokens) - len(self.request.prompt)
        return min(self.request.max_tokens - drawn, self._context - 1 - self.position)

    def upcoming(self, count: int) -> list[int]:
        """The next `count` tokens to feed, from `position` on."""
        return self._tokens[self.position : self.position + count]

    def tokens(self, first: int, last: int) -> list[int]:
        """The tokens of the positions from `first` to `last`, that one left out."""
        return self._tokens[first:last]

    def rows(self, count: int) -> list[tuple[int, np.ndarray]]:
        """Rows of media among the next `count` positions, each with how far from `position` the first stands."""
        found = []
        for span in self.request.media:
            start, stop = max(span.start, self.position), min(span.stop, self.position + count)
            if start < stop:
                found.append((start - self.position, span.rows[start - span.start : stop - span.start]))
        return found

    def places(self, count: int, axes: int) -> np.ndarray:
        """Where the next `count` positions stand on each axis, int64 (count, axes)."""
        return places(self.request.media, self.position, count, axes)

    def last_seen(self, count: int) -> list[int]:
        """The last position that each of the next `count` sees: its own, or the last one of its whole span."""
        seen = list(range(self.position, self.position + count))
        for span in self.whole:
            for at in range(max(span.start, self.position), min(span.stop, self.position + count)):
                seen[at - self.position] = span.stop - 1
        return seen

    def fed(self, count: int) -> None:
        """A pass has fed the next `count` tokens."""
        assert self.slot is not None
        self.slot.wrote(self.upcoming(count))
        reading = self.reading
        self.position += count
        if reading:
            self.generation.read(count, whole=not self.reading)

    @property
    def most(self) -> int | None:
        """How many of the largest logits of a row say all about the next token; None: the whole row must be known."""
        drawn = self._chain.most
        return None if drawn is None else max(drawn, self.request.top_logprobs)

    @property
    def with_logprobs(self) -> bool:
        """Whether log-probabilities are wanted."""
        return self.request.logprobs or self.request.top_logprobs > 0

    def draw(self, logits: np.ndarray | Shortlist) -> tuple[Token, FinishReason | None]:
        """The next token, and why the answer ends with it if it does.

        `logits` is float32 (vocabulary,), or the `most` largest without the tokens that are never drawn; it is
        overwritten.  Raises what a sampler raises.
        """
        wanted = self.with_logprobs
        if isinstance(logits, Shortlist):
            return self._draw_listed(logits, wanted)
        logits[self._suppress] = -np.inf
        if wanted:
            if self._untouched is None:
                self._untouched = np.empty_like(logits)
            np.copyto(self._untouched, logits)
        token = self._chain.draw(logits)
        self._tokens.append(token)
        text, reason = self._judge(token)
        if not wanted or self._untouched is None:
            return Token(token, text), reason
        table = LogProbs(self._untouched)
        return Token(token, text, table.of(token), tuple(table.top(self.request.top_logprobs))), reason

    def _draw_listed(self, row: Shortlist, wanted: bool) -> tuple[Token, FinishReason | None]:
        assert self._chain.most is not None
        token = self._chain.draw(row.first(self._chain.most))
        self._tokens.append(token)
        text, reason = self._judge(token)
        if not wanted:
            return Token(token, text), reason
        table = ListedLogProbs(row)
        return Token(token, text, table.of(token), tuple(table.top(self.request.top_logprobs))), reason

    def _judge(self, token: int) -> tuple[str, FinishReason | None]:
        if token in self._ends:
            return self._text.flush(), "stop"
        text, stopped = self._text.push(token)
        if stopped:
            return text, "stop"
        drawn = len(self._tokens) - len(self.request.prompt)
        if drawn >= self.request.max_tokens or self.position + 1 >= self._context:
            return text + self._text.flush(), "length"
        return text, None
