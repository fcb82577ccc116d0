"""From text tokens to words with times: moshi's rule (`rust/moshi-core/src/asr.rs`).

A token 0 says that a word begins, and where; the pieces of the word come behind it, and padding ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from golem_kyutai.checkpoint import FRAME_RATE
from golem_kyutai.pieces import FIRST_TEXT, Pieces, TextStream

BEGIN = 0


@dataclass
class Word:
    """A word that begins at `start` seconds and ends at `end`, which is None while that is not known.

    `written` is the text as the tokens have it, blanks included, of whole characters.  A word ends where the next one
    begins, however long the pause; `said` is when its last piece was written, less the delay.  `log_probability` is
    the sum over its tokens of the natural logarithms of their probabilities.
    """

    written: str
    start: float
    tokens: list[int]
    said: float
    log_probability: float = 0.0
    end: float | None = None

    @property
    def text(self) -> str:
        return self.written.strip()


@dataclass
class Words:
    """Collects tokens, one a step, into words.

    `shift` is how many seconds were put in front of the sound; all times are without them.  `duration` is the sound's
    in seconds once that is known: no word ends behind it, though steps go on until the last words are written.
    """

    pieces: Pieces
    padding: int
    delay_steps: int
    shift: float = 0.0
    steps: int = 0
    duration: float = inf

    def __post_init__(self) -> None:
        self._stream = TextStream(self.pieces)
        self._written, self._tokens, self._log_probability = "", list[int](), 0.0
        self._last, self._open = 0.0, list[Word]()

    def step(self, token: int, log_probability: float = 0.0) -> Word | None:
        """Takes the token of the next step; -> the word that it completes.  The word before may get its `end`."""
        self.steps += 1
        if self.steps < self.delay_steps:
            return None
        if token not in (BEGIN, self.padding):
            self._written += self._stream.add(token)
            if token >= FIRST_TEXT:
                self._tokens.append(token)
                self._log_probability += log_probability
            return None
        word = self._complete()
        if token == BEGIN:
            self._last = self._now()
            self._close(self._last)
        return word

    def end(self, duration: float) -> Word | None:
        """The sound has ended, after `duration` seconds; -> the word that was under way."""
        self.duration = duration
        self._written += self._stream.end()
        word = self._complete()
        self._close(duration + self.shift)
        return word

    def _now(self) -> float:
        return self._within((self.steps - self.delay_steps) / FRAME_RATE)

    def _within(self, at: float) -> float:
        return min(at, self.duration + self.shift)

    def _close(self, at: float) -> None:
        while self._open:
            word = self._open.pop()
            word.end = max(at - self.shift, word.start)

    def _complete(self) -> Word | None:
        """The word out of what was collected; blanks alone, and bytes of half a character, go on to be collected."""
        if not self._written.strip():
            return None
        start = max(self._last - self.shift, 0.0)
        if self._open:  # no token said where this word begins, so behind the one before
            start = max(start, self._open[-1].said)
        said = max(self._within(self._now() + 1 / FRAME_RATE) - self.shift, start)
        word = Word(self._written, start, self._tokens, said, self._log_probability)
        self._written, self._tokens, self._log_probability = "", [], 0.0
        self._open.append(word)
        return word
