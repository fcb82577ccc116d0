"""A checkpoint on its devices: sound goes in, and words come out while it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import Device, duration, open_device
from golem_kyutai.checkpoint import Checkpoint
from golem_kyutai.group import Group
from golem_kyutai.stream import Stream


class Transcriber:
    """An open checkpoint with the group of streams that go through it; `name` and `described` are what a server says.

    The codec runs on the CPU wherever the language model runs, with its keys and values in full precision: half
    precision changes codes.
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
        start = time.perf_counter()
        self.checkpoint, self.name = checkpoint, checkpoint.path.resolve().name
        self._devices = (device, codec_device)
        self.group = Group(checkpoint, device, codec_device, slots=slots, weights=weights, progress=progress)
        held = "one stream" if slots == 1 else f"{slots} streams"
        self.described = (
            f"{self.name}: speech to text, {checkpoint.config.layers} layers in {weights}, {held} of sound, "
            f"on {device.name}, loaded in {duration(time.perf_counter() - start)}"
        )

    @property
    def rate(self) -> int:
        """Samples a second of the sound that streams take."""
        return self.group.rate

    @classmethod
    def open(
        cls, path: str | Path, options: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> Transcriber:
        """The checkpoint in a directory, its language model on the device that `options` name.

        Raises BadFile, Unsupported or GolemError naming what is wrong with directory or device.
        """
        checkpoint = Checkpoint.open(path)
        opened: list[Device] = []
        try:
            opened.append(open_device(options))
            opened.append(open_device({"device": "cpu", "threads": options.get("threads"), "kv": "f32"}))
            slots, weights = options.get("stt-parallel", 1), options.get("stt-weights", "q8_0")
            return cls(checkpoint, *opened, slots=slots, weights=weights, progress=progress)
        except BaseException:
            for device in opened:
                device.close()
            checkpoint.close()
            raise

    def listening(
        self, sound: Iterable[np.ndarray], *, temperature: float = 0.0, silence: float | None = None
    ) -> Stream:
        """A stream that is fed with `sound`, pieces of mono samples at `rate`, on a thread of its own.

        What the sound raises on the way, the stream raises.  Raises Full where every slot is taken.
        """
        stream = self.group.open(temperature=temperature, silence=silence)
        threading.Thread(target=_feed, args=(stream, sound), name="golem-sound", daemon=True).start()
        return stream

    def cancel(self) -> None:
        """End every stream and let none begin."""
        self.group.stop()

    def close(self) -> None:
        """Let go of devices and files."""
        self.group.close()
        for device in self._devices:
            device.close()
        self.checkpoint.close()


def _feed(stream: Stream, sound: Iterable[np.ndarray]) -> None:
    try:
        for piece in sound:
            stream.feed(piece)
        stream.finish()
    except BaseException as error:
        stream.fail(error)
