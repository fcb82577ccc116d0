"""Several streams that go through the models together, so that a step reads the weights once for all of them.

One thread runs the models.  It takes what streams have been fed, and puts the words that come of it where their
readers find them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from golem_core import Columns, Device, GolemError, Unavailable
from golem_kyutai import trunk
from golem_kyutai.checkpoint import FRAME_RATE, Checkpoint
from golem_kyutai.codec import FOREVER, Codec, Stretch
from golem_kyutai.words import Word, Words

PATIENCE = 0.004
"""Seconds that a step waits for the other streams after the first has a frame."""
AHEAD = 8
"""Frames that the codec encodes at once where as many wait: the text model takes one a step."""
FED = 50
"""Frames that may wait in a stream before `feed` does."""
UNREAD = 64
"""Words that a reader may leave lying."""
AFTER = 1.0
"""Seconds of silence behind the sound, beside the delay."""
CANDIDATES = 50
"""Tokens that are drawn from where the temperature is not 0."""


class Full(GolemError):
    """Every slot of a group has a stream."""


class Stream:
    """A stream of sound, mono float32 samples of the group's `rate`, and the words in it.

    `feed` and `finish` are called by whoever has the sound; iterating gives the words as they become known, and raises
    what went wrong.  A word's `end` is set later.  `close` frees the slot, whatever has happened; it may be called at
    any time, by any thread, and more than once.
    """

    def __init__(self, group: Group, slot: int, temperature: float, silence: float):
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
            self._group.changed.notify_all()

    def __iter__(self) -> Iterator[Word]:
        while (word := self.next()) is not None:
            yield word

    def next(self) -> Word | None:
        """The next word, or None after the last; waits for it.  Raises what went wrong."""
        with self._group.changed:
            while not self._unread and self._goes_on():
                self._group.changed.wait()
            if self._unread and self._error is None:
                self._group.changed.notify_all()
                return self._unread.popleft()
            self._check()
            return None

    def close(self) -> None:
        """Ends the stream and frees its slot."""
        with self._group.changed:
            self._closed = True
            self._group.release(self)

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error that its reader gets."""
        with self._group.changed:
            if self._goes_on():
                self._error = error
            self._group.release(self)

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
        return self._goes_on() and len(self._unread) < UNREAD and bool(self._codes or self._frames)

    @property
    def _may_bring_more(self) -> bool:
        return self._goes_on() and not self._finished and len(self._unread) < UNREAD

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


class Group:
    """The models on their devices, with room for `slots` streams.  `frame` is the samples of a frame, `rate` those of
    a second."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: Device,
        codec_device: Device,
        *,
        slots: int = 1,
        weights: str = "q8_0",
        progress: Callable[[int, int], None] | None = None,
    ):
        self.checkpoint, self.slots = checkpoint, slots
        self.frame = checkpoint.mimi.frame
        self.rate = round(self.frame * FRAME_RATE)
        self.changed = threading.Condition()
        self._streams: dict[int, Stream] = {}
        self._stopped = False
        self._codec = Codec(checkpoint.mimi, codec_device, slots=slots, width=AHEAD, progress=progress)
        graph = trunk.build(checkpoint.config, checkpoint.trunk, weights)
        self._trunk = device.compile(graph, slots=slots, context=FOREVER, width=slots, scored=slots, progress=progress)
        self._thread = threading.Thread(target=self._run, name="golem-kyutai", daemon=True)
        self._thread.start()

    def open(self, *, temperature: float = 0.0, silence: float | None = None) -> Stream:
        """A new stream.  `silence` is how many seconds are put in front of the sound, by default the model's own.

        Raises Full where every slot is taken, Unavailable when the group is closed.
        """
        silence = self.checkpoint.config.prefix if silence is None else silence
        with self.changed:
            if self._stopped:
                raise Unavailable("the server is stopping")
            free = next((slot for slot in range(self.slots) if slot not in self._streams), None)
            if free is None:
                raise Full(f"all {self.slots} streams of sound are taken; start with a larger -stt-parallel")
            stream = self._streams[free] = Stream(self, free, temperature, silence)
            self.changed.notify_all()
            return stream

    def release(self, stream: Stream) -> None:
        """Frees the slot of a stream, if it still has it."""
        with self.changed:
            if self._streams.get(stream._slot) is stream:
                del self._streams[stream._slot]
            self.changed.notify_all()

    def stop(self) -> None:
        """Ends every stream and lets none begin."""
        with self.changed:
            self._stopped = True
            for stream in list(self._streams.values()):
                stream.fail(Unavailable("the server is stopping"))
            self.changed.notify_all()

    def close(self) -> None:
        """Stops, and waits for the models to stand still."""
        self.stop()
        self._thread.join()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while (streams := self._wait()) is not None:
            try:
                self._step(streams)
            except BaseException as error:
                failure = error if isinstance(error, GolemError) else GolemError(f"{type(error).__name__}: {error}")
                for stream in streams:
                    stream.fail(failure)

    def _wait(self) -> list[Stream] | None:
        """The streams that take part in the next step: all, or those that have a frame after a little patience."""
        since: float | None = None
        with self.changed:
            while not self._stopped:
                self._evict()
                ready = [each for each in self._streams.values() if each._has_work]
                late = [each for each in self._streams.values() if each._may_bring_more and not each._has_work]
                if not ready:
                    since = None
                    self.changed.wait()
                    continue
                since = time.monotonic() if since is None else since
                left = since + PATIENCE - time.monotonic()
                if not late or left <= 0:
                    return ready
                self.changed.wait(left)
        return None

    def _evict(self) -> None:
        """A reader that does not read may hold up its own stream, but not those of others."""
        if len(self._streams) < 2:
            return
        for stream in [each for each in self._streams.values() if len(each._unread) >= UNREAD and not each._ended]:
            stream.fail(Unavailable(f"{UNREAD} words were left unread while others waited"))

    def _step(self, streams: list[Stream]) -> None:
        with self.changed:
            bare = [each for each in streams if not each._codes and each._frames]
            most = max(1, self._codec.width // max(1, len(bare)))
            stretches = [each._take_frames(most) for each in bare]
            self.changed.notify_all()
        if stretches:
            for stretch in stretches:
                if stretch.first == 0:
                    self._codec.begin(stretch.slot)
            for stream, codes in zip(bare, self._codec.encode(stretches), strict=True):
                stream._codes.extend(codes)
                stream._encoded += len(codes)
        logits = self._trunk.run(
            Columns(
                token=[each._token for each in streams],  # type: ignore[arg-type]
                position=[each._words.steps for each in streams],  # type: ignore[arg-type]
                slot=[each._slot for each in streams],  # type: ignore[arg-type]
                scored=np.arange(len(streams)),
                inputs={"codes": np.stack([each._codes.popleft() for each in streams])},
            )
        )["logits"]
        with self.changed:
            for stream, row in zip(streams, logits, strict=True):
                if stream._goes_on():
                    stream._took(row)
            self.changed.notify_all()


def choose(logits: np.ndarray, temperature: float, dice: np.random.Generator) -> tuple[int, float]:
    """A token and the logarithm of its probability: the largest logit, or drawn from the largest at a temperature."""
    top = int(np.argmax(logits))
    token = top
    if temperature > 0:
        some = np.argsort(-logits, kind="stable")[:CANDIDATES]
        p = np.exp((logits[some] - logits[top]) / temperature, dtype=np.float64)
        token = int(some[dice.choice(len(some), p=p / p.sum())])
    total = np.log(np.exp(logits - logits[top], dtype=np.float64).sum())
    return token, float(logits[token] - logits[top] - total)
