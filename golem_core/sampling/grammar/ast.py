"""What a grammar is once it is read: named rules over Unicode characters, whatever notation they were written in.

`gbnf.py` and `schema.py` produce a `Grammar`, `lark.py` writes it for the engine that computes token masks.  The checks
that hold for every notation are here: which rules can be empty, which call themselves first, which match anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

_SURROGATES = (0xD800, 0xDFFF)
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]
"""Code points as ascending, disjoint, inclusive ranges."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of `ranges`, which never hold surrogates."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Text:
    """These characters, possibly none."""

    text: str


@dataclass(frozen=True, slots=True)
class Seq:
    """One after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` at least `least` times and at most `most` times (None: without an end)."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Name:
    """What the rule of this name matches."""

    name: str


@dataclass(frozen=True, slots=True)
class Token:
    """What `item` matches and `besides` does not, with the promise that no character that may follow it could have gone
    on with it, and that every other token that may stand in its place ends where it ends.

    They name no rules.  `item` is never empty, and every beginning of it goes on to a text that is not `besides`.
    """

    item: Node
    besides: Node | None = None


Node = Chars | Text | Seq | Choice | Repeat | Name | Token

EMPTY = Text("")


@dataclass(frozen=True, eq=False)
class Grammar:
    """Rules by name, and the one that an answer follows."""

    rules: Mapping[str, Node]
    root: str = "root"


def chars(*ranges: tuple[int, int] | str) -> Chars:
    """The class of these ranges and single characters."""
    return Chars(normal((ord(each), ord(each)) if isinstance(each, str) else each for each in ranges))


def outside(*ranges: tuple[int, int] | str) -> Chars:
    """Every other character."""
    gaps, start = [], 0
    for low, high in (*normal([*chars(*ranges).ranges, _SURROGATES], keep_surrogates=True), (_LAST + 1, _LAST + 1)):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return Chars(tuple(gaps))


def normal(ranges: Iterable[tuple[int, int]], *, keep_surrogates: bool = False) -> Ranges:
    """Sorted, merged, and without surrogates, which no text holds."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if keep_surrogates:
        return tuple(merged)
    whole: list[tuple[int, int]] = []
    for low, high in merged:
        if low < _SURROGATES[0]:
            whole.append((low, min(high, _SURROGATES[0] - 1)))
        if high > _SURROGATES[1]:
            whole.append((max(low, _SURROGATES[1] + 1), high))
    return tuple(whole)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    if isinstance(node, Seq | Choice):
        return node.items
    return (node.item,) if isinstance(node, Repeat | Token) else ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in the order of writing."""
    yield node
    for child in children(node):
        yield from walk(child)


def names(node: Node) -> list[str]:
    """The rules that a node names, in the order of writing."""
    return [each.name for each in walk(node) if isinstance(each, Name)]


def nullable_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that match the empty text."""
    return _growing(rules, nullable)


def _growing(rules: Mapping[str, Node], test: Callable[[Node, set[str]], bool]) -> set[str]:
    """The rules whose bodies pass `test`, which is also given the rules that are known to, until none is added."""
    found: set[str] = set()
    left = _named_first(rules)
    while True:
        before = len(left)
        rest = []
        for name in left:
            if test(rules[name], found):
                found.add(name)
            else:
                rest.append(name)
        left = rest
        if len(left) == before or not left:
            return found


def _named_first(rules: Mapping[str, Node]) -> list[str]:
    """The rules in an order in which those that a rule names come before it, where they don't name each other."""
    calls = {name: [each for each in dict.fromkeys(names(body)) if each in rules] for name, body in rules.items()}
    order: list[str] = []
    seen: set[str] = set()
    for start in rules:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(calls[start]))]
        while path:
            name, further = path[-1]
            deeper = next((each for each in further if each not in seen), None)
            if deeper is None:
                order.append(name)
                path.pop()
            else:
                seen.add(deeper)
                path.append((deeper, iter(calls[deeper])))
    return order


def nullable(node: Node, rules: set[str]) -> bool:
    """Whether a node matches the empty text, given the rules that do."""
    match node:
        case Chars():
            return False
        case Text(text):
            return not text
        case Seq(items):
            return all(nullable(item, rules) for item in items)
        case Choice(items):
            return any(nullable(item, rules) for item in items)
        case Repeat(item, least, _):
            return least == 0 or nullable(item, rules)
        case Name(name):
            return name in rules
        case Token(item):
            return nullable(item, rules)


def left_recursive(rules: Mapping[str, Node]) -> str | None:
    """A rule that may begin with itself, or None."""
    empty = nullable_rules(rules)

    def first(node: Node) -> Iterator[str]:
        if isinstance(node, Name):
            yield node.name
        elif isinstance(node, Seq):
            for item in node.items:
                yield from first(item)
                if not nullable(item, empty):
                    return
        elif not (isinstance(node, Repeat) and node.most == 0):
            for child in children(node):
                yield from first(child)

    calls = {name: list(dict.fromkeys(first(body))) for name, body in rules.items()}
    return next((name for name in rules if name in reachable(calls, calls[name])), None)


def reachable(calls: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """Every name that can be reached by `calls` from those in `start`, which are reached."""
    found: set[str] = set()
    left = list(start)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += calls[name]
    return found


def pruned(grammar: Grammar) -> Grammar | None:
    """The grammar without the alternatives that no finite text follows, and without rules that are then unused.

    None where nothing is left: no text follows the grammar.
    """
    finite = _growing(grammar.rules, _finite)

    done: dict[int, Node | None] = {}  # grammars share nodes: each is cut once

    def cut(node: Node) -> Node | None:
        if id(node) not in done:
            done[id(node)] = found(node)
        return done[id(node)]

    def found(node: Node) -> Node | None:
        match node:
            case Chars(ranges):
                return node if ranges else None
            case Name(name):
                return node if name in finite else None
            case Seq(items):
                parts = tuple(part for item in items if (part := cut(item)) is not None)
                return Seq(parts) if len(parts) == len(items) else None
            case Choice(items):
                alternatives = tuple(kept for item in items if (kept := cut(item)) is not None)
                return Choice(alternatives) if alternatives else None
            case Repeat(item, least, most):
                kept = cut(item) if most != 0 else None
                return Repeat(kept, least, most) if kept is not None else EMPTY if least == 0 else None
            case Token(item, besides):
                kept = cut(item)
                return Token(kept, besides) if kept is not None else None
            case Text():
                return node

    if grammar.root not in finite:
        return None
    rules = {name: body for name in finite if (body := cut(grammar.rules[name])) is not None}
    used = reachable({name: names(body) for name, body in rules.items()}, [grammar.root])
    return Grammar({name: rules[name] for name in grammar.rules if name in used}, grammar.root)


def _finite(node: Node, rules: set[str]) -> bool:
    """Whether some finite text follows a node, given the rules that some does."""
    match node:
        case Chars(ranges):
            return bool(ranges)
        case Text():
            return True
        case Seq(items):
            return all([_finite(item, rules) for item in items])
        case Choice(items):
            return any([_finite(item, rules) for item in items])
        case Repeat(item, least, most):
            return least == 0 or (most != 0 and _finite(item, rules))
        case Name(name):
            return name in rules
        case Token(item):
            return _finite(item, rules)
