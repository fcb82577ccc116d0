"""ER-SDE, the sampler: from noise to a latent in steps, of which each asks the network what it would be without noise.

The solver is the third stage of "Elucidating the solution space of extended reverse-time SDE for diffusion models" (Cui
and others, 2023), as ComfyUI's `sample_er_sde` computes it.  What each step adds up depends on the noise levels alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

PARTS = 200
"""Parts of the sums that stand for the solver's integrals."""


@dataclass(frozen=True)
class Step:
    """What one step multiplies: the latent, the answer, its change since the last answer, the change of its slope, and
    fresh noise."""

    latent: float
    answer: float
    change: float = 0.0
    bend: float = 0.0
    noise: float = 0.0


def growth(levels: np.ndarray) -> np.ndarray:
    """How the solver scales noise at signal-to-noise levels λ: λ (exp(λ^0.3) + 10)."""
    return levels * (np.exp(levels**0.3) + 10)


def plan(sigmas: np.ndarray) -> list[Step]:
    """The steps between noise levels (n + 1,), the first below 1 and the last 0; in float64."""
    sigma = np.asarray(sigmas, np.float64)
    signal = 1 - sigma
    ratio = sigma / signal
    steps: list[Step] = []
    for i in range(len(sigma) - 1):
        if sigma[i + 1] == 0:
            steps.append(Step(0.0, 1.0))
            continue
        here, there = ratio[i], ratio[i + 1]
        shrink = growth(there) / growth(here)
        alpha = signal[i + 1]
        span = there - here
        change = bend = 0.0
        if i >= 1:
            width = -span / PARTS
            at = there + np.arange(PARTS) * width
            weights = width / growth(at)
            change = alpha * (span + weights.sum() * growth(there)) / (here - ratio[i - 1])
            if i >= 2:
                bend = span**2 / 2 + ((at - here) * weights).sum() * growth(there)
                bend *= alpha / ((here - ratio[i - 2]) / 2)
        noise = alpha * max(0.0, there**2 - here**2 * shrink**2) ** 0.5
        steps.append(Step(alpha / signal[i] * shrink, alpha * (1 - shrink), change, bend, noise))
    return steps


def sample(
    answer: Callable[[np.ndarray, float], np.ndarray],
    latent: np.ndarray,
    sigmas: np.ndarray,
    noise: Callable[[], np.ndarray],
) -> Iterator[np.ndarray]:
    """Yields the latent after every step; the last is the picture's.

    `answer(latent, sigma)` gives the latent without noise, `noise()` fresh noise of its shape; all are float32.
    `sigmas` are those of `plan`; a run of n steps draws noise n - 1 times.
    """
    ratio = np.asarray(sigmas, np.float64) / (1 - np.asarray(sigmas, np.float64))
    last: np.ndarray | None = None
    slope: np.ndarray | None = None
    for i, step in enumerate(plan(sigmas)):
        found = answer(latent, float(sigmas[i]))
        if step.noise == 0 and step.latent == 0:
            latent = found
        else:
            latent = np.float32(step.latent) * latent + np.float32(step.answer) * found
            if last is not None:
                change = found - last
                latent += np.float32(step.change) * change
                new = change * np.float32(1 / (ratio[i] - ratio[i - 1]))
                if slope is not None:
                    latent += np.float32(step.bend) * (new - slope)
                slope = new
            latent += np.float32(step.noise) * noise()
        last = found
        yield latent
