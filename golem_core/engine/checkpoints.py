"""Copies of a slot's recurrent states at earlier positions.

A recurrent state has read everything up to its position and cannot go back.  Copies made on the way let a prompt
that parts from what the slot holds resume before the parting, instead of being read from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

INTERVAL = 1024
"""Every multiple of this position is saved while a prompt is read."""
WORTH_SAVING = 256
"""The least position at which a parting is saved; less is soon read again."""


class RecurrentStates(Protocol):
    """What a compiled pass offers for its recurrent states (`golem_core.graph.Pass`)."""

    def save(self, slot: int) -> Any: ...

    def restore(self, slot: int, saved: Any | None) -> None: ...


class Checkpoints:
    """The checkpoints of one slot, at most `most`, the least recently used giving way.

    A checkpoint stands for a beginning of the tokens that the slot holds, so its length is all that is noted of it.
    """

    def __init__(self, states: RecurrentStates, slot: int, most: int):
        self._states = states
        self._slot = slot
        self._most = most
        self._saved: dict[int, Any] = {}  # by length, the least recently used first

    @property
    def lengths(self) -> list[int]:
        """The positions that may be gone back to."""
        return sorted(self._saved)

    def resume(self, held: int, limit: int, allowed: Callable[[int], bool] = lambda length: True) -> int:
        """Put the states where reading may go on, and return that position.

        The states stand after `held` tokens, of which the first `limit` serve the prompt.  Goes on there if that is
        all of them, else from the longest checkpoint within the limit that `allowed` accepts, else from nothing.
        Longer checkpoints are dropped.
        """
        if 0 < held == limit and allowed(held):
            start = held
        else:
            start = max((n for n in self._saved if n <= limit and allowed(n)), default=0)
            saved = self._saved.pop(start, None)
            self._states.restore(self._slot, saved)
            if start:
                self._saved[start] = saved
        self._saved = {length: saved for length, saved in self._saved.items() if length <= start}
        return start

    def stops(self, start: int, parting: int, length: int) -> list[int]:
        """Where to save while a prompt of `length` tokens is read from `start`; it parts from the last at `parting`."""
        if self._most == 0:
            return []
        wanted: Collection[int] = range((start // INTERVAL + 1) * INTERVAL, length + 1, INTERVAL)
        if max(start + 1, WORTH_SAVING) <= parting < length:
            wanted = {*wanted, parting}
        return sorted(wanted)

    def save(self, length: int) -> None:
        """Copy the states, which stand after `length` tokens."""
        self._saved.pop(length, None)
        while len(self._saved) >= self._most:
            del self._saved[next(iter(self._saved))]
        self._saved[length] = self._states.save(self._slot)

    def forget(self) -> None:
        """Hold nothing.  The states are unknown until the next `resume`, which then starts from nothing."""
        self._saved.clear()
