"""A sound file of any of the kinds that are known, told by its first bytes; its samples come in pieces.

WAV is read here; FLAC, MP3 and OGG (Vorbis and Opus) by libsndfile, through the library soundfile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from golem_core import BadRequest

PIECE = 1 << 16
"""Samples of each channel that are read at once."""
RATES = (1000, 768_000)
MOST_CHANNELS = 64
LOUDEST = 1000.0
"""Where full scale is 1; what is louder is cut, so that no sum behind it overflows."""


class BadSound(BadRequest):
    """A sound file that cannot be read: the message names it."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name}: {problem}", param="file")


@dataclass(frozen=True)
class Sound:
    """An open sound: samples a second, how many there are of each channel, or None where that is not known, and the
    pieces, float32 (n,), the mean of the channels.

    Going through the pieces raises BadSound for what cannot be read, and can be done once.
    """

    rate: int
    length: int | None
    pieces: Iterator[np.ndarray]

    @property
    def seconds(self) -> float | None:
        return None if self.length is None else self.length / self.rate


def open_sound(file: BinaryIO, name: str = "file") -> Sound:
    """The sound in a file that can be sought in.  Raises BadSound, which calls it `name`, for what is none."""
    file.seek(0, os.SEEK_SET)
    start = file.read(12)
    file.seek(0, os.SEEK_SET)
    if not start:
        raise BadSound(name, "the file is empty")
    if start[:4] == b"RIFF" and start[8:12] == b"WAVE":
        from golem_kyutai.audio.wav import read_wav

        return read_wav(file, name)
    for kind, is_it in (
        ("FLAC", start[:4] == b"fLaC"),
        ("OGG", start[:4] == b"OggS"),
        ("MP3", start[:3] == b"ID3" or (start[0] == 0xFF and start[1:2] >= b"\xe0")),
    ):
        if is_it:
            return _by_libsndfile(file, name, kind)
    raise BadSound(name, "not a WAV, FLAC, MP3 or OGG file")


def check_format(name: str, rate: int, channels: int) -> None:
    """Raises BadSound for what no sound has."""
    if not RATES[0] <= rate <= RATES[1]:
        raise BadSound(name, f"{rate} samples a second; {RATES[0]} to {RATES[1]} are read")
    if not 1 <= channels <= MOST_CHANNELS:
        raise BadSound(name, f"{channels} channels; 1 to {MOST_CHANNELS} are read")


def mono(name: str, samples: np.ndarray) -> np.ndarray:
    """float32 (n, channels) -> (n,).  Raises BadSound for samples that are no numbers."""
    if not np.isfinite(samples).all():
        raise BadSound(name, "a sample is not a finite number")
    mixed = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1, dtype=np.float64)
    return np.clip(mixed, -LOUDEST, LOUDEST).astype(np.float32)


def _by_libsndfile(file: BinaryIO, name: str, kind: str) -> Sound:
    import soundfile

    try:
        opened = soundfile.SoundFile(file)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
        raise BadSound(name, f"not a readable {kind} file: {_reason(error)}") from None
    try:
        check_format(name, opened.samplerate, opened.channels)
    except BadSound:
        opened.close()
        raise

    def pieces() -> Iterator[np.ndarray]:
        with opened:
            while True:
                try:
                    samples = opened.read(PIECE, dtype="float32", always_2d=True)
                except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
                    raise BadSound(name, f"not a readable {kind} file: {_reason(error)}") from None
                if not len(samples):
                    return
                yield mono(name, samples)

    length = opened.frames if 0 < opened.frames < 1 << 48 else None
    return Sound(opened.samplerate, length, pieces())


def _reason(error: Exception) -> str:
    """What libsndfile says, without what Python says about the file object."""
    said = " ".join(str(getattr(error, "error_string", error)).split()).rstrip(".")
    return "no sound is found in it" if said.startswith("File does not exist") else said  # it was opened, so it does
