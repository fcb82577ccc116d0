"""Cutting a recursive grammar of characters into the tokens that an engine with a lexer can take as wholes.

Such an engine goes on with a token as long as any text that is possible there goes on, and never comes back to a
shorter one.  Single characters are always right and always slow, so loops (the inside of a string, digits, blanks)
become tokens wherever that provably changes nothing: where no token that a text is the whole of can be continued, by
itself or by another token, with a character that may also follow it.  Bytes stand for characters in this, by the
first byte of their UTF-8, because texts arrive in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from golem_core.sampling.grammar.ast import (
    EMPTY,
    Chars,
    Choice,
    Grammar,
    Name,
    Node,
    Ranges,
    Repeat,
    Seq,
    Text,
    Token,
    names,
    nullable,
    nullable_rules,
    reachable,
    walk,
)

__all__ = ["loops", "recursive_rules", "tokenized"]

_WORTH = 8  # loops of fewer rounds are left to single characters
_LARGEST = 20_000  # nodes of a token
_MOST_PAIRS = 200_000  # states looked at for two tokens
_EVERY = (1 << 256) - 1


def recursive_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that name themselves, directly or through others."""
    calls = {name: set(names(body)) for name, body in rules.items()}
    return {name for name in rules if name in reachable(calls, calls[name])}


def loops(grammar: Grammar) -> Grammar:
    """The same texts, with rules that only end in themselves written as repetitions."""
    return Grammar({name: _loop(name, body) for name, body in grammar.rules.items()}, grammar.root)


def _loop(name: str, body: Node) -> Node:
    again: list[Node] = []
    ends: list[Node] = []
    for each in body.items if isinstance(body, Choice) else (body,):
        items = each.items if isinstance(each, Seq) else (each,)
        if items and items[-1] == Name(name):
            again.append(Seq(items[:-1]))
        else:
            ends.append(each)
    if not again or not ends or any(name in names(each) for each in (*again, *ends)):
        return body
    return Seq((Repeat(Choice(tuple(again)), 0, None), Choice(tuple(ends))))


def tokenized(grammar: Grammar) -> Grammar:
    """The same texts, with every loop that may be one as a `Token`, and single characters around them."""
    refused: set[Token] = set()
    while True:
        cut = _Cutter(grammar, refused).cut()
        found = _conflicts(cut)
        if not found:
            return cut
        refused |= found


class _Cutter:
    """Puts loops that consist of characters only into tokens, with the characters that enclose them."""

    def __init__(self, grammar: Grammar, refused: set[Token]):
        self._rules = grammar.rules
        self._root = grammar.root
        self._recursive = recursive_rules(grammar.rules)
        self._empty = nullable_rules(grammar.rules)
        self._refused = refused

    def cut(self) -> Grammar:
        return Grammar({name: self._node(body) for name, body in self._rules.items()}, self._root)

    def _node(self, node: Node) -> Node:
        if isinstance(node, Text) and len(node.text) > 1:
            return Seq(tuple(map(Text, node.text)))
        if isinstance(node, Choice):
            return Choice(tuple(map(self._node, node.items)))
        if isinstance(node, Seq):
            return self._sequence(node)
        if not isinstance(node, Repeat):
            return node
        whole = self._loop(None, node, None)
        if whole is None:
            return Repeat(self._node(node.item), node.least, node.most)
        return Repeat(whole, 0, 1) if node.least == 0 else whole

    def _sequence(self, node: Seq) -> Node:
        parts: list[Node] = []
        for item in node.items:
            if isinstance(item, Seq):
                parts += item.items
            elif isinstance(item, Text):
                parts += map(Text, item.text)
            else:
                parts.append(item)
        done: list[Node] = []
        at = 0
        while at < len(parts):
            item = parts[at]
            if isinstance(item, Repeat):
                left = done[-1] if done and _single(done[-1]) else None
                right = parts[at + 1] if at + 1 < len(parts) and _single(parts[at + 1]) else None
                if (left or right) and (token := self._loop(left, item, right)):
                    if left:
                        done.pop()
                    done.append(token)
                    at += 2 if right else 1
                    continue
            done.append(self._node(item))
            at += 1
        return Seq(tuple(done))

    def _loop(self, left: Node | None, loop: Repeat, right: Node | None) -> Token | None:
        if loop.most is not None and loop.most < _WORTH:
            return None
        item = self._plain(loop.item, _LARGEST)
        if item is None or nullable(item, self._empty):
            return None
        least = loop.least if left or right else max(loop.least, 1)
        token = Token(Seq((left or EMPTY, Repeat(item, least, loop.most), right or EMPTY)))
        return None if token in self._refused else token

    def _plain(self, node: Node, room: int) -> Node | None:
        """The node with the rules that it names put in their places; None if that has no end, or too many nodes."""
        if isinstance(node, Name):
            return None if node.name in self._recursive else self._plain(self._rules[node.name], room)
        if isinstance(node, Repeat):
            item = self._plain(node.item, room)
            return None if item is None else Repeat(item, node.least, node.most)
        if not isinstance(node, Seq | Choice):
            return node
        items: list[Node] = []
        for each in node.items:
            item = self._plain(each, room)
            if item is None:
                return None
            room -= sum(1 for _ in walk(item))
            items.append(item)
        return None if room < 0 else type(node)(tuple(items))


def _single(node: Node) -> bool:
    return isinstance(node, Chars) or (isinstance(node, Text) and len(node.text) == 1)


def _conflicts(grammar: Grammar) -> set[Token]:
    """The tokens that might go on where a shorter text had to end."""
    follow = _Follow(grammar).terminals
    graphs = {node: _States(node) for node in follow}
    return {
        longer
        for longer in follow
        if isinstance(longer, Token)
        and any(_continued(graphs[node], graphs[longer]) & after for node, after in follow.items())
    }


class _Follow:
    """For each token and each single character of a grammar, with which bytes what follows it may begin (as bits)."""

    def __init__(self, grammar: Grammar):
        self._rules = grammar.rules
        self._empty = nullable_rules(grammar.rules)
        self._first = dict.fromkeys(grammar.rules, 0)
        self._after = dict.fromkeys(grammar.rules, 0)
        self.terminals: dict[Node, int] = {}
        self._settle(self._first, lambda name: self._begin(self._rules[name]))
        while True:
            before = dict(self._after)
            for name, body in self._rules.items():
                self._visit(body, self._after[name])
            if before == self._after:
                return

    def _settle(self, table: dict[str, int], find) -> None:  # type: ignore[no-untyped-def]
        while True:
            before = dict(table)
            for name in table:
                table[name] |= find(name)
            if before == table:
                return

    def _begin(self, node: Node) -> int:
        match node:
            case Chars(ranges):
                return _leads(ranges)
            case Text(text):
                return _leads(((ord(text[0]), ord(text[0])),)) if text else 0
            case Name(name):
                return self._first[name]
            case Choice(items):
                bits = 0
                for item in items:
                    bits |= self._begin(item)
                return bits
            case Seq(items):
                bits = 0
                for item in items:
                    bits |= self._begin(item)
                    if not nullable(item, self._empty):
                        break
                return bits
            case Repeat(item, _, most):
                return self._begin(item) if most != 0 else 0
            case Token(item):
                return self._begin(item)

    def _visit(self, node: Node, after: int) -> None:
        match node:
            case Chars() | Token():
                self.terminals[node] = self.terminals.get(node, 0) | after
            case Text(text):
                if text:
                    self.terminals[node] = self.terminals.get(node, 0) | after
            case Name(name):
                self._after[name] |= after
            case Choice(items):
                for item in items:
                    self._visit(item, after)
            case Seq(items):
                for item in reversed(items):
                    self._visit(item, after)
                    after = self._begin(item) | (after if nullable(item, self._empty) else 0)
            case Repeat(item, _, most):
                if most != 0:
                    self._visit(item, after | (self._begin(item) if most != 1 else 0))


def _leads(ranges: Ranges) -> int:
    """The first bytes of the UTF-8 of these characters, as bits."""
    bits = 0
    for low, high in ranges:
        first, last = chr(low).encode()[0], chr(high).encode()[0]
        bits |= (1 << (last + 1)) - (1 << first)
    return bits


@dataclass
class _States:
    """A nondeterministic automaton: per state, the characters that lead on, and the states that are there as well."""

    node: Node
    steps: list[list[tuple[Ranges, int]]] = field(default_factory=list)
    jumps: list[list[int]] = field(default_factory=list)
    end: int = -1  # -1: too large to be written down

    def __post_init__(self) -> None:
        self._state()
        end = self._add(self.node, 0)
        self.end = -1 if end is None else end

    def _state(self) -> int:
        self.steps.append([])
        self.jumps.append([])
        return len(self.steps) - 1

    def _add(self, node: Node, start: int) -> int | None:
        """Let `node` be read from `start` on; the state after it."""
        if len(self.steps) > _LARGEST:
            return None
        match node:
            case Chars(ranges):
                end = self._state()
                self.steps[start].append((ranges, end))
                return end
            case Text(text):
                for character in text:
                    end = self._state()
                    self.steps[start].append((((ord(character), ord(character)),), end))
                    start = end
                return start
            case Seq(items):
                at: int | None = start
                for item in items:
                    at = None if at is None else self._add(item, at)
                return at
            case Choice(items):
                end = self._state()
                for item in items:
                    begin = self._state()
                    self.jumps[start].append(begin)
                    last = self._add(item, begin)
                    if last is None:
                        return None
                    self.jumps[last].append(end)
                return end
            case Repeat(item, least, most):
                return self._repeat(item, least, most, start)
            case Token(item):
                return self._add(item, start)
            case Name():
                return None

    def _repeat(self, item: Node, least: int, most: int | None, start: int) -> int | None:
        at: int | None = start
        for _ in range(least):
            at = None if at is None else self._add(item, at)
        if at is None:
            return None
        end = self._state()
        self.jumps[at].append(end)
        if most is None:
            begin = self._state()
            self.jumps[at].append(begin)
            last = self._add(item, begin)
            if last is None:
                return None
            self.jumps[last] += [begin, end]
            return end
        for _ in range(most - least):
            begin = self._state()
            self.jumps[at].append(begin)
            at = self._add(item, begin)
            if at is None:
                return None
            self.jumps[at].append(end)
        return end


def _continued(shorter: _States, longer: _States) -> int:
    """With which bytes a text of `shorter` may go on in `longer`, as bits; all bits where that is too much to find."""
    if shorter.end < 0 or longer.end < 0:
        return _EVERY
    bits = 0
    left = [(0, 0)]
    seen = {(0, 0)}
    while left:
        first, second = left.pop()
        if first == shorter.end:
            for ranges, _ in longer.steps[second]:
                bits |= _leads(ranges)
        following = [(each, second) for each in shorter.jumps[first]] + [(first, each) for each in longer.jumps[second]]
        for ranges, target in shorter.steps[first]:
            following += [(target, other) for others, other in longer.steps[second] if _overlap(ranges, others)]
        for pair in following:
            if pair not in seen:
                seen.add(pair)
                left.append(pair)
        if len(seen) > _MOST_PAIRS:
            return _EVERY
    return bits


def _overlap(some: Ranges, others: Ranges) -> bool:
    return any(low <= last and first <= high for low, high in some for first, last in others)
