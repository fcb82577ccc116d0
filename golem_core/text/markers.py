"""What a family's models write around thoughts and tool calls, and how a call inside its marks is read.

A family fills in `Markers`; the sorter finds the marks in an answer, and `read_calls` reads what follows the first
call mark with the syntaxes that the family declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Call:
    """A function that the model wants called: its name, and its arguments as JSON values in the written order."""

    name: str
    arguments: dict[str, Any]


class UnreadableCall(ValueError):
    """The text of a call doesn't follow the syntax.  The message says what was expected and what stands there."""

    def __init__(self, expected: str, text: str, at: int):
        found = repr(text[at : at + 30]) if at < len(text) else "the end of the answer"
        super().__init__(f"expected {expected}, found {found}")


class CallSyntax(Protocol):
    """One way to write a call between the marks."""

    @property
    def begin(self) -> str:
        """What a call written this way begins with."""
        ...

    def read(self, text: str, at: int, tools: Mapping[str, Mapping[str, Any]]) -> tuple[Call, int]:
        """The call that begins at `text[at]`, and where it ends.

        `tools` has the JSON schema of the arguments of every declared function by its name; a model may call another
        name.  Raises UnreadableCall.
        """
        ...


@dataclass(frozen=True)
class Markers:
    """The marks of a family, as the texts (open, close); None where its models have no such thing.

    `syntaxes` are the ways in which a call may be written between its marks.  `trims` drops the whitespace around the
    prose of an answer while tools are declared.
    """

    thought: tuple[str, str] | None = None
    call: tuple[str, str] | None = None
    syntaxes: tuple[CallSyntax, ...] = ()
    trims: bool = True

    def __post_init__(self) -> None:
        if any(not mark for pair in (self.thought, self.call) if pair for mark in pair):
            raise ValueError("a mark is empty")
        if bool(self.call) != bool(self.syntaxes):
            raise ValueError("marks of calls and syntaxes of calls are declared together")
        if not isinstance(self.syntaxes, tuple):
            raise ValueError(f"syntaxes is no tuple but a {type(self.syntaxes).__name__}")


def read_calls(markers: Markers, text: str, tools: Mapping[str, Mapping[str, Any]]) -> list[Call]:
    """All calls of an answer; `text` begins after the mark that opens the first one.

    Only whitespace may stand between and after calls.  Raises UnreadableCall for anything else.
    """
    assert markers.call is not None
    opener, closer = markers.call
    calls: list[Call] = []
    at = 0
    while True:
        at = skip_blanks(text, at)
        syntax = next((each for each in markers.syntaxes if text.startswith(each.begin, at)), None)
        if syntax is None:
            raise UnreadableCall(" or ".join(repr(each.begin) for each in markers.syntaxes), text, at)
        try:
            call, at = syntax.read(text, at, tools)
        except RecursionError:
            raise UnreadableCall("values that are nested less deeply", text, at) from None
        calls.append(call)
        at = skip_blanks(text, expect(text, skip_blanks(text, at), closer))
        if at == len(text):
            return calls
        at = expect(text, at, opener)


def skip_blanks(text: str, at: int) -> int:
    """Where the first character that is no whitespace stands, from `at` on."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def expect(text: str, at: int, *marks: str) -> int:
    """Behind the one of `marks` that stands at `text[at]`.  Raises UnreadableCall if none does."""
    for mark in marks:
        if text.startswith(mark, at):
            return at + len(mark)
    raise UnreadableCall(" or ".join(map(repr, marks)), text, at)


def argument_schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The schema of each declared function's arguments by the function's name, {} where none is declared."""
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
