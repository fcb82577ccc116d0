"""What Gemma writes around thoughts and calls, and its own syntax for a call: `call:NAME{key:value,...}`.

Keys are bare, texts stand between two quote tokens with nothing escaped inside, and the rest is as in JSON, as in the
chat template published with Gemma 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from golem_core import Call, Markers, UnreadableCall

QUOTE = '<|"|>'
_KEY = re.compile(r"([^:,{}\[\]]+):")
_NAME = re.compile(r"\s*([^\s{}\[\],:]+)\s*(?=\{)")
_BARE = re.compile(r"([^,{}\[\]]+)(?=[,}\]])")
_BLANKS = re.compile(r"\s*")
_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None, "None": None}


@dataclass(frozen=True)
class GemmaCalls:
    """Reads `call:NAME{key:value,...}`; a value is a quoted text, a mapping, a list, a number or a bare word."""

    begin: str = "call:"

    def read(self, text: str, at: int, tools: Mapping[str, Mapping[str, Any]]) -> tuple[Call, int]:
        """The call at `text[at]` and where it ends.  Raises UnreadableCall."""
        name = _NAME.match(text, at + len(self.begin))
        if name is None:
            raise UnreadableCall("a function's name and '{'", text, at + len(self.begin))
        arguments, end = _mapping(text, name.end() + 1)
        return Call(name[1], arguments), end


def _mapping(text: str, at: int) -> tuple[dict[str, Any], int]:
    """The mapping whose brace was opened before `at`, and where it ends."""
    found: dict[str, Any] = {}
    at = _skip(text, at)
    if text.startswith("}", at):
        return found, at + 1
    while True:
        key, at = _key(text, at)
        found[key], at = _value(text, at)
        at = _skip(text, at)
        if text.startswith("}", at):
            return found, at + 1
        at = _expect(text, at, ",", "',' or '}'")


def _list(text: str, at: int) -> tuple[list[Any], int]:
    """The list whose bracket was opened before `at`, and where it ends."""
    found: list[Any] = []
    at = _skip(text, at)
    if text.startswith("]", at):
        return found, at + 1
    while True:
        value, at = _value(text, at)
        found.append(value)
        at = _skip(text, at)
        if text.startswith("]", at):
            return found, at + 1
        at = _expect(text, at, ",", "',' or ']'")


def _key(text: str, at: int) -> tuple[str, int]:
    at = _skip(text, at)
    if text.startswith(QUOTE, at):
        key, at = _quoted(text, at)
        return key, _expect(text, _skip(text, at), ":", "':'")
    bare = _KEY.match(text, at)
    if bare is None or not bare[1].strip() or "<|" in bare[1]:
        raise UnreadableCall("a key and ':'", text, at)
    return bare[1].strip(), bare.end()


def _value(text: str, at: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if text.startswith(QUOTE, at):
        return _quoted(text, at)
    if text.startswith("{", at):
        return _mapping(text, at + 1)
    if text.startswith("[", at):
        return _list(text, at + 1)
    bare = _BARE.match(text, at)
    if bare is None or not bare[1].strip() or "<|" in bare[1] or "|>" in bare[1]:
        raise UnreadableCall("a value", text, at)
    return _word(bare[1].strip()), bare.end()


def _word(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) < 400:  # longer ones are no numbers that anybody counts with
        if _WHOLE.fullmatch(word):
            return int(word)
        if _NUMBER.fullmatch(word) and abs(number := float(word)) < float("inf"):
            return number
    return word


def _quoted(text: str, at: int) -> tuple[str, int]:
    start = at + len(QUOTE)
    end = text.find(QUOTE, start)
    if end < 0:
        raise UnreadableCall(f"a text that ends with {QUOTE}", text, at)
    return text[start:end], end + len(QUOTE)


def _skip(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _expect(text: str, at: int, mark: str, expected: str) -> int:
    if not text.startswith(mark, at):
        raise UnreadableCall(expected, text, at)
    return at + len(mark)


GEMMA4 = Markers(
    thought=("<|channel>thought", "<channel|>"),
    call=("<|tool_call>", "<tool_call|>"),
    syntaxes=(GemmaCalls(),),
    trims=False,
)
"""Gemma 3 has neither thoughts nor calls."""
