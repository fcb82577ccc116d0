"""Token masks, held to the slow meaning of a grammar: random grammars, random walks, every token at every step."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from slow_grammar import Pieces, Place, TooManyStacks, allowed

from golem_core.errors import BadRequest
from golem_core.sampling.grammar.ast import (
    Choice,
    Grammar,
    Name,
    Repeat,
    Seq,
    Text,
    chars,
    left_recursive,
    outside,
    pruned,
)
from golem_core.sampling.grammar.lark import versions
from golem_core.sampling.grammar.masks import vocabulary_of
from golem_core.sampling.grammar.schema import parse_schema

TOKENIZER = Pieces(
    "ab", "aa", "ba", "abc", "bc", 'a"', '"a', '":"', "a,b", "\n ", "  ", "é", "éa", "aé", "日", "日本", "😀",
    "é".encode()[:1] + b"", "日".encode()[:2], "日".encode()[1:], b"a\xc3", b"\xa9b", "😀".encode()[:3], b"\x80\xc3",
    "ab",
)  # fmt: skip

LETTERS = st.sampled_from('abcé日😀"')
LEAVES = st.one_of(
    st.text(LETTERS, max_size=3).map(Text),
    st.lists(LETTERS, min_size=1, max_size=3).map(lambda each: chars(*each)),
    st.lists(LETTERS, max_size=3).map(lambda each: outside(*each)),
    st.sampled_from(["one", "two"]).map(Name),
)
REPEATS = st.sampled_from([(0, None), (1, None), (0, 1), (2, 3), (0, 12), (3, None)])
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: Seq(tuple(items))),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: Choice(tuple(items))),
        st.tuples(inner, REPEATS).map(lambda pair: Repeat(pair[0], *pair[1])),
    ),
    max_leaves=6,
)


@st.composite
def grammars(draw):
    grammar = Grammar({"root": draw(NODES), "one": draw(NODES), "two": draw(NODES)})
    if left_recursive(grammar.rules) is not None:
        grammar = Grammar({name: Seq((chars("a"), body)) for name, body in grammar.rules.items()})
    return grammar


def walk(grammar: Grammar, choose, steps: int = 8, beginning: bytes = b"") -> None:
    """Follow allowed tokens, and compare all masks on the way with the grammar's meaning."""
    finite = pruned(grammar)
    if finite is None:
        with pytest.raises(BadRequest, match="no finite text"):
            vocabulary_of(TOKENIZER).compile(grammar)
        return
    matcher = vocabulary_of(TOKENIZER).compile(grammar).matcher()
    place = Place(finite)
    text = beginning
    for byte in beginning:
        matcher.accept(byte)
    place = place.after(beginning)
    for _ in range(steps):
        expected = allowed(TOKENIZER, place)
        found = set(matcher.mask().ids().tolist())
        show = lambda ids: [TOKENIZER.pieces[id] for id in sorted(ids)[:9]]
        assert not found - expected, (text, "must not come", show(found - expected), list(versions(finite)))
        assert not expected - found, (text, "may come", show(expected - found), list(versions(finite)))
        assert matcher.complete == place.complete, text
        if not expected:
            return
        token = choose(sorted(expected))
        assert matcher.allows(token)
        matcher.accept(token)
        text += TOKENIZER.pieces[token]
        place = place.after(TOKENIZER.pieces[token])


@settings(max_examples=150, deadline=None)
@given(grammars(), st.data())
def test_masks_are_what_the_grammar_means(grammar, data):
    try:
        walk(grammar, lambda tokens: data.draw(st.sampled_from(tokens)))
    except TooManyStacks:
        reject()


NAMES = st.lists(st.text('ab"\\\n\x01é', max_size=3), max_size=3, unique=True)


@settings(max_examples=12, deadline=None)
@given(NAMES, st.data())
def test_a_further_member_has_another_name(names, data):
    schema = {"properties": {name: {"const": 1} for name in names}, "additionalProperties": {"const": 2}}
    beginning = data.draw(st.sampled_from([b"{", b'{"', b'{"a', b'{"ab', b'{"\\']))
    walk(parse_schema(schema), lambda tokens: data.draw(st.sampled_from(tokens)), steps=4, beginning=beginning)
