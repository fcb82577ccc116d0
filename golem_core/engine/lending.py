"""Rows of logits that are drawn from while the next pass runs: lent out of the pass's own memory, or copied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

Lent = tuple[np.ndarray, Callable[[], None]]
"""A row of logits to overwrite, and what to call when it is not looked at any more."""


class Lender:
    """Knows which of a pass's output buffers are free; at every time at least one is.

    A pass that writes one of several buffers leaves the rows where they are while another buffer is free for the pass
    after it.  Otherwise, as for a sampler that takes longer than a pass, they are copied into a row of each slot.
    """

    def __init__(self, buffers: int, slots: int, vocabulary: int):
        self._lent = [0] * buffers  # rows of each that are out
        self._copies = np.empty((slots, vocabulary), np.float32)
        self._lock = threading.Lock()

    def free(self) -> int:
        """The buffer that the next pass may write."""
        with self._lock:
            return self._lent.index(0)

    def lend(self, buffer: int, logits: np.ndarray, slots: Sequence[int]) -> list[Lent]:
        """The rows of `logits`, float32 (slots, vocabulary), which a pass has left in `buffer`, one for each slot."""
        with self._lock:
            stay = logits.flags.writeable and self._lent.count(0) > 1
            if stay:
                self._lent[buffer] = len(logits)
        if stay:
            return [(row, partial(self._done, buffer)) for row in logits]
        for row, slot in zip(logits, slots, strict=True):
            np.copyto(self._copies[slot], row)
        return [(self._copies[slot], _nothing) for slot in slots]

    def _done(self, buffer: int) -> None:
        with self._lock:
            self._lent[buffer] -= 1


def _nothing() -> None:
    pass
