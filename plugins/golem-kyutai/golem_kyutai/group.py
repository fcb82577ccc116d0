"""Several streams that go through the models together, so that a step reads the weights once for all of them.

One thread runs the models.  It takes what streams have been fed, and puts the words that come of it where their
readers find them.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

import numpy as np

from golem_core import Columns, Device, GolemError, Unavailable
from golem_kyutai import trunk
from golem_kyutai.checkpoint import FRAME_RATE, Checkpoint
from golem_kyutai.codec import FOREVER, Codec
from golem_kyutai.stream import Stream

PATIENCE = 0.004
"""Seconds that a step waits for the other streams after the first has a frame."""
AHEAD = 8
"""Frames that the codec encodes at once where as many wait: the text model takes one a step."""


class Full(GolemError):
    """Every slot of a group has a stream."""


class Group:
    """The models on their devices, with room for `slots` streams.

    `frame` is the samples of a frame, `rate` those of a second.  `progress(done, total)` counts bytes of the language
    model's weights, which are nearly all there are.
    """

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
        self._codec = Codec(checkpoint.mimi, codec_device, slots=slots, width=AHEAD)
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
                failure = _told(error)
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
        for stream in [each for each in self._streams.values() if each._is_behind and not each._ended]:
            stream.fail(Unavailable(f"{len(stream._unread)} words were left unread while others waited"))

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
                if not stream._goes_on():
                    continue
                try:
                    if not np.isfinite(row).all():
                        raise GolemError("the language model gave numbers that are not finite")
                    stream._took(row)
                except Exception as error:  # of this stream; the others go on
                    stream.fail(_told(error))
            self.changed.notify_all()


def _told(error: BaseException) -> GolemError:
    """What readers get of an error; a defect is printed."""
    if isinstance(error, GolemError):
        return error
    traceback.print_exception(error, file=sys.stderr)
    return GolemError(f"{type(error).__name__}: {error}")
