"""Pictures and recordings in a prompt: rows that stand at positions in place of tokens.

Each such row has a negative number in the list of tokens.  It is made of a hash of the content, so the numbers alone
tell two pictures apart, and slots compare prompts with media as they compare any others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from golem_core.graph import Graph, Value

GIVEN, IS_TEXT = "given", "is_text"
"""The inputs of a graph that takes rows in place of tokens' embeddings."""
_MOST_ROWS = 1 << 24


@dataclass(frozen=True, eq=False)
class Span:
    """Rows of a prompt: `rows` float32 (n, width) stand at the n positions from `start` on.

    `whole`: they see each other, so one pass must have all of them.
    """

    start: int
    rows: np.ndarray
    whole: bool = False

    @property
    def stop(self) -> int:
        return self.start + len(self.rows)


def row_numbers(content: bytes, count: int) -> list[int]:
    """What stands in a list of tokens for the `count` rows that `content` became."""
    first = -1 - int.from_bytes(hashlib.sha256(content).digest()[:16], "big") * _MOST_ROWS
    return list(range(first, first - count, -1))


def or_given(g: Graph, x: Value) -> Value:
    """The embeddings `x` (width,) of the columns that have a token, and the rows that were handed in for the others.

    It adds the inputs "given" and "is_text" to the graph, both (width,): zeros and ones for a token, the row and
    zeros for another column, whose token is 0.
    """
    return x * g.input(IS_TEXT, x.shape) + g.input(GIVEN, x.shape)


class MediaColumns:
    """Makes the inputs of passes of at most `most` columns, for rows of `width` numbers."""

    def __init__(self, most: int, width: int):
        self._zeros = np.zeros((most, width), np.float32)
        self._ones = np.ones((most, width), np.float32)

    def inputs(self, count: int, placed: Sequence[tuple[int, np.ndarray]]) -> dict[str, np.ndarray]:
        """For `count` columns, where `placed` are rows and the first column that they stand at."""
        given, is_text = self._zeros[:count], self._ones[:count]
        if placed:
            given, is_text = given.copy(), is_text.copy()
        for first, rows in placed:
            given[first : first + len(rows)] = rows
            is_text[first : first + len(rows)] = 0
        return {GIVEN: given, IS_TEXT: is_text}


def inside(position: int, spans: Iterable[Span]) -> int:
    """The start of the span whose rows would be parted at `position`; `position` itself if none would."""
    return next((span.start for span in spans if span.start < position < span.stop), position)
