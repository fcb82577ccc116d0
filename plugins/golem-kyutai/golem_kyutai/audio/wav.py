"""WAV files: the chunks of a RIFF file, and samples of every usual size.

Format: Microsoft's "Multiple Channel Audio Data and WAVE Files".  A size that a writer to a pipe could not know (0, all
ones, or past the end) stands for what is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from golem_kyutai.audio.sound import PIECE, BadSound, Sound, check_format, mono

WHOLE, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
UNKNOWN = (0, 0xFFFFFFFF)
NAMES = {2: "ADPCM", 6: "A-law", 7: "µ-law", 17: "IMA ADPCM", 85: "MP3"}
MOST_CHUNKS = 1000


def _whole24(raw: bytes) -> np.ndarray:
    padded = np.zeros((len(raw) // 3, 4), np.uint8)
    padded[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
    return padded.view("<i4")[:, 0] / np.float32(1 << 31)


DECODERS: dict[tuple[int, int], Callable[[bytes], np.ndarray]] = {
    (WHOLE, 8): lambda raw: (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128,
    (WHOLE, 16): lambda raw: np.frombuffer(raw, "<i2") / np.float32(1 << 15),
    (WHOLE, 24): _whole24,
    (WHOLE, 32): lambda raw: np.frombuffer(raw, "<i4") / np.float32(1 << 31),
    (FLOAT, 32): lambda raw: np.frombuffer(raw, "<f4"),
    (FLOAT, 64): lambda raw: np.frombuffer(raw, "<f8"),
}
"""(kind, bits) -> float samples of raw ones."""


@dataclass(frozen=True)
class Format:
    kind: int
    channels: int
    rate: int
    bits: int

    @property
    def frame(self) -> int:
        """Bytes of one sample of each channel."""
        return self.channels * self.bits // 8


def read_wav(file: BinaryIO, name: str) -> Sound:
    """A WAV file from its start.  Raises BadSound."""
    size = file.seek(0, os.SEEK_END)
    found: Format | None = None
    at = 12
    for _ in range(MOST_CHUNKS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            break
        chunk, length = head[:4], int.from_bytes(head[4:], "little")
        if chunk == b"fmt ":
            found = _format(file.read(min(length, 40)), name)
        elif chunk == b"data":
            if found is None:
                raise BadSound(name, "the WAV file has no 'fmt ' chunk before its samples")
            left = size - at - 8
            return _sound(file, name, found, at + 8, left if length in UNKNOWN else min(length, left))
        at += 8 + length + length % 2
    raise BadSound(name, "the WAV file has no samples: there is no 'data' chunk")


def _format(data: bytes, name: str) -> Format:
    if len(data) < 16:
        raise BadSound(name, f"the 'fmt ' chunk of the WAV file has {len(data)} bytes, at least 16 are needed")

    def number(start: int, stop: int) -> int:
        return int.from_bytes(data[start:stop], "little")

    kind, channels, rate, block, bits = number(0, 2), number(2, 4), number(4, 8), number(12, 14), number(14, 16)
    if kind == EXTENSIBLE:
        if len(data) < 26:
            raise BadSound(name, "the extensible 'fmt ' chunk of the WAV file is cut off")
        kind = number(24, 26)
    if kind == WHOLE and bits == 24 and block == 4 * channels:
        bits = 32  # 24 bits in words of 32, of which the lowest 8 are zeros
    if (kind, bits) not in DECODERS:
        what = {WHOLE: "whole numbers", FLOAT: "floats"}.get(kind) or NAMES.get(kind, f"format {kind}")
        raise BadSound(name, f"WAV samples of {bits} bits in {what}; 8 to 32 bits whole and 32 or 64 float are read")
    check_format(name, rate, channels)
    return Format(kind, channels, rate, bits)


def _sound(file: BinaryIO, name: str, form: Format, start: int, nbytes: int) -> Sound:
    decode = DECODERS[form.kind, form.bits]
    length = nbytes // form.frame

    def pieces() -> Iterator[np.ndarray]:
        file.seek(start)
        for first in range(0, length, PIECE):
            raw = file.read(min(PIECE, length - first) * form.frame)
            raw = raw[: len(raw) // form.frame * form.frame]
            if not raw:
                return
            with np.errstate(over="ignore"):  # of doubles; what overflows is refused next
                samples = np.asarray(decode(raw), np.float32)
            yield mono(name, samples.reshape(-1, form.channels))

    return Sound(form.rate, length, pieces())
