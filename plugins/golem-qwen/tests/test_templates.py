"""The built-in chat templates: what a conversation becomes when the file brings no template of its own.

Turns, thoughts, calls and results are expected as the templates published with the models write them; the words that
declare tools are our own.
"""

from __future__ import annotations

import pytest
from golem_qwen import templates

from golem_core import BadRequest, ChatTemplate


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def tool(text):
    return {"role": "tool", "content": text}


def assistant(text, *calls, **more):
    made = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {}), **more}


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def qwen3(*messages, **options):
    return ChatTemplate(templates.QWEN3, bos_token="", eos_token="<|im_end|>").render(list(messages), **options)


def qwen35(*messages, **options):
    return ChatTemplate(templates.QWEN35, bos_token="", eos_token="<|im_end|>").render(list(messages), **options)


OPEN = "<|im_start|>assistant\n"
EMPTY = "<think>\n\n</think>\n\n"
NOW = {"type": "function", "function": {"name": "now", "description": "Tells the time <b>"}}
TALK = [user("one"), assistant("two", reasoning_content="why"), user("three")]
LOOP = [user("both"), assistant("", ("weather", {"city": "Lyon"}), ("now", {})), tool("18"), tool("14:03")]


@pytest.mark.parametrize(("thinking", "end"), [(False, EMPTY), (True, ""), (None, "")])
def test_qwen3_turns(thinking, end):
    options = {} if thinking is None else {"enable_thinking": thinking}
    expected = turn("user", "one") + turn("assistant", "two") + turn("user", "three") + OPEN + end
    assert qwen3(*TALK, **options) == expected


@pytest.mark.parametrize(("thinking", "end"), [(False, EMPTY), (True, "<think>\n"), (None, "<think>\n")])
def test_qwen35_turns(thinking, end):
    options = {} if thinking is None else {"enable_thinking": thinking}
    expected = turn("user", "one") + turn("assistant", "two") + turn("user", "three") + OPEN + end
    assert qwen35(*TALK, **options) == expected


def test_qwen35_keeps_earlier_thoughts_where_asked_for():
    expected = turn("assistant", "<think>\nwhy\n</think>\n\ntwo")
    assert expected in qwen35(*TALK, preserve_thinking=True)


def test_qwen3_tool_loop():
    calls = (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Lyon"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    )
    results = "<tool_response>\n18\n</tool_response>\n<tool_response>\n14:03\n</tool_response>"
    expected = turn("user", "both") + turn("assistant", calls) + turn("user", results) + OPEN + EMPTY
    assert qwen3(*LOOP, enable_thinking=False) == expected


def test_qwen35_tool_loop():
    calls = (
        f"{EMPTY}<tool_call>\n<function=weather>\n<parameter=city>\nLyon\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    )
    results = "<tool_response>\n18\n</tool_response>\n<tool_response>\n14:03\n</tool_response>"
    expected = turn("user", "both") + turn("assistant", calls) + turn("user", results) + OPEN + EMPTY
    assert qwen35(*LOOP, enable_thinking=False) == expected


def test_calls_stand_apart_from_content():
    assert "Let me look.\n<tool_call>" in qwen3(user("a"), assistant("Let me look.", ("now", {})), tool("x"))
    assert "Let me look.\n\n<tool_call>" in qwen35(user("a"), assistant("Let me look.", ("now", {})), tool("x"))


def test_values_that_are_no_texts_are_json():
    rendered = qwen35(user("a"), assistant("", ("f", {"n": 3, "ok": True, "list": ["é", 1]})))
    assert "<parameter=n>\n3\n</parameter>\n<parameter=ok>\ntrue\n</parameter>" in rendered
    assert '<parameter=list>\n["é", 1]\n</parameter>' in rendered


def test_arguments_that_are_text():
    assert '"arguments": {"a":1}}' in qwen3(user("a"), assistant("", ("f", '{"a":1}')))
    with pytest.raises(BadRequest, match="object"):
        qwen35(user("a"), assistant("", ("f", '{"a":1}')))


@pytest.mark.parametrize("template", [qwen3, qwen35])
def test_a_thought_inside_of_the_content_is_split_off(template):
    said = "<think>\nhm\n</think>\n\nFour."
    assert turn("assistant", "Four.") in template(user("2+2?"), assistant(said), user("Sure?"))
    kept = turn("assistant", "<think>\nhm\n</think>\n\nFour.")
    assert template(user("2+2?"), assistant(said), add_generation_prompt=False).endswith(kept)


@pytest.mark.parametrize("template", [qwen3, qwen35])
def test_tools_are_declared_as_json_in_the_system_turn(template):
    declared = (
        '<tools>\n{"type": "function", "function": {"name": "now", "description": "Tells the time <b>"}}\n</tools>'
    )
    rendered = template(system("Be brief."), user("a"), tools=[NOW])
    first = rendered.split("<|im_end|>")[0]
    assert first.startswith("<|im_start|>system\n") and declared in first and "Be brief." in first
    assert (first.index("Be brief.") < first.index("<tools>")) == (template is qwen3)
    assert declared in template(user("a"), tools=[NOW]).split("<|im_end|>")[0]


def test_contents_are_trimmed_by_the_newer_template_only():
    assert qwen3(user(" a \n"), add_generation_prompt=False) == turn("user", " a \n")
    assert qwen35(user(" a \n"), add_generation_prompt=False) == turn("user", "a")


@pytest.mark.parametrize("template", [qwen3, qwen35])
def test_text_parts(template):
    parts = [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]
    assert template(user(parts), add_generation_prompt=False) == turn("user", "One. Two.")


@pytest.mark.parametrize("template", [qwen3, qwen35])
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a"), system("b")],
        [user("a"), {"role": "narrator", "content": "b"}],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
    ],
)
def test_what_it_cannot_write_is_refused(template, messages):
    with pytest.raises(BadRequest):
        template(*messages)


def test_qwen35_needs_a_question():
    with pytest.raises(BadRequest, match="user"):
        qwen35(system("a"), assistant("b"))
