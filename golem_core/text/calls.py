"""Syntaxes of tool calls that several families share: a JSON object, and tags for function and parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from golem_core.text.markers import Call, UnreadableCall, expect, skip_blanks


@dataclass(frozen=True)
class JsonCalls:
    """A call as a JSON object: `{"name": "f", "arguments": {...}}`.

    `name` and `arguments` are the members' names.  The arguments are an object, a text that holds one, or null;
    further members are ignored.
    """

    name: str = "name"
    arguments: str = "arguments"
    begin: str = "{"

    def read(self, text: str, at: int, tools: Mapping[str, Mapping[str, Any]]) -> tuple[Call, int]:
        """The call at `text[at]` and where it ends.  Raises UnreadableCall."""
        made, end = read_json(text, at)
        name = made.get(self.name) if isinstance(made, dict) else None
        if not isinstance(made, dict) or not isinstance(name, str) or not name:
            raise UnreadableCall(f"an object with {self.name!r}, a text", text, at)
        if self.arguments not in made:
            raise UnreadableCall(f"an object with {self.arguments!r}", text, at)
        arguments = made[self.arguments]
        if isinstance(arguments, str):
            inner, last = read_json(arguments, skip_blanks(arguments, 0))
            expect_end(arguments, skip_blanks(arguments, last))
            arguments = inner
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise UnreadableCall(f"an object as {self.arguments!r}", text, at)
        return Call(name, arguments), end


@dataclass(frozen=True)
class TaggedCalls:
    """A call as tags, `<function=f>` around one `<parameter=k>` for each argument, the values as text between them.

    A value that is JSON of a kind which the declared schema allows is that value; anything else, and every JSON
    string, is text as it stands.
    """

    begin: str = "<function="

    def read(self, text: str, at: int, tools: Mapping[str, Mapping[str, Any]]) -> tuple[Call, int]:
        """The call at `text[at]` and where it ends.  Raises UnreadableCall."""
        name, at = _tag(text, at, self.begin)
        schemas = tools.get(name, {}).get("properties")
        arguments: dict[str, Any] = {}
        while True:
            at = skip_blanks(text, at)
            if text.startswith(_END, at):
                return Call(name, arguments), at + len(_END)
            key, at = _tag(text, at, _PARAMETER)
            end = _end_of_value(text, at)
            value = text[at:end].removeprefix("\n").removesuffix("\n")
            arguments[key] = _value(value, schemas.get(key) if isinstance(schemas, Mapping) else None)
            at = end + len(_CLOSE)


_PARAMETER, _CLOSE, _END = "<parameter=", "</parameter>", "</function>"


def _tag(text: str, at: int, begin: str) -> tuple[str, int]:
    """The name in the tag at `text[at]`, and where the tag ends."""
    start = expect(text, at, begin)
    end = text.find(">", start)
    name = text[start:end].strip()
    if end < 0 or not name or "\n" in name:
        raise UnreadableCall(f"a name and '>' after {begin!r}", text, start)
    return name, end + 1


def _end_of_value(text: str, at: int) -> int:
    """Where the value ends that begins at `text[at]`; it may itself hold closing tags."""
    start = at
    while (end := text.find(_CLOSE, at)) >= 0:
        if text.startswith((_PARAMETER, _END), skip_blanks(text, end + len(_CLOSE))):
            return end
        at = end + 1
    raise UnreadableCall(f"a value and {_CLOSE!r}", text, start)


def _value(text: str, schema: Any) -> Any:
    try:
        value, end = read_json(text, skip_blanks(text, 0))
        expect_end(text, skip_blanks(text, end))
    except UnreadableCall:
        return text
    return text if isinstance(value, str) or not allows(schema, value) else value


def allows(schema: Any, value: Any) -> bool:
    """Whether a JSON schema, as far as it names types, allows a value of this kind.  What it leaves open is allowed."""
    if not isinstance(schema, Mapping):
        return True
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and not any(allows(each, value) for each in schema[name]):
            return False
    if isinstance(schema.get("enum"), list) and not any(_same(each, value) for each in schema["enum"]):
        return False
    if "const" in schema and not _same(schema["const"], value):
        return False
    kinds = schema.get("type")
    if kinds is None:
        return True
    named = kinds if isinstance(kinds, list) else [kinds]
    return any(_KINDS.get(str(kind).lower(), _anything)(value) for kind in named)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _anything(value: Any) -> bool:
    return True


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": _number,
    "integer": lambda value: _number(value) and value == int(value),
}


def expect_end(text: str, at: int) -> None:
    """Raise UnreadableCall unless `text` ends at `at`."""
    if at < len(text):
        raise UnreadableCall("nothing further", text, at)


def read_json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that begins at `text[at]`, and where it ends; line ends inside strings are let through.

    Raises UnreadableCall, also for numbers and characters that cannot be written out again.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
        text[at:end].encode()
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise UnreadableCall("JSON", text, error.pos) from None
    except (UnicodeEncodeError, _NoNumber, ValueError):
        raise UnreadableCall("JSON of plain characters and numbers", text, at) from None
    except RecursionError:
        raise UnreadableCall("values that are nested less deeply", text, at) from None
    return value, end


class _NoNumber(ValueError):
    pass


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NoNumber(text)
    return value


def _constant(text: str) -> Any:
    raise _NoNumber(text)


_DECODER = json.JSONDecoder(strict=False, parse_float=_float, parse_constant=_constant)
