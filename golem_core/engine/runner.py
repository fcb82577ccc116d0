"""Running passes: from the chunks that were scheduled to the logits that they ask for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.graph import Columns

if TYPE_CHECKING:
    from golem_core.engine.scheduler import Chunk


_TELLING = 16  # columns of a pass from which the time of one can be told


class Runner:
    """Runs a compiled pass and keeps the time.  With GOLEM_DEBUG_BATCHES set, each pass prints a line on stderr."""

    def __init__(self, compiled: Any):
        self._pass = compiled
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))
        self.last_seconds = 0.0
        self.column_seconds = 0.0
        """About how long a column of a prompt takes, 0 before one was read."""

    def run(self, chunks: Sequence[Chunk], waited: float = 0.0) -> np.ndarray:
        """Feed the chunks; float32 (scored chunks, vocabulary), in their order, valid until the next run."""
        columns = _columns(chunks)
        start = time.perf_counter()
        logits = self._pass.run(columns)["logits"]
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
        return logits


def _columns(chunks: Sequence[Chunk]) -> Columns:
    """Columns chunk by chunk; the last column of a scored chunk is scored."""
    token: list[int] = []
    position: list[int] = []
    slot: list[int] = []
    scored: list[int] = []
    for chunk in chunks:
        conversation = chunk.conversation
        assert conversation.slot is not None
        token += conversation.upcoming(chunk.count)
        position += range(conversation.position, conversation.position + chunk.count)
        slot += [conversation.slot.index] * chunk.count
        if chunk.scored:
            scored.append(len(token) - 1)
    as_array = lambda values: np.array(values, np.int64)
    return Columns(as_array(token), as_array(position), as_array(slot), as_array(scored))
