"""A stream of sound on its way through a group: what waits before the models, and the words that have come of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from golem_core import Unavailable
from golem_kyutai.checkpoint import FRAME_RATE, Checkpoint
from golem_kyutai.codec import Stretch
from golem_kyutai.words import Word, Words

FED = 50
"""Frames that may wait in a stream before `feed` does."""
UNREAD = 64
"""Words that a reader may leave lying."""
AFTER = 1.0
"""Seconds of silence behind the sound, beside the delay."""
CANDIDATES = 50
"""Tokens that are drawn from where the temperature is not 0."""

AT_MOST = 0.5
"""Seconds that a wait for a word lasts: an interrupt from the keyboard that comes just before it is heard after it."""


class Streams(Protocol):
    """What a stream knows of its group.  `changed` guards every stream, and tells of every change."""

    checkpoint: Checkpoint
    frame: int
    rate: int
    changed: threading.Condition

    def release(self, stream: Stream) -> None: ...


class Stream:
    """A stream of sound, mono float32 samples of the group's `rate`, and the words in it.

    `feed` and `finish` are called by whoever has the sound; iterating gives the words as they become known, and raises
    what went wrong.  A word's `end` is set later.  `close` frees the slot, whatever has happened; it may be called at
    any time, by any thread, and more than once, and ends a `with` block.
    """

    def __init__(self, group: Streams, slot: int, temperature: float, silence: float):
        self._group, self._slot, self._temperature = group, slot, temperature
        config = group.checkpoint.config
        self._silence = round(silence * group.rate)
        self._words = Words(
            group.checkpoint.pieces, config.padding, config.delay_steps, shift=self._silence / group.rate
        )
        self._dice = np.random.default_rng()
        self._partial = np.zeros(self._silence, np.float32)
        self._frames: deque[np.ndarray] = deque()
        self._codes: deque[np.ndarray] = deque([np.full(config.codebooks, config.card, np.float32)])
        self._unread: deque[Word] = deque()
        self._token, self._encoded, self._heard = config.text_card, 0, 0
        self._finished = self._ended = self._closed = False
        self._error: BaseException | None = None
        self._wake: Callable[[], None] = lambda: None

    @property
    def seconds(self) -> float:
        """How much sound has been fed."""
        return self._heard / self._group.rate

    @property
    def done(self) -> float:
        """Seconds of the sound whose words are known."""
        behind = self._group.checkpoint.config.delay + self._words.shift
        return min(max((self._words.steps - 1) / FRAME_RATE - behind, 0.0), self.seconds)

    def feed(self, samples: np.ndarray) -> None:
        """Adds samples, float32 (n,), and waits while many frames lie before the models.  Raises what went wrong."""
        with self._group.changed:
            self._heard += len(samples)
            self._add(samples)
            while len(self._frames) > FED and self._goes_on():
                self._group.changed.wait()
            self._check()

    def finish(self) -> None:
        """There is no more sound."""
        with self._group.changed:
            if self._finished:
                return
            after = self._group.checkpoint.config.delay + AFTER
            self._add(np.zeros(round(after * self._group.rate), np.float32))
            if len(self._partial):
                self._add(np.zeros(self._group.frame - len(self._partial), np.float32))
            self._finished = True
            self._words.duration = self.seconds
            self._group.changed.notify_all()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Word]:
        while (word := self.next()) is not None:
            yield word

    def next(self) -> Word | None:
        """The next word, or None after the last; waits for it.  Raises what went wrong."""
        with self._group.changed:
            while not self._unread and self._goes_on():
                self._group.changed.wait(AT_MOST)
            return self.poll()

    def poll(self) -> Word | None:
        """The next word, or None where there is none yet or none any more, as `ended` says.  Raises what went wrong."""
        with self._group.changed:
            if self._unread and self._error is None:
                self._group.changed.notify_all()
                return self._unread.popleft()
            self._check()
            return None

    @property
    def ended(self) -> bool:
        """Whether every word has been read."""
        return self._ended and not self._unread

    def listen(self, wake: Callable[[], None]) -> None:
        """Has `wake` called, by any thread, whenever `poll` may have something new."""
        self._wake = wake

    def close(self) -> None:
        """Ends the stream and frees its slot."""
        with self._group.changed:
            self._closed = True
            self._group.release(self)
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error that its reader gets."""
        with self._group.changed:
            if self._goes_on():
                self._error = error
            self._group.release(self)
            self._wake()

    # ------------------------------------------------------------ for the group, which holds its lock

    def _goes_on(self) -> bool:
        return not (self._closed or self._ended or self._error is not None)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed and not self._ended:
            raise Unavailable("the stream of sound was closed")

    def _add(self, samples: np.ndarray) -> None:
        samples = np.concatenate([self._partial, np.asarray(samples, np.float32)])
        frame = self._group.frame
        whole = len(samples) // frame
        self._frames.extend(samples[: whole * frame].reshape(whole, frame))
        self._partial = samples[whole * frame :].copy()
        self._group.changed.notify_all()

    @property
    def _has_work(self) -> bool:
        return self._goes_on() and not self._is_behind and bool(self._codes or self._frames)

    @property
    def _may_bring_more(self) -> bool:
        return self._goes_on() and not self._finished and not self._is_behind

    @property
    def _is_behind(self) -> bool:
        """Whether nobody reads the words."""
        return len(self._unread) >= UNREAD

    def _take_frames(self, most: int) -> Stretch:
        frames = [self._frames.popleft() for _ in range(min(most, len(self._frames)))]
        return Stretch(self._slot, self._encoded, np.stack(frames))

    def _took(self, logits: np.ndarray) -> None:
        """A step has been done."""
        token, log_probability = choose(logits, self._temperature, self._dice)
        self._token = token
        word = self._words.step(token, log_probability)
        if word is not None:
            self._unread.append(word)
        if self._finished and not self._codes and not self._frames:
            word = self._words.end(self.seconds)
            if word is not None:
                self._unread.append(word)
            self._ended = True
        self._wake()


def choose(logits: np.ndarray, temperature: float, dice: np.random.Generator) -> tuple[int, float]:
    """A token and the logarithm of its probability: the largest logit, or drawn from the largest at a temperature."""
    top = int(np.argmax(logits))
    token = top
    if temperature > 0:
        some = np.argsort(-logits, kind="stable")[:CANDIDATES]
        below = (logits[some] - logits[top]).astype(np.float64)  # in float32 a tiny temperature would be 0
        with np.errstate(over="ignore"):
            p = np.exp(below / temperature)
        token = int(some[dice.choice(len(some), p=p / p.sum())])
    total = np.log(np.exp(logits - logits[top], dtype=np.float64).sum())
    return token, float(logits[token] - logits[top] - total)
