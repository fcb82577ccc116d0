"""Sorting an answer: its text comes in as it is drawn, and reasoning, content and tool calls go out apart.

The marks between them never leave, nor does a piece of text that may still turn out to be the beginning of one.
How the text is split does not change what goes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from golem_core.text.markers import Call, Markers, UnreadableCall, read_calls


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of what the model says; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Calls:
    """All calls of the turn, at its end; never empty."""

    calls: tuple[Call, ...]


Event = Reasoning | Content | Calls


class AnswerSorter:
    """Sorts one answer by its family's marks.

    `thinking`: the prompt ends inside a thought.  `tools`: the argument schemas of the declared functions by name;
    None where no call can be made, and marks of calls are ordinary text.  `hidden`: further texts that never leave.
    `one_thought`: the answer is one thought at most and then content in which no mark has a meaning, as where it
    follows a grammar.
    """

    def __init__(
        self,
        markers: Markers,
        *,
        thinking: bool = False,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
        hidden: Iterable[str] = (),
        one_thought: bool = False,
    ):
        self._markers = markers
        self._tools = tools if markers.call else None
        self._hidden = dict.fromkeys(hidden, "drop")
        self._one_thought = one_thought
        self._look_for(self._hidden | self._kinds())
        self._state: Literal["content", "reasoning", "call"] = "reasoning" if thinking else "content"
        self._buffer = ""  # what is not yet decided
        self._held = {"content": "", "reasoning": ""}  # line ends or blanks that leave if more of the kind follows
        self._calls: list[str] = []
        self._after_mark = thinking  # line ends right after a mark are dropped
        self._before = {"content": "", "reasoning": ""}  # the end of what came of each, in which a mark could begin
        self._dropped = False  # a mark went, and what stood before may make one with what follows
        self._trims = self._tools is not None and markers.trims
        self._fresh = True  # no content has left yet

    def push(self, text: str) -> list[Reasoning | Content]:
        """Take the next piece of text: what may leave now."""
        if self._state == "call":
            self._calls.append(text)
            return []
        self._buffer += text
        return _joined(self._advance(final=False))

    def finish(self, *, cut: bool = False) -> list[Event]:
        """End the turn: what was held back, and the calls.

        With `cut`, the turn ended before the model was done, and a call that is not whole is dropped with all others.
        Otherwise raises UnreadableCall for it.
        """
        last = self._advance(final=True)
        if self._state == "reasoning" and self._held["content"]:
            last.append(Content(self._held["content"]))
        events: list[Event] = list(_joined([*last, *self._emit("", end=True)]))
        if self._state != "call":
            return events
        assert self._tools is not None
        try:
            calls = read_calls(self._markers, "".join(self._calls), self._tools)
        except UnreadableCall:
            if cut:
                return events
            raise
        return [*events, Calls(tuple(calls))]

    def _look_for(self, marks: dict[str, str]) -> None:
        self._marks = marks
        self._longest = max(map(len, marks), default=0)
        longest_first = sorted(marks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if marks else None

    def _kinds(self) -> dict[str, str]:
        """Every mark in force, and what it does; a mark without a meaning where it stands is dropped."""
        kinds: dict[str, str] = {}
        if self._markers.thought:
            kinds |= dict(zip(self._markers.thought, ("think", "thought"), strict=True))
        if self._tools is not None and self._markers.call:
            kinds |= dict(zip(self._markers.call, ("call", "drop"), strict=True))
        return kinds

    def _advance(self, *, final: bool) -> list[Reasoning | Content]:
        out: list[Reasoning | Content] = []
        while self._state != "call":
            if self._after_mark:
                self._buffer = self._buffer.lstrip("\n")
                if not self._buffer:
                    break
                self._after_mark = False
            if self._dropped:
                rest = self._rest_of_mark(final=final)
                if rest is None:
                    break
                self._buffer = self._buffer[rest:]
                self._dropped = self._after_mark = rest > 0
                continue
            undecided = len(self._buffer) if final else self._undecided()
            found = self._pattern.search(self._buffer) if self._pattern else None
            if found is not None and found.start() >= undecided:
                found = None
            before = self._buffer[: found.start() if found else undecided]
            if self._one_thought and self._state == "content" and before.strip():
                self._one_thought = False
                self._look_for({})
                continue
            out += self._emit(before)
            self._before[self._state] = (self._before[self._state] + before)[-self._longest :] if self._longest else ""
            if found is None:
                self._buffer = self._buffer[undecided:]
                break
            self._buffer = self._buffer[found.end() :]
            self._turn(self._marks[found.group()])
        return out

    def _undecided(self) -> int:
        """Where the longest end of the buffer begins that is the beginning of a mark; its length if there is none."""
        text = self._buffer
        best = len(text)
        for mark in self._marks:
            at = text.find(mark[0], max(0, len(text) - len(mark) + 1), best)
            while at >= 0 and not mark.startswith(text[at:]):
                at = text.find(mark[0], at + 1, best)
            best = at if at >= 0 else best
        return best

    def _rest_of_mark(self, *, final: bool) -> int | None:
        """How much of the buffer completes a mark that begins in what came before; None: that is yet to be seen."""
        waiting = False
        before = self._before[self._state]
        begun = {mark[n:] for mark in self._marks for n in range(1, len(mark)) if before.endswith(mark[:n])}
        for rest in sorted(begun, key=len):  # the shortest, on which nothing that is yet to come has an influence
            if self._buffer.startswith(rest):
                return len(rest)
            waiting |= rest.startswith(self._buffer)
        return None if waiting and not final else 0

    def _turn(self, mark: str) -> None:
        """Do what a mark does where it stands."""
        self._after_mark = True
        if self._state == "reasoning" and mark == "thought":
            self._drop_held()
            self._state = "content"
            if self._one_thought:
                self._look_for({})
        elif self._state == "content" and mark == "think":
            self._state = "reasoning"
        elif self._state == "content" and mark == "call":
            self._drop_held()
            self._state = "call"
            self._calls.append(self._buffer)
            self._buffer = ""
        self._dropped = True

    def _drop_held(self) -> None:
        before, held = self._before[self._state], self._held[self._state]
        self._before[self._state], self._held[self._state] = before[: max(0, len(before) - len(held))], ""

    def _emit(self, text: str, *, end: bool = False) -> list[Reasoning | Content]:
        """`text` as part of its state, without what is held back at its end; all of it at the `end` of the state."""
        if self._state == "call":
            return []
        text = self._held[self._state] + text
        self._held[self._state] = ""
        content = self._state == "content"
        if content and self._fresh and self._trims:
            text = text.lstrip()
        keep = len(text)
        if not end and (not content or self._trims):
            keep = len(text.rstrip() if content else text.rstrip("\n"))
        text, self._held[self._state] = text[:keep], text[keep:]
        if not text:
            return []
        if content:
            self._fresh = False
            return [Content(text)]
        return [Reasoning(text)]


def _joined(events: Iterable[Reasoning | Content]) -> list[Reasoning | Content]:
    """The events, neighbours of one kind as one."""
    out: list[Reasoning | Content] = []
    for event in events:
        if out and type(out[-1]) is type(event):
            out[-1] = type(event)(out[-1].text + event.text)
        else:
            out.append(event)
    return out
