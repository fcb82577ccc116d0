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

GIVEN, IS_TEXT, PLACE = "given", "is_text", "place"
"""The inputs of a graph that takes rows in place of tokens' embeddings, and that turns heads by places."""
_MOST_ROWS = 1 << 24


@dataclass(frozen=True, eq=False)
class Span:
    """Rows of a prompt: `rows` float32 (n, width) stand at the n positions from `start` on.

    `whole`: they see each other, so one pass must have all of them.  `places`, int (n, axes), says where the rows stand
    on each axis, counted from the place that a token at `start` would have; None: where tokens would.
    """

    start: int
    rows: np.ndarray
    whole: bool = False
    places: np.ndarray | None = None

    @property
    def stop(self) -> int:
        return self.start + len(self.rows)

    @property
    def extent(self) -> int:
        """By how much the place of the token behind the rows is greater than that of one at `start`."""
        return len(self.rows) if self.places is None else int(self.places.max()) + 1


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


def given_places(g: Graph, axes: int) -> Value:
    """Where every column stands on each of `axes` axes (axes,), as `Graph.rope_at` reads it.

    It adds the input "place" to the graph.  Tokens stand at the same place on every axis, one behind the other; rows
    of media where their `MediaKind.places` says; and the token behind them one further than the furthest of these.
    """
    return g.input(PLACE, (axes,))


def places(spans: Iterable[Span], first: int, count: int, axes: int) -> np.ndarray:
    """The places, int64 (count, axes), of the positions from `first` on in a prompt with these spans, in order."""
    at = np.repeat(np.arange(first, first + count)[:, None], axes, 1)
    for span in spans:
        start, stop = max(span.start - first, 0), max(span.stop - first, 0)
        if span.places is not None and start < count:
            row = first + start - span.start
            here = span.places[row : row + count - start]
            at[start : start + len(here)] += here - np.arange(row, row + len(here))[:, None]
        at[stop:] -= len(span.rows) - span.extent
    return at


class MediaColumns:
    """Makes the inputs of passes of at most `most` columns, for rows of `width` numbers and places on `axes` axes."""

    def __init__(self, most: int, width: int, axes: int = 0):
        self._zeros = np.zeros((most, width), np.float32)
        self._ones = np.ones((most, width), np.float32)
        self.axes = axes

    def inputs(
        self, count: int, placed: Sequence[tuple[int, np.ndarray]], at: Sequence[np.ndarray] = ()
    ) -> dict[str, np.ndarray]:
        """For `count` columns, where `placed` are rows and the first column that they stand at.

        `at` are the places of the columns, one part after the other, if there are any axes.
        """
        given, is_text = self._zeros[:count], self._ones[:count]
        if placed:
            given, is_text = given.copy(), is_text.copy()
        for first, rows in placed:
            given[first : first + len(rows)] = rows
            is_text[first : first + len(rows)] = 0
        inputs = {GIVEN: given, IS_TEXT: is_text}
        return inputs | {PLACE: np.concatenate(at)} if self.axes else inputs


def inside(position: int, spans: Iterable[Span]) -> int:
    """The start of the span whose rows would be parted at `position`; `position` itself if none would."""
    return next((span.start for span in spans if span.start < position < span.stop), position)
