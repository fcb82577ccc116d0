"""From drawn tokens to the text of an answer: complete characters, nothing of a stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from golem_core.text import StopMatcher, Utf8Assembler

if TYPE_CHECKING:
    from golem_core.text import Tokenizer


class AnswerText:
    """Assembles the text of one answer as its tokens are drawn; of control tokens only those in `shown` have text."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], shown: Collection[int] = ()):
        self._tokenizer = tokenizer
        self._shown = shown
        self._characters = Utf8Assembler()
        self._matcher = StopMatcher(stop) if stop else None

    def push(self, token: int) -> tuple[str, bool]:
        """The text that may be sent now, and whether a stop string ended the answer with it."""
        text = self._characters.push(self._tokenizer.piece(token, special=token in self._shown))
        return (text, False) if self._matcher is None else self._matcher.push(text)

    def flush(self) -> str:
        """What was held back, when the answer ends for another reason than a stop string.

        The bytes of an incomplete character are dropped.
        """
        text = self._characters.flush()
        if self._matcher is None:
            return text
        emitted, stopped = self._matcher.push(text)
        return emitted if stopped else emitted + self._matcher.flush()
