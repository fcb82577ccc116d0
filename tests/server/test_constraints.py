"""response_format, json_schema and grammar, over HTTP and over the real engine."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from test_with_the_engine import END, joined, talk, user  # noqa: F401

from golem_core.engine import constraint
from golem_core.errors import BadRequest
from golem_core.server.constraints import asked_grammar
from golem_core.text import Markers

SCHEMA = {"type": "object", "properties": {"é": {"enum": [1, None]}, "b": {"type": "boolean"}}, "required": ["b"]}
FORMATS = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"json_schema": SCHEMA},
    {"json_schema": SCHEMA, "response_format": {"type": "text"}},
]


@pytest.mark.parametrize("fields", FORMATS)
def test_an_answer_has_the_asked_form_streamed_and_whole(talk, fields) -> None:  # noqa: F811
    live, _, _ = talk()
    fields = {"messages": user('a long {"b": true} text of words'), "seed": 3, "max_tokens": 400, **fields}
    choice = live.chat(**fields).json()["choices"][0]
    answer = json.loads(choice["message"]["content"])
    assert isinstance(answer["b"], bool) and set(answer) <= {"b", "é"}
    assert choice["finish_reason"] == "stop"
    text, reason, _ = joined(live.chat(**fields, stream=True))
    assert (text, reason) == (choice["message"]["content"], "stop")


def test_json_object_is_an_object(talk) -> None:  # noqa: F811
    live, _, _ = talk()
    asked = {"response_format": {"type": "json_object"}, "logit_bias": {str(ord("}")): 20, str(ord('"')): 5}}
    choice = live.chat(messages=user("hello"), seed=1, max_tokens=900, **asked).json()["choices"][0]
    assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_a_grammar_is_followed(talk) -> None:  # noqa: F811
    live, _, _ = talk()
    asked = {"messages": user("what"), "grammar": 'root ::= [xyz]{3} "é"', "response_format": {"type": "text"}}
    answer = live.chat(**asked, seed=5).json()["choices"][0]["message"]["content"]
    assert re.fullmatch("[xyz]{3}é", answer)


def test_an_empty_grammar_is_none(talk) -> None:  # noqa: F811
    live, _, _ = talk()
    assert live.chat(messages=user("abcdefghijklmnop"), grammar="", temperature=0).status_code == 200


def test_what_cannot_be_compiled_is_refused_before_the_engine_hears_of_it(talk) -> None:  # noqa: F811
    live, _, parrot = talk()
    refused = live.chat(messages=user("x"), grammar="root ::= x")
    assert refused.status_code == 400 and "line 1, column 10" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == "grammar"
    refused = live.chat(messages=user("x"), response_format={"type": "json_object", "schema": {"minimum": 1}})
    assert refused.status_code == 400 and "minimum at #/minimum" in refused.json()["error"]["message"]
    assert parrot.passes == 0


class Marked:
    """Bytes, for a model with thoughts."""

    vocab_size, eog = 257, frozenset({END})

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"" if token == END else bytes([token])

    def decode(self, tokens, *, special: bool = False) -> str:
        return bytes(tokens).decode()


def asking(**fields):
    empty = dict(grammar=None, response_format=None, json_schema=None, tools=None, tool_choice=None)
    return SimpleNamespace(**(empty | fields))


@pytest.mark.parametrize(
    ("marks", "prompt", "thinks", "opened"),
    [
        (("<t>", "</t>"), b"hello<t>\n", False, True),
        (("<t>", "</t>"), b"hello<t>\n", True, True),
        (("<t>", "</t>"), b"hello", True, False),
        (("<t>", "</t>"), b"hello", False, None),
        (("<t>", "</t>"), b"<t></t>", False, None),
        (None, b"hello<t>", True, None),
    ],
)
def test_a_grammar_waits_for_the_end_of_a_thought_if_there_is_one(marks, prompt, thinks, opened) -> None:
    model = SimpleNamespace(tokenizer=Marked(), markers=Markers(thought=marks))
    compiled = asked_grammar(model, asking(grammar='root ::= "a"'))
    thought = constraint(model, compiled, list(prompt), thinks=thinks).thought
    assert (thought and thought.opened) == opened


def test_a_format_may_stand_beside_tools_and_a_grammar_may_not() -> None:
    model = SimpleNamespace(tokenizer=Marked(), markers=Markers())
    assert asked_grammar(model, asking(json_schema={}, tools=[{}])) is not None
    assert asked_grammar(model, asking(grammar='root ::= "a"', tools=[{}], tool_choice="none")) is not None
    with pytest.raises(BadRequest, match="tools"):
        asked_grammar(model, asking(grammar='root ::= "a"', tools=[{}]))


def test_a_grammar_is_compiled_once() -> None:
    model = SimpleNamespace(tokenizer=Marked(), markers=Markers())
    first = asked_grammar(model, asking(json_schema=SCHEMA))
    assert asked_grammar(model, asking(response_format={"type": "json_object", "schema": dict(SCHEMA)})) is first
