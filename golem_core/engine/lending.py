"""Rows of logits that are drawn from while the next pass runs: lent out of the pass's own memory, or copied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from golem_core.sampling import Shortlist

Lent = tuple[np.ndarray | Shortlist, Callable[[], None]]
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

    def lend(self, buffer: int, rows: Sequence[np.ndarray | Shortlist], slots: Sequence[int]) -> list[Lent]:
        """The rows, float32 (vocabulary,), which a pass has left in `buffer`, one for each slot; lists stay as they
        are, since they have memory of their own."""
        whole = [row for row in rows if isinstance(row, np.ndarray)]
        with self._lock:
            stay = bool(whole) and whole[0].flags.writeable and self._lent.count(0) > 1
            if stay:
                self._lent[buffer] = len(whole)
        lent: list[Lent] = []
        for row, slot in zip(rows, slots, strict=True):
            if isinstance(row, Shortlist):
                lent.append((row, _nothing))
            elif stay:
                lent.append((row, partial(self._done, buffer)))
            else:
                np.copyto(self._copies[slot], row)
                lent.append((self._copies[slot], _nothing))
        return lent

    def _done(self, buffer: int) -> None:
        with self._lock:
            self._lent[buffer] -= 1


def _nothing() -> None:
    pass
