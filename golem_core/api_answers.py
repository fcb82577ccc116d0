"""Answers as Python draws them: token by token, or sorted into reasoning, content and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from golem_core.engine import Generation, SortedAnswer, Token, WholeAnswer
    from golem_core.text import Event


class Drawn:
    """An answer under way.

    Leaving it before its end, or letting go of it, cancels it.  `generation` has the facts: why it ended, how much
    of the prompt was cached, and where the time went.
    """

    def __init__(self, generation: Generation):
        self.generation = generation

    def close(self) -> None:
        """End the answer here."""
        self.generation.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Answer(Drawn):
    """An answer as it is drawn: an iterator over its tokens.

    Leaving it before its end, or letting go of it, cancels it.
    """

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        return next(self.generation)

    def text(self) -> str:
        """What is left of the answer, as one string."""
        return "".join(token.text for token in self)


class ChatAnswer(Drawn):
    """The answer to a conversation, sorted as it is drawn.

    Iterate once over its pieces, each a `Reasoning`, a `Content` (with a `text`), or at the end a `Calls` (with
    `calls`); the marks that the model writes around them are no part of any.  Or take it as a `whole`.  Leaving it
    before its end, or letting go of it, cancels it.
    """

    def __init__(self, answer: SortedAnswer):
        super().__init__(answer.generation)
        self._answer = answer

    def __iter__(self) -> Iterator[Event]:
        """Raises BadRequest (code "unreadable_call") at the end for a tool call that cannot be read."""
        for events in self._answer:
            yield from events

    def whole(self) -> WholeAnswer:
        """Its `reasoning`, `content`, `calls` (each with `name` and `arguments`) and `finish_reason`, once it has
        ended.  Raises what iterating raises."""
        return self._answer.wait()

    def text(self) -> str:
        """Its content, once it has ended."""
        return self.whole().content
