"""Sound at another rate, by a windowed sinc of 16 zero crossings on either side, in pieces.

out[i] is the sum over j of s[j] w(j - m), divided by the sum of the weights, at m = i * source / target, with w(x) =
sinc(c x) B(x / half), c = min(1, target / source), half = 16 / c and B Blackman's window.  The ratio of two rates has
few phases, so that there is a row of weights for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil, gcd

import numpy as np

CROSSINGS = 16
AT_ONCE = 1 << 18
"""Products of samples and weights that are computed at once."""


class Resampler:
    """Takes pieces at `source` samples a second and gives them at `target`; n samples become round(n * ratio)."""

    def __init__(self, source: int, target: int):
        common = gcd(source, target)
        self._up, self._down = target // common, source // common
        half = CROSSINGS * max(1.0, source / target)
        self._reach = ceil(half)
        self._weights = _weights(self._up, self._reach, half)
        # Samples from index -reach on; those before the sound count for nothing.
        self._samples, self._first = np.zeros(self._reach, np.float32), -self._reach
        self._taken, self._given = 0, 0

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """The results that are certain after these samples, float32."""
        if self._up == self._down:
            return samples
        self._samples = np.concatenate([self._samples, samples])
        self._taken += len(samples)
        # All of the taps of result i are there if floor(i * down / up) + reach + 1 < taken.
        certain = max(0, -(-(self._taken - self._reach - 1) * self._up // self._down))
        return self._results(max(certain, self._given))

    def end(self) -> np.ndarray:
        """The results that are left."""
        if self._up == self._down:
            return np.zeros(0, np.float32)
        self._samples = np.concatenate([self._samples, np.zeros(self._reach + 2, np.float32)])
        return self._results((2 * self._taken * self._up + self._down) // (2 * self._down))

    def _results(self, stop: int) -> np.ndarray:
        """Those from the last one given up to `stop`; samples that nothing behind needs are let go of."""
        step = max(1, AT_ONCE // self._weights.shape[1])
        pieces = [self._piece(i, min(i + step, stop)) for i in range(self._given, stop, step)]
        self._given = max(stop, self._given)
        keep = self._given * self._down // self._up - self._reach
        if keep > self._first:
            self._samples, self._first = self._samples[keep - self._first :], keep
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def _piece(self, start: int, stop: int) -> np.ndarray:
        at = np.arange(start, stop, dtype=np.int64) * self._down
        first, weights = at // self._up - self._reach, self._weights[at % self._up]
        taps = np.arange(weights.shape[1])
        found = np.einsum("nt,nt->n", self._samples[(first - self._first)[:, None] + taps], weights)
        edge = np.flatnonzero((first < 0) | (first + len(taps) > self._taken))
        if len(edge):
            index = first[edge, None] + taps
            there = (index >= 0) & (index < self._taken)
            found[edge] /= (weights[edge] * there).sum(1)
        return found.astype(np.float32)


def _weights(phases: int, reach: int, half: float) -> np.ndarray:
    """(phases, 2 reach + 2) weights of the samples from `reach` before a result's place on, each row adding up to 1."""
    taps = np.arange(-reach, reach + 2)
    found = np.empty((phases, len(taps)), np.float32)
    step = max(1, AT_ONCE // len(taps))
    for start in range(0, phases, step):
        x = taps - np.arange(start, min(start + step, phases))[:, None] / phases
        u = x / half
        t = np.pi * (u + 1)
        window = np.where(np.abs(u) < 1, 0.42 - 0.5 * np.cos(t) + 0.08 * np.cos(2 * t), 0.0)
        weights = np.sinc(x * CROSSINGS / half) * window
        found[start : start + step] = weights / weights.sum(1, keepdims=True)
    return found


def resampled(pieces: Iterable[np.ndarray], source: int, target: int) -> Iterator[np.ndarray]:
    """The pieces of a sound at another rate."""
    resampler = Resampler(source, target)
    for piece in pieces:
        yield resampler(piece)
    yield resampler.end()
