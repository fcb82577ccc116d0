"""Where a slot may resume: how much of a prompt its caches hold already.

Full attention needs the shared prefix only.  A sliding-window ring overwrites its oldest positions, so going back
is possible only as far as everything that the next position looks at is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from golem_core.engine.media import Span, inside


class RingOwners:
    """Which position each entry of one sliding-window ring holds.

    Position p is stored at p mod `length`, and a position looks at itself and the `window` - 1 before it.
    """

    def __init__(self, length: int, window: int):
        self._window = window
        self._owner = np.full(length, -1, np.int64)

    def record(self, start: int, count: int) -> None:
        """Positions from `start` on were written, `count` of them."""
        positions = np.arange(start, start + count)
        self._owner[positions % len(self._owner)] = positions

    def first_missing(self, position: int) -> int | None:
        """The smallest position that `position` would look at and that is not there; None where all are."""
        seen = np.arange(max(0, position - self._window + 1), position)
        missing = np.flatnonzero(self._owner[seen % len(self._owner)] != seen)
        return int(seen[missing[0]]) if len(missing) else None

    def forget(self) -> None:
        """Hold nothing."""
        self._owner.fill(-1)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading entries two lists of tokens share."""
    same, different = 0, min(len(one), len(other)) + 1
    while different - same > 1:  # the first `same` are equal, the first `different` are not
        middle = (same + different) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            different = middle
    return same


def present(rings: Iterable[RingOwners], position: int) -> bool:
    """Whether everything that `position` looks at is still there."""
    return all(ring.first_missing(position) is None for ring in rings)


def resume_position(
    held: Sequence[int], prompt: Sequence[int], rings: Iterable[RingOwners], whole: Sequence[Span] = ()
) -> int:
    """The first position of `prompt` to feed to a slot that holds the tokens `held`.

    The last token is always fed, because its logits are needed, and the `whole` spans not in parts.
    """
    start = inside(min(common_prefix(held, prompt), len(prompt) - 1), whole)
    while gaps := [gap for ring in rings if (gap := ring.first_missing(start)) is not None]:
        start = inside(min(gaps), whole)
    return start
