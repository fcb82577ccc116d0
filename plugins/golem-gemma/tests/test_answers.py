"""Reading Gemma 4's answers: thoughts, and calls in the family's own syntax, as its template writes them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from golem_gemma import answers, plugin, templates
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core import Call, ChatTemplate, Markers, UnreadableCall, open_model
from golem_core.text import AnswerSorter, Calls, Content, Reasoning

FIXTURES = Path(__file__).parent / "fixtures"
TEMPLATE = ChatTemplate(templates.gemma4(empty_thought=False), bos_token="", eos_token="")


def sort(text: str, **facts: Any) -> tuple[str, str, tuple[Call, ...]]:
    """(reasoning, content, calls) of an answer that comes character by character."""
    sorter = AnswerSorter(answers.GEMMA4, **({"tools": {}} | facts))
    events = [event for letter in text for event in sorter.push(letter)] + sorter.finish()
    return (
        "".join(event.text for event in events if isinstance(event, Reasoning)),
        "".join(event.text for event in events if isinstance(event, Content)),
        tuple(call for event in events if isinstance(event, Calls) for call in event.calls),
    )


def read(body: str) -> Any:
    _, _, (call,) = sort(f"<|tool_call>call:f{{{body}}}<tool_call|>")
    assert call.name == "f"
    return call.arguments


def test_a_loaded_model_has_its_familys_marks() -> None:
    assert plugin.open_gemma4(open_model(FIXTURES / "gemma4-e2b.gguf")).markers is answers.GEMMA4
    assert plugin.open_gemma3(open_model(FIXTURES / "gemma3.gguf")).markers == Markers()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|channel>thought\nhm\n<channel|>Six.", ("hm", "Six.", ())),
        ("<|channel>thought\n<channel|>Six.", ("", "Six.", ())),
        ("<|channel>thought\n<channel|><|channel>thought\nhm\n<channel|>Six.", ("hm", "Six.", ())),
        ("<channel|>Six.", ("", "Six.", ())),
        ("<|channel>thought\nhm", ("hm", "", ())),
        (
            'Look.<|tool_call>call:now{}<tool_call|><|tool_call>call:tide{port:<|"|>Brest<|"|>}<tool_call|>',
            ("", "Look.", (Call("now", {}), Call("tide", {"port": "Brest"}))),
        ),
    ],
)
def test_an_answer_is_sorted(text: str, expected: Any) -> None:
    assert sort(text) == expected


def test_an_answer_goes_on_with_the_thought_that_the_prompt_opened() -> None:
    assert sort("hm\n<channel|>Six.", thinking=True) == ("hm", "Six.", ())


def test_values_of_every_kind() -> None:
    body = (
        'text:<|"|>a, {b}: "c"\n<tool_call|><|"|>,yes:true,no:false,none:null,old:None,whole:3,neg:-12,'
        'real:2.50,power:1e3,list:[1,<|"|>x<|"|>,[],{}],inner:{a:{b:[true]}},word:New York,<|"|>quoted key<|"|>:1'
    )
    found = read(body)
    assert found == {
        "text": 'a, {b}: "c"\n<tool_call|>',
        "yes": True,
        "no": False,
        "none": None,
        "old": None,
        "whole": 3,
        "neg": -12,
        "real": 2.5,
        "power": 1000.0,
        "list": [1, "x", [], {}],
        "inner": {"a": {"b": [True]}},
        "word": "New York",
        "quoted key": 1,
    }
    assert list(found)[:3] == ["text", "yes", "no"], "in the written order"
    assert isinstance(found["whole"], int) and isinstance(found["power"], float)


@pytest.mark.parametrize(
    "text",
    [
        "f{}",
        "call:{}",
        "call:f",
        "call:f{",
        "call:f{a}",
        "call:f{a:}",
        "call:f{:1}",
        "call:f{a:1,}",
        "call:f{a:[1}",
        "call:f{a:{b:1}",
        'call:f{a:<|"|>x}',
        'call:f{a:1<|"|>x<|"|>}',
        "call:f{a:1}}",
        "call:f{a:1} and",
        "call:f{a:" + "[" * 50_000 + "}",
    ],
)
def test_a_call_is_read_as_a_whole_or_not_at_all(text: str) -> None:
    with pytest.raises(UnreadableCall):
        sort(f"<|tool_call>{text}<tool_call|>")
    with pytest.raises(UnreadableCall):
        sort(f"<|tool_call>call:g{{}}<tool_call|><|tool_call>{text}<tool_call|>")


def test_a_call_without_its_closing_mark_is_not_read() -> None:
    with pytest.raises(UnreadableCall, match="end of the answer"):
        sort("<|tool_call>call:f{}")


quotable = st.text(st.characters(exclude_characters="<|", exclude_categories=["Cs"]))
keys = st.text("abcdefgh_é9", min_size=1, max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(-1e15, 1e15) | quotable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=4))
def test_what_the_template_writes_is_read_again(arguments: dict[str, Any]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    written = TEMPLATE.render([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}])
    text = written[written.index("<|tool_call>") :].partition("<|tool_response>")[0]
    assert sort(text) == ("", "", (Call("f", arguments),))


@settings(deadline=None)
@given(st.text('a1:,{}[] <|">', max_size=30))
def test_no_text_breaks_the_reading(text: str) -> None:
    with contextlib.suppress(UnreadableCall):
        assert isinstance(read(text), dict)
