"""Running passes: from the chunks that were scheduled to the logits that they ask for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.engine.lending import Lender, Lent
from golem_core.engine.media import MediaColumns
from golem_core.graph import Columns
from golem_core.sampling import Shortlist

if TYPE_CHECKING:
    from golem_core.engine.conversation import Conversation
    from golem_core.engine.scheduler import Chunk


_TELLING = 16  # columns of a pass from which the time of one can be told
_MOST_LISTED = 128  # logits of a row that a device may be asked to list

Row = np.ndarray | Shortlist
"""What a token is drawn from: all logits, float32 (vocabulary,), or the largest of them."""


class Runner:
    """Runs a compiled pass and keeps the time.  With GOLEM_DEBUG_BATCHES set, each pass prints a line on stderr.

    `given` is the width of the rows that may stand in place of tokens; None where the graph takes none, and `axes` is
    on how many axes the graph is told their places.  `suppress` are the tokens that are never drawn.
    """

    def __init__(
        self,
        compiled: Any,
        slots: int,
        vocabulary: int,
        given: int | None = None,
        suppress: Sequence[int] = (),
        axes: int = 0,
    ):
        self._media = None if given is None else MediaColumns(compiled.width, given, axes)
        self._pass = compiled
        self._several = getattr(compiled, "buffers", 1) > 1
        self._lender = Lender(getattr(compiled, "buffers", 1), slots, vocabulary)
        self._buffer = 0
        self._listed = 0
        """Of the largest logits of a row, how many the pass can list."""
        if prepare := getattr(compiled, "prepare_lists", None):
            self._listed = prepare(min(_MOST_LISTED, vocabulary), suppress)
        self._log_totals: bool = getattr(compiled, "log_totals", True)
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))
        self.last_seconds = 0.0
        self.column_seconds = 0.0
        """About how long a column of a prompt takes, 0 before one was read."""

    def run(
        self, chunks: Sequence[Chunk], waited: float = 0.0, guesses: Sequence[int] = ()
    ) -> tuple[list[Row], dict[str, np.ndarray]]:
        """Feed the chunks; a row for each scored column, in their order, and the pass's other outputs.

        Both are valid until the next run unless rows are lent.  A row is as short as its conversation allows.
        `guesses` may stand after a single chunk: all are scored and tentative, and `keep` says how many of the columns
        stand.
        """
        columns = _columns(chunks, guesses, self._media)
        lists = self._lists(chunks, len(columns.scored))
        options: dict[str, Any] = {"lists": lists} if lists else {}
        start = time.perf_counter()
        if self._several:
            self._buffer = self._lender.free()
            outputs = self._pass.run(columns, self._buffer, **options)
        else:
            outputs = self._pass.run(columns, **options)
        self.last_seconds = time.perf_counter() - start
        if len(columns) >= _TELLING:
            latest = self.last_seconds / len(columns)
            self.column_seconds = (self.column_seconds + latest) / 2 if self.column_seconds else latest
        if self._debug:
            print(
                f"pass: {len(columns.token)} tokens, {len(chunks)} conversations, "
                f"{self.last_seconds * 1e3:.3f} ms, waited {waited * 1e3:.3f} ms",
                file=sys.stderr,
                flush=True,
            )
        return _rows(outputs, lists or [0] * len(columns.scored), self._log_totals), outputs

    def _lists(self, chunks: Sequence[Chunk], scored: int) -> list[int] | None:
        """How many of the largest logits each scored column wants, 0 for whole rows; None if all want these."""
        if not self._listed:
            return None
        wanted = [self._most(chunk.conversation) for chunk in chunks if chunk.scored]
        wanted = [count if count <= self._listed else 0 for count in wanted]
        wanted += wanted[-1:] * (scored - len(wanted))
        return wanted if any(wanted) else None

    def _most(self, conversation: Conversation) -> int:
        """How many of the largest logits of its row say all that this conversation asks for; 0: the whole row must be
        known."""
        return 0 if conversation.with_logprobs and not self._log_totals else conversation.most or 0

    def keep(self, slot: int, count: int) -> None:
        """Of the tentative columns that ran last, the first `count` stand."""
        self._pass.keep(slot, count)

    def lend(self, rows: Sequence[Row], slots: Sequence[int]) -> list[Lent]:
        """The rows that `run` has just returned, one for each slot, so that they stay right while passes follow."""
        return self._lender.lend(self._buffer, rows, slots)


def _rows(outputs: dict[str, np.ndarray], lists: Sequence[int], log_totals: bool) -> list[Row]:
    """What there is of each scored column.  Raises ValueError where a device gives another number of rows."""
    logits, short = outputs["logits"], sum(map(bool, lists))
    if len(logits) != len(lists) - short:
        raise ValueError(f"{len(logits)} rows of logits for {len(lists) - short} scored columns")
    whole = iter(logits)
    if not short:
        return list(whole)
    totals = outputs["log_total"].tolist() if log_totals else [None] * short
    listed = (
        Shortlist(ids.copy(), values.copy(), total)
        for ids, values, total in zip(outputs["list_ids"], outputs["list_values"], totals, strict=True)
    )
    return [next(listed) if count else next(whole) for count in lists]


def _columns(chunks: Sequence[Chunk], guesses: Sequence[int], media: MediaColumns | None = None) -> Columns:
    """Columns chunk by chunk; the last column of a scored chunk is scored, and so are guesses after a single one."""
    token: list[int] = []
    position: list[int] = []
    slot: list[int] = []
    scored: list[int] = []
    placed: list[tuple[int, np.ndarray]] = []
    last: list[int] = []
    places: list[np.ndarray] = []
    whole = any(chunk.conversation.whole for chunk in chunks)
    for chunk in chunks:
        conversation = chunk.conversation
        assert conversation.slot is not None
        placed += [(len(token) + at, rows) for at, rows in conversation.rows(chunk.count)]
        if media and media.axes:
            places.append(conversation.places(chunk.count, media.axes))
        if whole:
            last += conversation.last_seen(chunk.count)
        token += conversation.upcoming(chunk.count)
        position += range(conversation.position, conversation.position + chunk.count)
        slot += [conversation.slot.index] * chunk.count
        if chunk.scored:
            scored.append(len(token) - 1)
    if guesses:
        assert len(chunks) == 1 and scored
        scored += range(len(token), len(token) + len(guesses))
        position += range(position[-1] + 1, position[-1] + 1 + len(guesses))
        last += position[-len(guesses) :] if whole else []
        slot += [slot[-1]] * len(guesses)
        token += guesses
    inputs = media.inputs(len(token), placed, places) if media else {}
    if placed:
        token = [max(each, 0) for each in token]
    as_array = lambda values: np.array(values, np.int64)
    return Columns(
        as_array(token),
        as_array(position),
        as_array(slot),
        as_array(scored),
        inputs,
        tentative=bool(guesses),
        last=as_array(last),
    )
