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

if TYPE_CHECKING:
    from golem_core.engine.scheduler import Chunk


_TELLING = 16  # columns of a pass from which the time of one can be told


class Runner:
    """Runs a compiled pass and keeps the time.  With GOLEM_DEBUG_BATCHES set, each pass prints a line on stderr.

    `given` is the width of the rows that may stand in place of tokens; None where the graph takes none.
    """

    def __init__(self, compiled: Any, slots: int, vocabulary: int, given: int | None = None):
        self._media = None if given is None else MediaColumns(compiled.width, given)
        self._pass = compiled
        self._several = getattr(compiled, "buffers", 1) > 1
        self._lender = Lender(getattr(compiled, "buffers", 1), slots, vocabulary)
        self._buffer = 0
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))
        self.last_seconds = 0.0
        self.column_seconds = 0.0
        """About how long a column of a prompt takes, 0 before one was read."""

    def run(self, chunks: Sequence[Chunk], waited: float = 0.0, guesses: Sequence[int] = ()) -> dict[str, np.ndarray]:
        """Feed the chunks; the pass's outputs, valid until the next run unless they are lent.

        "logits" is float32 (scored chunks, vocabulary), in their order.  `guesses` may stand after a single chunk: all
        are scored and tentative, and `keep` says how many of the columns stand.
        """
        columns = _columns(chunks, guesses, self._media)
        start = time.perf_counter()
        if self._several:
            self._buffer = self._lender.free()
            outputs = self._pass.run(columns, self._buffer)
        else:
            outputs = self._pass.run(columns)
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
        return outputs

    def keep(self, slot: int, count: int) -> None:
        """Of the tentative columns that ran last, the first `count` stand."""
        self._pass.keep(slot, count)

    def lend(self, logits: np.ndarray, slots: Sequence[int]) -> list[Lent]:
        """The rows that `run` has just returned, one for each slot, so that they stay right while passes follow."""
        return self._lender.lend(self._buffer, logits, slots)


def _columns(chunks: Sequence[Chunk], guesses: Sequence[int], media: MediaColumns | None = None) -> Columns:
    """Columns chunk by chunk; the last column of a scored chunk is scored, and so are guesses after a single one."""
    token: list[int] = []
    position: list[int] = []
    slot: list[int] = []
    scored: list[int] = []
    placed: list[tuple[int, np.ndarray]] = []
    last: list[int] = []
    whole = any(chunk.conversation.whole for chunk in chunks)
    for chunk in chunks:
        conversation = chunk.conversation
        assert conversation.slot is not None
        placed += [(len(token) + at, rows) for at, rows in conversation.rows(chunk.count)]
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
    inputs = media.inputs(len(token), placed) if media else {}
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
