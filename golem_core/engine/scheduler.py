"""What goes into the next pass, and how long to wait for company.

Conversations that are drawing need one column each and come first, so that reading a long prompt doesn't halt
them; prompts fill the rest, the oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golem_core.engine.conversation import Conversation

_LONGEST_WAIT = 0.002  # seconds for the next one to come
_LONGEST_HALT = 0.05  # seconds that reading a prompt may add to a pass that others draw from
_LEAST_CHUNK = 16  # columns; devices read at a fraction of their speed with fewer


@dataclass(frozen=True)
class Chunk:
    """The next `count` tokens of a conversation."""

    conversation: Conversation
    count: int

    @property
    def scored(self) -> bool:
        """Whether these are the last tokens known, so that the logits after them are needed."""
        return self.count == self.conversation.waiting


def reading_room(width: int, column_seconds: float) -> int:
    """How many columns of prompts a pass may have while others are drawing, given how long one takes.

    Their tokens come no faster than the passes do.  A narrow pass reads a little slower than a wide one, so this
    trades the reader's first token for the others' steadiness.
    """
    if column_seconds <= 0:
        return min(width, _LEAST_CHUNK)
    return min(width, max(_LEAST_CHUNK, int(_LONGEST_HALT / column_seconds) & -8))


def plan(ready: Sequence[Conversation], width: int, reading: int | None = None) -> list[Chunk]:
    """Fill a pass of at most `width` columns from the conversations in `ready`, the longest waiting first.

    At most `reading` of them are of prompts.
    """
    prompts = [each for each in ready if each.reading]
    # One column is kept for a prompt, or a full house of drawing conversations would never let it begin.
    room = width - 1 if prompts and width > 1 else width
    chunks = [Chunk(each, 1) for each in ready if not each.reading][:room]
    left = width - len(chunks)
    if reading is not None:
        left = min(left, reading)
    free = width - len(chunks)
    for each in prompts:
        if left <= 0:
            break
        # Rows that see each other go together though that holds up those who draw.
        count = each.part(left) or (each.least if each.least <= free else 0)
        if count == 0:
            break
        chunks.append(Chunk(each, count))
        left, free = left - count, free - count
    return chunks


def patience(ready: int, in_flight: int, last_pass: float, since_first: float, since_last: float) -> float:
    """Seconds to wait for the next of the conversations in flight that are not ready.

    `last_pass` is how long the last pass took, `since_first` and `since_last` are the seconds since the first and the
    last of those that are ready came.  A pass costs little more for one column more, so an eighth of it is worth
    waiting in all, if somebody comes every two milliseconds.
    """
    return 0.0 if ready >= in_flight else min(last_pass / 8 - since_first, _LONGEST_WAIT - since_last)
