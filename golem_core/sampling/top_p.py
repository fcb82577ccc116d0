"""top_p: the smallest set of likeliest tokens that holds a share p of the probability stays."""

from __future__ import annotations

import numpy as np

from golem_core.sampling.chain import Candidates, SamplerContext, SamplerStage
from golem_core.sampling.params import SamplingParams
from golem_core.sampling.rows import exp_sum, largest

_FIRST_LOOK = 256  # how many tokens to sort before giving in to sorting all; nearly always enough


class TopP:
    """Keeps the shortest descending prefix whose mass reaches `share`, at least one candidate."""

    def __init__(self, share: float):
        self._share = share

    def apply(self, candidates: Candidates) -> None:
        logits = candidates.logits
        if candidates.descending:
            mass = np.cumsum(np.exp(logits - logits[0]), dtype=np.float64)
            candidates.keep(slice(self._prefix(mass, mass[-1])))
            return
        peak = logits.max()
        total = exp_sum(logits, peak)
        order = largest(logits, _FIRST_LOOK)
        mass = np.cumsum(np.exp(logits[order] - peak), dtype=np.float64)
        if mass[-1] >= self._share * total:
            candidates.keep(order[: self._prefix(mass, total)])
            candidates.descending = True
        else:
            candidates.keep(self._among_many(logits))

    def _among_many(self, logits: np.ndarray) -> np.ndarray:
        """The indices to keep, ascending.  Sorting values alone is ten times as quick as sorting indices by them."""
        values = np.sort(logits)[::-1]
        mass = np.cumsum(np.exp(values - values[0]), dtype=np.float64)
        count = min(self._prefix(mass, float(mass[-1])), len(values))
        least = values[count - 1]
        keep = logits > least
        tied = np.flatnonzero(logits == least)
        keep[tied[: count - np.count_nonzero(keep)]] = True
        return np.flatnonzero(keep)

    def _prefix(self, mass: np.ndarray, total: float) -> int:
        """Length of the shortest prefix that reaches the share; `mass` float64 (n,) holds running sums."""
        return int(np.searchsorted(mass, self._share * total, side="left")) + 1


def from_request(params: SamplingParams, context: SamplerContext) -> TopP | None:
    """None where p is off, and for a greedy request: no truncation removes the largest logit."""
    return None if params.greedy or params.top_p >= 1 else TopP(max(params.top_p, 0.0))


STAGE = SamplerStage("top_p", 50, from_request)
