"""Writing a grammar in the dialect of Lark that llguidance reads.

llguidance parses rules over tokens that its lexer finds, the longest at each place.  A grammar without recursion is
one regular expression and needs no tokens; of others, those of JSON come with their tokens, and `lexemes.py` finds
the tokens of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from golem_core.sampling.grammar.ast import (
    Chars,
    Choice,
    Grammar,
    Name,
    Node,
    Repeat,
    Seq,
    Text,
    Token,
    children,
    walk,
)
from golem_core.sampling.grammar.lexemes import loops, recursive_rules, tokenized

__all__ = ["lark_text", "versions"]

_LARGEST = 100_000  # nodes of a regular expression
# Tokens that the grammar allows count, not only those that the tokenizer itself would choose.
_OPTIONS = '%llguidance {"no_forcing": true}\n'


def versions(grammar: Grammar) -> Iterator[str]:
    """The texts for a grammar, the fastest first; a later one serves where an earlier one is too large."""
    if any(isinstance(node, Token) for body in grammar.rules.values() for node in walk(body)):
        yield lark_text(grammar)
        return
    grammar = loops(grammar)
    if not recursive_rules(grammar.rules) and _size(grammar) <= _LARGEST:
        yield _OPTIONS + _expression(grammar)
    yield lark_text(tokenized(grammar))


def lark_text(grammar: Grammar) -> str:
    """A grammar of tokens and single characters."""
    writer = _Writer(grammar.rules)
    lines = [f"{writer.rules[name]}: {writer.node(body)}" for name, body in grammar.rules.items()]
    terminals = [f"{name}: {_terminal(node)}" for node, name in writer.terminals.items()]
    return _OPTIONS + "\n".join([f"start: {writer.rules[grammar.root]}", *lines, *terminals, ""])


class _Writer:
    """Writes rules, and names the tokens that it meets."""

    def __init__(self, rules: Mapping[str, Node]):
        self.rules = {name: f"r{index}" for index, name in enumerate(rules)}
        self.terminals: dict[Node, str] = {}

    def node(self, node: Node) -> str:
        match node:
            case Name(name):
                return self.rules[name]
            case Seq(items):
                return "(" + " ".join([self.node(item) for item in items]) + ")" if items else '""'
            case Choice(items):
                return "(" + " | ".join([self.node(item) for item in items]) + ")"
            case Repeat(item, least, most):
                return '""' if most == 0 else f"({self.node(item)}){_times(least, most)}"
            case Text(text):
                return " ".join([self._terminal(Text(each)) for each in text]) or '""'
            case Chars() | Token():
                return self._terminal(node)

    def _terminal(self, node: Node) -> str:
        return self.terminals.setdefault(node, f"T{len(self.terminals)}")


def _expression(grammar: Grammar) -> str:
    """A grammar without recursion as one token; the rules are tokens inside it."""
    tokens = {name: f"T{index}" for index, name in enumerate(grammar.rules)}

    def written(node: Node) -> str:
        if not any(isinstance(each, Name) for each in walk(node)):
            regex = _regex(node)
            return f"/{regex}/" if regex else '""'
        match node:
            case Name(name):
                return tokens[name]
            case Seq(items):
                return "(" + " ".join([written(item) for item in items]) + ")"
            case Choice(items):
                return "(" + " | ".join([written(item) for item in items]) + ")"
            case Repeat(item, least, most):
                return '""' if most == 0 else f"({written(item)}){_times(least, most)}"
        raise AssertionError(node)

    lines = [f"{tokens[name]}: {written(body)}" for name, body in grammar.rules.items()]
    return "\n".join([f"start: {tokens[grammar.root]}", *lines, ""])


def _terminal(node: Node) -> str:
    besides = node.besides if isinstance(node, Token) else None
    return f"/{_regex(node)}/" + (f" & ~/{_regex(besides)}/" if besides is not None else "")


def _regex(node: Node) -> str:
    match node:
        case Chars(ranges):
            return "[" + "".join([_range(low, high) for low, high in ranges]) + "]"
        case Text(text):
            return "".join([_code(ord(each)) for each in text])
        case Seq(items):
            return "".join([_regex(item) for item in items])
        case Choice(items):
            return "(?:" + "|".join([_regex(item) for item in items]) + ")"
        case Repeat(item, least, most):
            return "" if most == 0 else f"(?:{_regex(item)}){_times(least, most)}"
        case Token(item):
            return _regex(item)
        case Name():
            raise AssertionError("a token names no rules")


def _times(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    return short or f"{{{least},{'' if most is None else most}}}"


def _range(low: int, high: int) -> str:
    return _code(low) if low == high else f"{_code(low)}-{_code(high)}"


def _code(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"


def _size(grammar: Grammar) -> int:
    """How many nodes the grammar has with every rule in its place; it has no recursion."""
    sizes: dict[str, int] = {}

    def size(node: Node) -> int:
        if isinstance(node, Name):
            if node.name not in sizes:
                sizes[node.name] = min(size(grammar.rules[node.name]), _LARGEST + 1)
            return sizes[node.name]
        return 1 + sum([size(child) for child in children(node)])

    return size(Name(grammar.root))
