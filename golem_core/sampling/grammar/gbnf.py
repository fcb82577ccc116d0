"""GBNF, llama.cpp's notation for grammars (its grammars/README.md), read with lark into a `Grammar`.

Everything that can be wrong with a text is refused here, with the line and the column where it stands.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NoReturn

from golem_core.errors import BadRequest
from golem_core.sampling.grammar.ast import (
    Choice,
    Grammar,
    Name,
    Node,
    Repeat,
    Seq,
    Text,
    chars,
    left_recursive,
    outside,
)

LONGEST = 200_000  # characters of a grammar
DEEPEST = 50  # groups in groups
MOST = 2000  # repetitions, also of repetitions

_SYNTAX = r"""
start: (_NL | rule _NL)* rule?
rule: NAME DEFINES _NL* alternates
alternates: sequence (OR _NL* sequence)*
sequence: item*
?item: atom REPEAT*
?atom: LITERAL | CLASS | ANY | NAME | group
group: OPEN _NL* inner _NL* CLOSE
inner: inner_sequence (OR _NL* inner_sequence)*
inner_sequence: (inner_item _NL*)*
?inner_item: atom REPEAT*

DEFINES: "::="
OR: "|"
OPEN: "("
CLOSE: ")"
ANY: "."
REPEAT: /[*+?]|\{[^}\n]*\}/
NAME: /[A-Za-z0-9_-]+/
LITERAL: /"(\\(.|\n)|[^"\\])*"/
CLASS: /\[(\\(.|\n)|[^\]\\])*\]/
_NL: /\r\n|\n|\r/
%ignore /[ \t]+/
%ignore /#[^\r\n]*/
"""

_WORDS = {
    "NAME": "a rule name",
    "DEFINES": "::=",
    "OR": "|",
    "OPEN": "(",
    "CLOSE": ")",
    "ANY": ".",
    "REPEAT": "a repetition",
    "LITERAL": "a literal",
    "CLASS": "a character class",
    "_NL": "the end of the line",
    "$END": "the end of the grammar",
}
_TOKENS = "elements that match tokens (<...>) are not supported; a grammar is about characters"
_ALONE = {  # what it means that nothing which begins with this character could be read
    '"': "the literal is not closed",
    "[": "the character class is not closed",
    "{": "the { is not closed",
    "<": _TOKENS,
    "!": _TOKENS,
}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\\\"\[\]^-]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_REPETITION = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}", re.ASCII)


def parse_gbnf(text: str) -> Grammar:
    """Read a grammar.  Raises BadRequest naming line and column for a text that isn't one, for a rule that is not
    defined, or defined twice, or may begin with itself, and where `root` is missing."""
    if len(text) > LONGEST:
        raise BadRequest(f"grammar: {len(text)} characters are more than the {LONGEST} that are read", param="grammar")
    reader = _Reader()
    _parse(text, reader)
    if "root" not in reader.rules:
        _fail(_line_count(text), 1, "the grammar has no rule named root")
    for token in reader.uses:
        if token not in reader.rules:
            _fail(token.line, token.column, f"the rule {token} is not defined")
    name = left_recursive(reader.rules)
    if name is not None:
        at = reader.places[name]
        _fail(at.line, at.column, f"the rule {name} may begin with itself (left recursion)")
    return Grammar(reader.rules)


def _fail(line: int, column: int, message: str) -> NoReturn:
    raise BadRequest(f"grammar: line {line}, column {column}: {message}", param="grammar")


def _line_count(text: str) -> int:
    return len(re.findall(r"\r\n|\n|\r", text)) + 1


class _Reader:
    """Builds rules out of what the parser finds, piece by piece."""

    def __init__(self) -> None:
        self.rules: dict[str, Node] = {}
        self.places: dict[str, Any] = {}
        self.uses: list[Any] = []
        self.products: dict[int, int] = {}  # how often a node's longest repetition repeats, by its identity
        self.kept: list[Node] = []  # so that identities stay theirs

    def rule(self, found: list[Any]) -> None:
        name, _, body = found
        if name in self.rules:
            first = self.places[name]
            _fail(name.line, name.column, f"the rule {name} is defined twice, first in line {first.line}")
        self.rules[str(name)] = body
        self.places[str(name)] = name

    def alternates(self, found: list[Any]) -> Node:
        sequences = found[::2]
        return sequences[0] if len(sequences) == 1 else self._with(Choice(tuple(sequences)), sequences)

    inner = alternates

    def sequence(self, found: list[Any]) -> Node:
        items = [self._node(each) for each in found]
        return items[0] if len(items) == 1 else self._with(Seq(tuple(items)), items)

    inner_sequence = sequence

    def group(self, found: list[Any]) -> Node:
        return found[1]

    def item(self, found: list[Any]) -> Node:
        node = self._node(found[0])
        for token in found[1:]:
            least, most = _repetition(token)
            product = self.products.get(id(node), 1) * max(least, most or 1, 1)
            if product > MOST:
                _fail(token.line, token.column, f"{product} repetitions are more than {MOST}")
            node = self._with(Repeat(node, least, most), [], product)
        return node

    inner_item = item

    def _with(self, node: Node, parts: list[Node], product: int = 1) -> Node:
        product = max([product, *(self.products.get(id(part), 1) for part in parts)])
        if product > 1:
            self.products[id(node)] = product
            self.kept.append(node)
        return node

    def _node(self, found: Any) -> Node:
        kind = getattr(found, "type", None)
        if kind is None:
            return found
        if kind == "NAME":
            self.uses.append(found)
            return Name(str(found))
        if kind == "ANY":
            return outside()
        if kind == "LITERAL":
            return Text("".join(character for character, _ in _characters(found, 1, len(found) - 1)))
        return _class(found)


def _repetition(token: Any) -> tuple[int, int | None]:
    if token in "*+?":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[str(token)]
    found = _REPETITION.fullmatch(token)
    if found is None:
        _fail(token.line, token.column, f"{token} is not a repetition; it is written {{m}}, {{m,}} or {{m,n}}")
    if any(len(digits or "") > 9 for digits in found.group(1, 3)):
        _fail(token.line, token.column, f"more than {MOST} repetitions")
    least = int(found[1])
    most = (int(found[3]) if found[3] else None) if found[2] else least
    if most is not None and least > most:
        _fail(token.line, token.column, f"{token} asks for at least {least} and at most {most}")
    return least, most


def _characters(token: Any, start: int, end: int) -> list[tuple[str, bool]]:
    """The characters of a literal or a class, and whether each was written as an escape."""
    found: list[tuple[str, bool]] = []
    while start < end:
        if token[start] != "\\":
            code = ord(token[start])
            if 0xD800 <= code <= 0xDFFF:
                _fail(*_place(token, start), "a surrogate is not a character")
            found.append((token[start], False))
            start += 1
            continue
        escape = _ESCAPE.match(token, start)
        if escape is None or escape.end() > end:
            _fail(*_place(token, start), f"{token[start : start + 2]} is not an escape that is known here")
        code = next((int(digits, 16) for digits in escape.group(1, 2, 3) if digits), None)
        if code is None:
            character = _PLAIN.get(escape[4], escape[4])
        elif code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            _fail(*_place(token, start), f"{escape[0]} is not a character")
        else:
            character = chr(code)
        found.append((character, True))
        start = escape.end()
    return found


def _place(token: Any, offset: int) -> tuple[int, int]:
    """Line and column of a character inside a token."""
    lines = re.split(r"\r\n|\n|\r", token[:offset])
    return token.line + len(lines) - 1, len(lines[-1]) + (token.column if len(lines) == 1 else 1)


def _class(token: Any) -> Node:
    negated = token[1:2] == "^"
    written = _characters(token, 2 if negated else 1, len(token) - 1)
    if not written and not negated:
        _fail(token.line, token.column, "the character class is empty")
    ranges: list[tuple[int, int]] = []
    while written:
        low = ord(written[0][0])
        if len(written) >= 3 and written[1] == ("-", False):
            high = ord(written[2][0])
            if high < low:
                _fail(token.line, token.column, f"the range {written[0][0]}-{written[2][0]} in {token} is backwards")
            ranges.append((low, high))
            written = written[3:]
        else:
            ranges.append((low, low))
            written = written[1:]
    return outside(*ranges) if negated else chars(*ranges)


def _parse(text: str, reader: _Reader) -> None:
    from lark import Tree
    from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

    parser = _parser()
    try:
        depth: list[Any] = []
        for token in parser.lex(text):
            if token.type == "OPEN":
                depth.append(token)
                if len(depth) > DEEPEST:
                    _fail(token.line, token.column, f"more than {DEEPEST} groups inside each other")
            elif token.type == "CLOSE" and depth:
                depth.pop()
        tree = parser.parse(text)
    except UnexpectedCharacters as error:
        wrong = text[error.pos_in_stream]
        _fail(error.line, error.column, _ALONE.get(wrong, f"{wrong!r} does not belong here"))
    except UnexpectedToken as error:
        at = error.token
        if at.type in ("$END", "_NL", "DEFINES") and depth:
            _fail(depth[-1].line, depth[-1].column, "the group is not closed")
        expected = ", ".join(sorted(_WORDS[name] for name in error.accepts or error.expected if name in _WORDS))
        found = _WORDS[at.type] if at.type in ("$END", "_NL") else repr(str(at))
        line, column = (_line_count(text), 1) if at.type == "$END" else (at.line, at.column)
        _fail(line, column, f"expected {expected}, found {found}")
    except UnexpectedEOF:
        _fail(_line_count(text), 1, "the grammar ends too early")

    def build(tree: Any) -> Any:
        found = [build(child) if isinstance(child, Tree) else child for child in tree.children]
        return getattr(reader, tree.data)(found)

    for rule in tree.children:
        build(rule)


@cache
def _parser() -> Any:
    from lark import Lark

    return Lark(_SYNTAX, parser="lalr", lexer="basic", maybe_placeholders=False)
