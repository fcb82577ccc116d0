"""What Gemma 4's audio tower hears: a recording as the logarithms of 128 bands of its spectrum, a frame each 10 ms."""

from __future__ import annotations

from functools import cache

import numpy as np

RATE, HOP, WINDOW, FFT, BANDS = 16_000, 160, 320, 512, 128
FLOOR = 1e-3
PIECE = 30 * RATE
"""Samples that are heard together; a recording that is longer is heard in pieces."""
LEAST = 161
"""Samples of a piece that make a frame."""


def pieces(samples: np.ndarray) -> list[np.ndarray]:
    """The recording cut into 30 seconds; an end that is too short for a frame is left out."""
    cut = [samples[first : first + PIECE] for first in range(0, len(samples), PIECE)]
    return [piece for piece in cut if len(piece) >= LEAST]


def frames_of(samples: int) -> int:
    """Frames of a piece of so many samples."""
    return (samples + HOP - (WINDOW + 1)) // HOP + 1


def spectrum(piece: np.ndarray) -> np.ndarray:
    """Bands of a piece, float32 (frames, 128): ln(magnitude in each + 0.001), as transformers' feature extractor."""
    padded = np.concatenate([np.zeros(HOP, np.float32), piece])
    starts = np.arange(frames_of(len(piece))) * HOP
    cut = padded[starts[:, None] + np.arange(WINDOW)]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    magnitude = np.abs(np.fft.rfft(cut * window, FFT, axis=1))
    return np.log(magnitude @ filters() + FLOOR).astype(np.float32)


@cache
def filters() -> np.ndarray:
    """Triangles between 0 and 8000 Hz, evenly spaced on the HTK mel scale: float64 (257, 128)."""
    mel = lambda hertz: 2595 * np.log10(1 + hertz / 700)
    edges = 700 * (10 ** (np.linspace(0, mel(RATE / 2), BANDS + 2) / 2595) - 1)
    at = np.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    rise = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall))
