"""An answer as every endpoint wants it: reasoning, content and calls, sorted out of the tokens as they are drawn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from golem_core.errors import BadRequest, Unavailable
from golem_core.text import AnswerSorter, Call, Calls, Content, Event, Markers, Reasoning, UnreadableCall

if TYPE_CHECKING:
    from golem_core.engine.engine import Engine
    from golem_core.engine.request import Generation, GenerationRequest
    from golem_core.engine.roles import ChatModel
    from golem_core.sampling.grammar import CompiledGrammar, Constraint
    from golem_core.text import Tokenizer

__all__ = ["SortedAnswer", "WholeAnswer", "constraint", "opens_thought"]


@dataclass(frozen=True)
class WholeAnswer:
    """All parts of an answer that has ended."""

    reasoning: str
    content: str
    calls: tuple[Call, ...]
    finish_reason: Literal["stop", "length", "tool_calls"]


class SortedAnswer:
    """A generation with its text sorted: iterate over it, with `for` or with `async for`.

    One list of events comes for every drawn token, often an empty one, and one at the end, which may have `Calls`.
    Joined they are the same however the text was split into tokens.  Iterating raises what made the generation fail,
    and BadRequest (code "unreadable_call") at the end for a call that cannot be read.  An answer that its budget
    ended inside a call has no calls.

    `generation` has the facts and the way to cancel; `finish_reason` is this answer's, once it has ended.
    """

    def __init__(self, generation: Generation, sorter: AnswerSorter):
        self.generation = generation
        self._sorter = sorter
        self._called = False

    @classmethod
    def submit(
        cls,
        engine: Engine,
        model: ChatModel,
        request: GenerationRequest,
        *,
        markers: Markers,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> SortedAnswer:
        """Have a request answered, and sort the answer by `markers`.

        `tools` are the argument schemas of the functions that may be called, by name; None where none may.  Raises
        BadRequest as `Engine.submit` does.
        """
        tokenizer = model.tokenizer
        if (constraint := request.sampling.grammar) is not None:
            tools = None  # a grammar leaves no calls
            if constraint.thought is None:
                markers = Markers()  # and no thoughts: marks are text of the answer
        hidden = _hidden(tokenizer, markers, tools is not None)
        sorter = AnswerSorter(
            markers,
            thinking=opens_thought(tokenizer, request.prompt, markers),
            tools=tools,
            hidden=hidden.values(),
            one_thought=constraint is not None,
        )
        request.shown = frozenset(hidden)
        return cls(engine.submit(request), sorter)

    @property
    def finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        """Why the answer ended.  Raises GolemError if it was cut off."""
        if self.generation.finish_reason not in ("stop", "length"):
            raise Unavailable("the answer was cut off: the server is stopping")
        return "tool_calls" if self._called else self.generation.finish_reason

    def __iter__(self) -> Iterator[list[Event]]:
        for token in self.generation:
            yield list(self._sorter.push(token.text))
        yield self._finish()

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        async for token in self.generation:
            yield list(self._sorter.push(token.text))
        yield self._finish()

    async def whole(self) -> WholeAnswer:
        """The answer when it has ended."""
        return self._gathered([event async for events in self for event in events])

    def wait(self) -> WholeAnswer:
        """The answer when it has ended, for a thread that has nothing else to do."""
        return self._gathered([event for events in self for event in events])

    def _finish(self) -> list[Event]:
        if self.generation.finish_reason == "cancelled":
            return []
        try:
            events = self._sorter.finish(cut=self.generation.finish_reason == "length")
        except UnreadableCall as error:
            raise BadRequest(f"the model wrote an unreadable tool call: {error}", code="unreadable_call") from None
        self._called = any(isinstance(event, Calls) for event in events)
        return events

    def _gathered(self, events: list[Event]) -> WholeAnswer:
        return WholeAnswer(
            "".join(event.text for event in events if isinstance(event, Reasoning)),
            "".join(event.text for event in events if isinstance(event, Content)),
            tuple(call for event in events if isinstance(event, Calls) for call in event.calls),
            self.finish_reason,
        )


def opens_thought(tokenizer: Tokenizer, prompt: list[int], markers: Markers) -> bool:
    """Whether a prompt ends inside a thought that it opened: the answer begins with reasoning."""
    if markers.thought is None:
        return False
    opener = markers.thought[0]
    end = prompt[-(len(opener.encode()) + 8) :]  # a token has a byte or more
    tail = tokenizer.decode([token for token in end if token >= 0], special=True)
    return tail.rstrip().endswith(opener)


def constraint(model: ChatModel, grammar: CompiledGrammar, prompt: list[int], *, thinks: bool) -> Constraint:
    """The grammar with what may come before it: a thought, if the prompt ends inside one or was to bring one about."""
    from golem_core.sampling.grammar import Constraint, Thought

    marks = model.markers.thought
    opened = opens_thought(model.tokenizer, prompt, model.markers)
    if marks is None or not (opened or thinks):
        return Constraint(grammar)
    return Constraint(grammar, Thought(marks, opened))


def _hidden(tokenizer: Tokenizer, markers: Markers, calls: bool) -> dict[int, str]:
    """The control tokens that the marks are written with: their texts must reach the sorter, and nobody else."""
    marks = [*(markers.thought or ()), *((markers.call or ()) if calls else ())]
    ids = {id for mark in marks for id in tokenizer.encode(mark, parse_special=True) if not tokenizer.piece(id)}
    return {id: tokenizer.piece(id, special=True).decode() for id in ids}
