"""The noise levels that a picture goes through: flow matching's schedule, shifted, of which "simple" takes every so
manieth entry.

The numbers are those of ComfyUI's `ModelSamplingFlux` and `simple_scheduler`, to the last bit.
"""

from __future__ import annotations

from math import exp

import numpy as np

SHIFT = 1.15
ENTRIES = 10_000
BELOW_ONE = 1 - 1e-4
"""The time whose noise level stands for one of 1, of which the sampler's logarithms would be infinite."""


def table() -> np.ndarray:
    """float32 (ENTRIES,): the noise level σ at the times 1/ENTRIES, 2/ENTRIES … 1, e^μ / (e^μ + 1/t - 1)."""
    one, scale = np.float32(1), np.float32(exp(SHIFT))
    times = np.arange(1, ENTRIES + 1).astype(np.float32) / np.float32(ENTRIES)
    return one / (scale + (one / times - one)) * scale


def sigmas(steps: int) -> np.ndarray:
    """float32 (steps + 1,): the noise level at the beginning of every step, from 1 down, and 0 at the end."""
    places = ENTRIES - 1 - np.arange(steps) * ENTRIES // steps
    return np.append(table()[places], np.float32(0))


def below_one(levels: np.ndarray) -> np.ndarray:
    """The same levels with a first one of 1 replaced by the highest below, worked out in float64."""
    levels = levels.copy()
    if levels[0] >= 1:
        scale = exp(SHIFT)
        levels[0] = np.float32(scale / (scale + 1 / BELOW_ONE - 1))
    return levels
