"""The texts of JSON values as parts of grammars: tokens, gaps between them, strings, numbers, and given values.

Every token of JSON (a string, a number, a word, a sign, a gap) is a `Token`: nothing that may follow one could have
gone on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from golem_core.sampling.grammar.ast import (
    Choice,
    Name,
    Node,
    Repeat,
    Seq,
    Text,
    Token,
    chars,
    outside,
)

__all__ = ["ANY_RULES", "FORMATS", "GAP", "PRIMITIVES", "array", "constant", "key_besides", "listed", "sign", "text_of"]


def seq(*items: Node | str) -> Seq:
    """One after another; a str stands for itself."""
    return Seq(tuple(Text(item) if isinstance(item, str) else item for item in items))


def maybe(*items: Node | str) -> Repeat:
    """All of them or nothing."""
    return Repeat(seq(*items), 0, 1)


def listed(texts: Iterable[str]) -> Choice:
    """Any of these texts."""
    return Choice(tuple(map(Text, texts)))


def sign(text: str) -> Node:
    """A token with one text."""
    return Token(Text(text))


_DIGIT = chars((0x30, 0x39))
_HEX = chars((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))

# Bounded, so that blanks can't go on for ever.
GAP = Repeat(
    Token(Choice((Text(" "), seq(Repeat(Text("\n"), 1, 2), Repeat(chars(" ", "\t"), 0, 20))))),
    0,
    1,
)

_INTEGRAL = Choice((Text("0"), seq(chars((0x31, 0x39)), Repeat(_DIGIT, 0, 15))))
_INTEGER = seq(maybe("-"), _INTEGRAL)
_NUMBER = seq(
    maybe("-"),
    _INTEGRAL,
    maybe(".", Repeat(_DIGIT, 1, 16)),
    maybe(chars("e", "E"), Repeat(chars("+", "-"), 0, 1), _INTEGRAL),
)

_PLAIN = outside('"', "\\", "\x7f", (0, 0x1F))
_SHORT = {'"': '"', "\\": "\\", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}  # escapes of one letter
_CHARACTER = Choice((_PLAIN, seq("\\", Choice((chars(*_SHORT), seq("u", Repeat(_HEX, 4, 4)))))))
# Escapes of surrogates make one character of two, so they can't be counted.
_D = chars("d", "D")
_NO_SURROGATE = Choice(
    (
        seq(chars((0x30, 0x39), (0x41, 0x43), (0x45, 0x46), (0x61, 0x63), (0x65, 0x66)), Repeat(_HEX, 3, 3)),
        seq(_D, chars((0x30, 0x37)), Repeat(_HEX, 2, 2)),
    )
)
_COUNTED = Choice((_PLAIN, seq("\\", Choice((chars(*_SHORT), seq("u", _NO_SURROGATE))))))


def quoted(*items: Node | str) -> Node:
    """A token in quotes."""
    return Token(_in_quotes(*items))


def _in_quotes(*items: Node | str) -> Node:
    return seq('"', *items, '"')


def text_of(least: int, most: int | None) -> Node:
    """A string of this many characters; an escape counts as one."""
    return quoted(Repeat(_COUNTED, least, most))


_STRING = quoted(Repeat(_CHARACTER, 0, None))

PRIMITIVES: dict[str, Node] = {
    "string": _STRING,
    "number": Token(_NUMBER),
    "integer": Token(_INTEGER),
    "boolean": Choice((sign("true"), sign("false"))),
    "null": sign("null"),
}


def array(item: Node, least: int = 0, most: int | None = None) -> Node:
    """An array of this many items."""
    if most == 0:
        return Seq((sign("["), GAP, sign("]")))
    further = Repeat(Seq((sign(","), GAP, item, GAP)), max(least - 1, 0), None if most is None else most - 1)
    items = Seq((item, GAP, further))
    return Seq((sign("["), GAP, items if least else Repeat(items, 0, 1), sign("]")))


def member(key: Node, value: Node) -> Node:
    """A member of an object, with the gap after it."""
    return Seq((key, GAP, sign(":"), GAP, value, GAP))


def _any_object() -> Node:
    one = member(_STRING, Name("value"))
    members = Seq((one, Repeat(Seq((sign(","), GAP, one)), 0, None)))
    return Seq((sign("{"), GAP, Repeat(members, 0, 1), sign("}")))


ANY_RULES: dict[str, Node] = {
    "value": Choice(
        (
            Name("object"),
            Name("array"),
            *(PRIMITIVES[name] for name in ("string", "number", "boolean", "null")),
        )
    ),
    "object": _any_object(),
    "array": array(Name("value")),
}


def constant(value: Any) -> Node:
    """The compact JSON text of one value.  Raises ValueError for what JSON can't write."""
    if isinstance(value, dict):
        parts: list[Node] = [sign("{")]
        for name, each in value.items():
            parts += [*([sign(",")] if len(parts) > 1 else []), constant(name), sign(":"), constant(each)]
        return Seq((*parts, sign("}")))
    if isinstance(value, list):
        parts = [sign("[")]
        for each in value:
            parts += [*([sign(",")] if len(parts) > 1 else []), constant(each)]
        return Seq((*parts, sign("]")))
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()  # UnicodeEncodeError, a ValueError, for surrogates
    return sign(text)


def _years() -> dict[str, Node]:
    two = lambda tens, ones: seq(chars(tens), ones)
    month = Choice((two("0", chars((0x31, 0x39))), two("1", chars((0x30, 0x32)))))
    day = Choice(
        (
            two("0", chars((0x31, 0x39))),
            seq(chars("1", "2"), _DIGIT),
            two("3", chars("0", "1")),
        )
    )
    hour = Choice((seq(chars("0", "1"), _DIGIT), two("2", chars((0x30, 0x33)))))
    sixty = seq(chars((0x30, 0x35)), _DIGIT)
    zone = Choice((Text("Z"), seq(chars("+", "-"), hour, ":", sixty)))
    date = seq(Repeat(_DIGIT, 4, 4), "-", month, "-", day)
    time = seq(hour, ":", sixty, ":", sixty, maybe(".", Repeat(_DIGIT, 3, 3)), zone)
    return {"date": date, "time": time, "date-time": seq(date, "T", time)}


def _uuid() -> Node:
    lengths = (8, 4, 4, 4, 12)
    groups: list[Node | str] = []
    for length in lengths:
        groups += [*(["-"] if groups else []), Repeat(_HEX, length, length)]
    return seq(*groups)


FORMATS: dict[str, Node] = {name: quoted(body) for name, body in _years().items()} | {
    name: quoted(_uuid()) for name in ("uuid", *(f"uuid{version}" for version in range(1, 6)))
}


def key_besides(taken: Iterable[str]) -> Node:
    """A string that is none of `taken`; only characters that can't stand for themselves are written as escapes."""
    characters = Repeat(Choice(tuple(_spelled(_EVERY))), 0, None)
    names = tuple(Seq(tuple(Choice(tuple(_spelled([each]))) for each in name)) for name in taken)
    return Token(_in_quotes(characters), _in_quotes(Choice(names)) if names else None)


_CONTROL = [chr(code) for code in (*range(0x20), 0x7F)]
_EVERY = [*_CONTROL, *_SHORT.values()]


def _spelled(characters: Sequence[str]) -> list[Node]:
    """How one of `characters` is written; `_EVERY` stands for all characters."""
    ways: list[Node] = []
    plain = chars(*(each for each in characters if any(low <= ord(each) <= high for low, high in _PLAIN.ranges)))
    if characters is _EVERY:
        plain = _PLAIN
    if plain.ranges:
        ways.append(plain)
    if letters := [letter for letter, meant in _SHORT.items() if meant in characters]:
        ways.append(seq("\\", chars(*letters)))
    for tens in ("0", "1", "7"):
        ones = [f"{ord(each):04x}"[3] for each in characters if each in _CONTROL and f"{ord(each):04x}"[2] == tens]
        if ones:
            ways.append(seq("\\u00", tens, chars(*ones, *map(str.upper, ones))))
    return ways
