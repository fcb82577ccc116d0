"""Recordings: the bytes of a file, decoded within limits to one channel at the rate that a model hears at.

Files are read block by block, so that what a header promises costs nothing before it is there.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from golem_core.errors import BadRequest

MOST_SECONDS = 600
MOST_SAMPLES = 60_000_000
"""Of all channels together."""
MOST_CHANNELS = 16
MOST_BYTES = 64 << 20
RATES = (4_000, 384_000)
FORMATS = ("WAV", "FLAC", "MP3", "OGG")
BLOCK = 1 << 16


def decode_recording(data: bytes, rate: int) -> np.ndarray:
    """The samples of a file as float32 (n,) at `rate` a second, the mean of its channels, between -1 and 1.

    Raises BadRequest naming what is wrong with the file.
    """
    import soundfile

    if not data:
        raise _bad("it is empty")
    if len(data) > MOST_BYTES:
        raise _bad(f"it has {len(data)} bytes; {MOST_BYTES} at most are taken")
    _check_container(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check_header(file)
            return _read(file, rate)
    except BadRequest:
        raise
    except Exception as error:  # a decoder over bytes that anybody may have sent
        said = str(error).rpartition(": ")[2].strip().rstrip(".")
        raise _bad(said[:200] or f"it can't be decoded ({type(error).__name__})") from error


def _check_container(data: bytes) -> None:
    """Leaves only the formats that are promised to the library, which knows many more."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        size = int.from_bytes(data[4:8], "little")
        if size not in (0, 0xFFFFFFFF) and size + 8 > len(data) + 1:
            raise _bad(f"it is cut off: {len(data)} bytes of {size + 8}")
        return
    if data[:4] in (b"fLaC", b"OggS") or data[:3] == b"ID3" or (data[0] == 0xFF and data[1:2] >= b"\xe0"):
        return
    raise _bad(f"it is none of {', '.join(FORMATS)}, or its beginning is damaged")


def _check_header(file: Any) -> None:
    if not RATES[0] <= file.samplerate <= RATES[1]:
        raise _bad(f"it has {file.samplerate} samples a second; {RATES[0]} to {RATES[1]} are taken")
    if not 1 <= file.channels <= MOST_CHANNELS:
        raise _bad(f"it has {file.channels} channels; {MOST_CHANNELS} at most are taken")
    if 0 < file.frames < 1 << 62:  # else the header does not know
        _check_length(file, file.frames)


def _check_length(file: Any, frames: int) -> None:
    if frames > MOST_SECONDS * file.samplerate:
        raise _bad(f"it lasts longer than {MOST_SECONDS} seconds")
    if frames * file.channels > MOST_SAMPLES:
        raise _bad(f"it has more than {MOST_SAMPLES} samples")


def _read(file: Any, rate: int) -> np.ndarray:
    import soxr

    resampler = None if file.samplerate == rate else soxr.ResampleStream(file.samplerate, rate, 1, dtype="float32")
    parts, frames = [], 0
    while True:
        block = file.read(BLOCK, dtype="float32", always_2d=True)
        if len(block) == 0:
            break
        frames += len(block)
        _check_length(file, frames)
        mono = block.mean(1, dtype=np.float32)
        if not np.isfinite(mono).all():
            raise _bad("it has samples that are no numbers")
        parts.append(mono if resampler is None else resampler.resample_chunk(mono))
    if 0 < file.frames < 1 << 62 and frames < file.frames and file.format != "MP3":
        raise _bad(f"it is cut off: {frames} of {file.frames} frames")
    if frames == 0:
        raise _bad("it has no samples")
    if resampler is not None:
        parts.append(resampler.resample_chunk(np.zeros(0, np.float32), last=True))
    return np.clip(np.concatenate(parts), -1, 1)


def _bad(reason: str) -> BadRequest:
    return BadRequest(f"the recording can't be read: {reason}", param="messages")
