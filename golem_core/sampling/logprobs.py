"""Log-probabilities of tokens under the model's own distribution: before bias, truncation and temperature.

Natural logarithms, as OpenAI's API reports them.
"""

from __future__ import annotations

import math

import numpy as np

from golem_core.sampling.rows import exp_sum, largest


class LogProbs:
    """The log-softmax of `logits` (float32 (vocabulary,), left untouched and not to be changed meanwhile)."""

    def __init__(self, logits: np.ndarray):
        self._logits = logits
        peak = logits.max()
        self._log_total = float(peak) + math.log(exp_sum(logits, peak))

    def of(self, token: int) -> float:
        """The log-probability of one token."""
        return float(self._logits[token]) - self._log_total

    def top(self, count: int) -> list[tuple[int, float]]:
        """The `count` likeliest tokens and their log-probabilities, likeliest first, the lower id on ties."""
        return [(int(token), self.of(int(token))) for token in largest(self._logits, count)] if count > 0 else []
