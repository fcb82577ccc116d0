"""Reading tool calls in the syntaxes that families share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.text import Call, JsonCalls, Markers, TaggedCalls, UnreadableCall
from golem_core.text.markers import read_calls

BOTH = Markers(call=("<tool_call>", "</tool_call>"), syntaxes=(JsonCalls(), TaggedCalls()))


def read(body: str, tools: dict[str, Any] | None = None, markers: Markers = BOTH) -> Call:
    (call,) = read_calls(markers, f"{body}</tool_call>", tools or {})
    return call


def tagged(**values: str) -> str:
    return (
        "<function=f>\n" + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items()) + "</function>"
    )


JSON_CALLS = [
    ('{"name": "f", "arguments": {"b": 1, "a": [true, null, "é"]}}', {"b": 1, "a": [True, None, "é"]}),
    ('{"arguments": "{\\"x\\": 2.5}", "name": "f", "id": 3}', {"x": 2.5}),
    ('{"name": "f", "arguments": null}', {}),
    ('{"name": "f", "arguments": {"x": "</tool_call>"}}', {"x": "</tool_call>"}),
    ('{"name": "f", "arguments": {"x": "two\nlines"}}', {"x": "two\nlines"}),
    ('{"name": "f", "arguments": {"x": 123456789012345678901234567890}}', {"x": 123456789012345678901234567890}),
]


@pytest.mark.parametrize(("body", "arguments"), JSON_CALLS)
def test_a_json_object_is_a_call(body: str, arguments: dict[str, Any]) -> None:
    call = read(f"\n{body}\n")
    assert call == Call("f", arguments)
    assert list(call.arguments) == list(arguments), "in the written order"


def test_the_members_names_are_the_familys() -> None:
    markers = Markers(call=("<tool_call>", "</tool_call>"), syntaxes=(JsonCalls("function", "parameters"),))
    assert read('{"function": "f", "parameters": {"x": 1}}', markers=markers) == Call("f", {"x": 1})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "f(x)",
        "{}",
        '{"name": "f"}',
        '{"name": "", "arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "x"}',
        '{"name": "f", "arguments": "{} {}"}',
        '{"name": "f", "arguments": {}} and',
        '{"name": "f", "arguments": {}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": 1e999}}',
        '{"name": "f", "arguments": {"x": "\\ud800"}}',
        '{"name": "f", "arguments": {"x": ' + "[" * 100_000 + "}}",
        "<function=>\n</function>",
        "<function=f>\n<parameter=x>\n1\n</function>",
        "<function=f>\n<parameter=x>\n1\n</parameter>",
        "<function=f>\nx\n</function>",
        "<function=f",
    ],
)
def test_anything_else_is_unreadable(body: str) -> None:
    with pytest.raises(UnreadableCall, match=r"expected .*, found "):
        read(body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Europe/Paris", "Europe/Paris"),
        ("3", 3),
        ("true", True),
        ("null", None),
        ('{"a": [1]}', {"a": [1]}),
        ('"quoted"', '"quoted"'),
        ("", ""),
        ("two\nlines\n", "two\nlines\n"),
        ("</parameter> inside", "</parameter> inside"),
        ("1 2", "1 2"),
        ("NaN", "NaN"),
    ],
)
def test_a_parameter_is_json_or_else_text(text: str, value: Any) -> None:
    assert read(tagged(x=text, y="end")) == Call("f", {"x": value, "y": "end"})


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, "null", "null"),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, "12.5", "12.5"),
        ({"type": "number"}, "12", 12),
        ({"type": "number"}, "true", "true"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": 1}, "true", "true"),
        ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, "1", "1"),
        ({"anyOf": [{"type": "string"}, {"type": "boolean"}]}, "true", True),
        ({"$ref": "#/x"}, "1", 1),
        (True, "1", 1),
        ({}, "1", 1),
    ],
)
def test_the_declared_schema_says_what_a_parameter_may_be(schema: Any, text: str, value: Any) -> None:
    tools = {"f": {"type": "object", "properties": {"x": schema}}}
    assert read(tagged(x=text), tools).arguments == {"x": value}


def test_a_call_without_parameters_and_several_calls() -> None:
    text = f"{tagged()}</tool_call>\n<tool_call>\n" + '{"name": "g", "arguments": {}}\n</tool_call>\n'
    assert read_calls(BOTH, text, {}) == [Call("f", {}), Call("g", {})]


def test_marks_and_syntaxes_are_declared_together() -> None:
    with pytest.raises(ValueError, match="no tuple but a JsonCalls"):
        Markers(call=("<tool_call>", "</tool_call>"), syntaxes=JsonCalls())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="declared together"):
        Markers(call=("<tool_call>", "</tool_call>"))
    with pytest.raises(ValueError, match="empty"):
        Markers(thought=("<think>", ""))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.text(), values, max_size=4)


@settings(deadline=None)
@given(arguments, st.booleans())
def test_what_a_template_writes_as_json_is_read_again(made: dict[str, Any], ascii_only: bool) -> None:
    assert read(json.dumps({"name": "f", "arguments": made}, ensure_ascii=ascii_only)) == Call("f", made)


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(["", "{", "<function=f>", '{"name": "f", "arguments": {']))
def test_no_text_breaks_the_reading(text: str, begin: str) -> None:
    try:
        calls = read_calls(BOTH, begin + text, {})
    except UnreadableCall:
        return
    assert calls
