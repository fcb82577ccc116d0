"""GBNF: which texts a grammar accepts, by its slow meaning and by masks, and what is refused where."""

from __future__ import annotations

import pytest
from slow_grammar import Pieces, Place

from golem_core.errors import BadRequest
from golem_core.sampling.grammar import compile_gbnf, parse_gbnf

TOKENIZER = Pieces("ab", "hello", "é", "日本", "日".encode()[:2], '":')


def follows(grammar: str, text: str) -> bool:
    """Whether masks let a text come, byte by byte, and then let it end."""
    matcher = compile_gbnf(TOKENIZER, grammar).matcher()
    for byte in text.encode():
        if byte not in matcher.mask():
            return False
        matcher.accept(byte)
    return matcher.complete


JSON = r"""
# a JSON object
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]*)) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= ([ \t\n] ws)?
"""

LANGUAGES = [
    ('root ::= "abc"', ["abc"], ["", "ab", "abcd", "abd"]),
    ("root ::= ", [""], ["a"]),
    ('root ::= "a" | "b" |', ["", "a", "b"], ["ab"]),
    ('root ::=\n  "a" |\n  "b"', ["a", "b"], ["c"]),
    ('root ::= ("a"\n | "b"\n)+ "c"', ["abac"], ["c", "ab"]),
    ("root ::= [a-c]", ["a", "b", "c"], ["d", "-", ""]),
    ("root ::= [^a-c]", ["d", "é", "\n", "日"], ["a", "b"]),
    ("root ::= [-a]", ["-", "a"], ["b"]),
    ("root ::= [a-]", ["-", "a"], ["b"]),
    (r"root ::= [\]\-\^\[]", ["]", "-", "^", "["], ["\\", "a"]),
    (r"root ::= [^\n]*", ["", "any thing"], ["a\nb"]),
    ("root ::= .", ["a", "\n", "é", "😀"], ["", "ab"]),
    (r'root ::= "\x41\u00e9\U0001F600\n\r\t\\\"\[\]"', ['Aé😀\n\r\t\\"[]'], ["A"]),
    ('root ::= "a"*', ["", "aaa"], ["b", "aab"]),
    ('root ::= "a"+', ["a", "aaa"], ["", "b"]),
    ('root ::= "a"?', ["", "a"], ["aa"]),
    ('root ::= "a"{2}', ["aa"], ["a", "aaa"]),
    ('root ::= "a"{2,}', ["aa", "aaaa"], ["a"]),
    ('root ::= "a"{2,4} "b"', ["aab", "aaaab"], ["ab", "aaaaab"]),
    ('root ::= "a"{0} "b"', ["b"], ["ab"]),
    ('root ::= "a"{0,2000} "b"', ["b", "a" * 50 + "b"], ["a"]),
    ('root ::= ("ab" | "a" "b" "c") "d"', ["abd", "abcd"], ["ab", "abc", "acd"]),
    ('root ::= my-rule_2 # what\nmy-rule_2 ::= "x" # that', ["x"], ["y"]),
    ('root ::= "a" root | "b"', ["b", "aaab"], ["a", "ba"]),
    ('root ::= "(" root ")" | ""', ["", "(())"], ["(", "())"]),
    ('root ::= "(" root ")" root | ""', ["()(())"], ["(()"]),
    ('root ::= "<" [^<>]* root? ">"', ["<a<b>>", "<>"], ["<a", "<a<b>c>"]),
    ("root ::= [éà日]+", ["é日à"], ["e", "è"]),
    (JSON, ['{"a": [1, -2.5e+3, "x\\"\\u00e9é", {}], "b": null}', "{ }\n"], ["[]", '{"a" 1}', '{"a": 01}', "{"]),
]
CASES = [
    (grammar, text, fits)
    for grammar, yes, no in LANGUAGES
    for fits, texts in ((True, yes), (False, no))
    for text in texts
]


@pytest.mark.parametrize(("grammar", "text", "fits"), CASES)
def test_a_grammar_accepts_its_texts_and_no_others(grammar, text, fits):
    assert Place(parse_gbnf(grammar)).accepts(text) == fits
    assert follows(grammar, text) == fits


WRONG = [
    ("", "line 1", "no rule named root"),
    ('x ::= "a"', "line 1", "no rule named root"),
    ("root ::= a", "line 1, column 10", "a is not defined"),
    ('root ::= "a"\nb ::= "c" d', "line 2, column 11", "d is not defined"),
    ('root ::= "a', "line 1, column 10", "literal is not closed"),
    ("root ::= x\nx ::= [a", "line 2, column 7", "class is not closed"),
    ('root ::= "a" (\n"b"', "line 1, column 14", "group is not closed"),
    ('root ::= "a" )', "line 1, column 14", "')'"),
    ('root ::= "ab\\q"', "line 1, column 13", "\\q"),
    ("root ::= [a\\d]", "line 1, column 12", "\\d"),
    ('root ::= "\\ud800"', "line 1, column 11", "\\ud800 is not a character"),
    ('root ::= "\\U00110000"', "line 1, column 11", "not a character"),
    ('root ::= "\\x4"', "line 1, column 11", "\\x"),
    ("root ::= [z-a]", "line 1, column 10", "backwards"),
    ("root ::= []", "line 1, column 10", "empty"),
    ('root ::= root "a"', "line 1, column 1", "left recursion"),
    ('root ::= "x" | b\nb ::= "y"? c\nc ::= b', "line 2, column 1", "left recursion"),
    ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "defined twice, first in line 1"),
    ('root ::= "a"{3,2}', "line 1, column 13", "at least 3 and at most 2"),
    ('root ::= "a"{,2}', "line 1, column 13", "{,2}"),
    ('root ::= "a"{x}', "line 1, column 13", "{x}"),
    ('root ::= "a"{2', "line 1, column 13", "not closed"),
    ('root ::= "a"{2001}', "line 1, column 13", "2001"),
    ('root ::= "a"{99999999999}', "line 1, column 13", "2000"),
    ('root ::= ("a"{50} "b"){50}', "line 1, column 23", "2500"),
    ("root ::= <think>", "line 1, column 10", "tokens"),
    ("root ::= !<[17]>", "line 1, column 10", "tokens"),
    ("root ::= *", "line 1, column 10", "expected"),
    ('root = "a"', "line 1, column 6", "'='"),
    ('root "a"', "line 1, column 6", "expected ::="),
    ('root ::= "a"\n | "b"', "line 2, column 2", "'|'"),
    ("root ::= " + "(" * 60 + '"a"' + ")" * 60, "line 1, column 60", "groups inside each other"),
]


@pytest.mark.parametrize(("grammar", "place", "reason"), WRONG)
def test_a_mistake_is_refused_with_its_place(grammar, place, reason):
    with pytest.raises(BadRequest) as caught:
        compile_gbnf(TOKENIZER, grammar)
    assert place in str(caught.value) and reason in str(caught.value)
    assert caught.value.param == "grammar"


def test_a_grammar_that_no_finite_text_follows_is_refused():
    with pytest.raises(BadRequest, match="no finite text"):
        compile_gbnf(TOKENIZER, 'root ::= "a" root')


@pytest.mark.parametrize(
    "grammar",
    [
        "\n".join(["root ::= a0", *(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(60)), 'a60 ::= "x"']),
        "\n".join(["root ::= a0", *(f'a{i} ::= a{i + 1}{{2000}} "y"' for i in range(6)), 'a6 ::= "x"']),
        "root ::= " + " | ".join(f'"{i}{"x" * 40}"' for i in range(3000)),
        "root ::= " + " ".join("([ab]* [ac]*)*" for _ in range(200)),
        "root ::= ((((.{0,2000})?)*)+){0,2}",
    ],
)
def test_a_hostile_grammar_is_compiled_or_refused_soon(grammar):
    import time

    start = time.perf_counter()
    try:
        matcher = compile_gbnf(TOKENIZER, grammar).matcher()
        matcher.mask()
    except BadRequest as error:
        assert error.param == "grammar"
    assert time.perf_counter() - start < 15
