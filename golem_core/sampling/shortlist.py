"""The largest logits of a row without the rest of it, as a device finds them where the row was computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The largest logits of a row: `ids` int32 (n,), and `values` float32 (n,), writable.

    They descend, equal ones in ascending order of id.  A NaN counts as larger than every number, and tokens that are
    never drawn are not among them.  `log_total` is the natural logarithm of the sum of the exponentials of the whole
    row without those tokens; None where nobody asks for log-probabilities.
    """

    ids: np.ndarray
    values: np.ndarray
    log_total: float | None

    def first(self, count: int) -> Shortlist:
        """The `count` largest, in memory of their own; without those of minus infinity, except where all are."""
        values = self.values[:count]
        drawn = max(1, int(np.count_nonzero(values != -np.inf)))
        return Shortlist(self.ids[:drawn].copy(), values[:drawn].copy(), self.log_total)


class ListedLogProbs:
    """The log-softmax of a row, of which a list and the total are known; its values are not to be changed meanwhile."""

    def __init__(self, row: Shortlist):
        assert row.log_total is not None
        self._row, self._log_total = row, row.log_total

    def of(self, token: int) -> float:
        """The log-probability of one token of the list."""
        (at,) = np.flatnonzero(self._row.ids == token)
        return float(self._row.values[at]) - self._log_total

    def top(self, count: int) -> list[tuple[int, float]]:
        """The `count` likeliest tokens and their log-probabilities, likeliest first, the lower id on ties."""
        row = self._row
        pairs = zip(row.ids.tolist(), row.values.tolist(), strict=True)
        reachable = ((token, value - self._log_total) for token, value in pairs if value > -math.inf)
        return list(islice(reachable, max(count, 0)))
