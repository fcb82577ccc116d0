"""Sorting an answer into reasoning, content and calls, however it is split into pieces."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from golem_core.text import AnswerSorter, Call, Calls, Content, JsonCalls, Markers, Reasoning, UnreadableCall

ANGLE = Markers(("<think>", "</think>"), ("<tool_call>", "</tool_call>"), (JsonCalls(),))
PIPED = Markers(("<|channel>thought", "<channel|>"), ("<|tool_call>", "<tool_call|>"), (JsonCalls(),), trims=False)
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
MADE = (Call("f", {"x": 1}),)

Sorted = tuple[str, str, tuple[Call, ...]]


def sort(pieces: list[str] | str, markers: Markers = ANGLE, *, cut: bool = False, **facts: Any) -> Sorted:
    """What comes out, as (reasoning, content, calls)."""
    sorter = AnswerSorter(markers, **facts)
    events: list[Any] = [event for piece in pieces for event in sorter.push(piece)]
    events += sorter.finish(cut=cut)
    assert all(event.calls if isinstance(event, Calls) else event.text for event in events), "an empty event"
    assert not any(isinstance(event, Calls) for event in events[:-1]), "calls come last, and all at once"
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    content = "".join(event.text for event in events if isinstance(event, Content))
    return reasoning, content, events[-1].calls if events and isinstance(events[-1], Calls) else ()


CASES = [
    # text, facts, (reasoning, content, calls)
    ("plain", {}, ("", "plain", ())),
    ("", {}, ("", "", ())),
    ("<think>\nhm\n</think>\n\nSix.", {}, ("hm", "Six.", ())),
    ("\n\nhm\n\nso\n</think>\nSix.", {"thinking": True}, ("hm\n\nso", "Six.", ())),
    ("<think>\n\n</think>\n\nSix.", {}, ("", "Six.", ())),
    ("<think>never closed\n", {}, ("never closed\n", "", ())),
    ("a<think>b</think>c<think>d</think>e", {}, ("bd", "ace", ())),
    ("</think>\nSix.", {}, ("", "Six.", ())),
    ("<think>hm</think><think>\n</think>Six.", {}, ("hm", "Six.", ())),
    ("<think>again</think>Six", {"thinking": True}, ("again", "Six", ())),
    ("1 < 2 <thin", {}, ("", "1 < 2 <thin", ())),
    ("<think>1 </thin", {}, ("1 </thin", "", ())),
    ("a line\n\n", {}, ("", "a line\n\n", ())),
    # calls, while tools are declared
    (CALL, {"tools": {}}, ("", "", MADE)),
    (CALL, {}, ("", CALL, ())),
    (f"{CALL}\n{CALL}\n ", {"tools": {}}, ("", "", MADE * 2)),
    (f"<think>\nf it\n</think>\n\n{CALL}", {"tools": {}}, ("f it", "", MADE)),
    (f"  Let me look.\n\n{CALL}", {"tools": {}}, ("", "Let me look.", MADE)),
    ("Nothing to call. \n", {"tools": {}}, ("", "Nothing to call. \n", ())),
    ("half <tool_ca", {"tools": {}}, ("", "half <tool_ca", ())),
    ("<think>I may write <tool_call> here</think>Yes", {"tools": {}}, ("I may write  here", "Yes", ())),
]


@pytest.mark.parametrize(("text", "facts", "expected"), CASES)
def test_an_answer_is_sorted(text: str, facts: dict[str, Any], expected: Sorted) -> None:
    assert sort([text], **facts) == expected
    assert sort(list(text), **facts) == expected, "character by character"


def test_other_marks_are_other_marks() -> None:
    text = '<|channel>thought\nhm\n<channel|>Look: <|tool_call>{"name": "f", "arguments": {"x": 1}}<tool_call|>'
    assert sort([text], PIPED, tools={}) == ("hm", "Look: ", MADE)
    assert sort(list(text), PIPED, tools={}) == ("hm", "Look: ", MADE)
    assert sort([text.replace("|", "")], PIPED, tools={})[1] == text.replace("|", "")


def test_without_marks_all_is_content() -> None:
    assert sort([CALL, "<think>"], Markers(), tools={}) == ("", CALL + "<think>", ())


def test_pieces_leave_as_soon_as_they_are_no_mark() -> None:
    sorter = AnswerSorter(ANGLE)
    assert sorter.push("Hi <") == [Content("Hi ")]
    assert sorter.push("thi") == []
    assert sorter.push("s>\n") == [Content("<this>\n")]
    assert sorter.push("<think>") == []
    assert sorter.push("\nhm\n") == [Reasoning("hm")]
    assert sorter.push("\nso") == [Reasoning("\n\nso")]
    assert sorter.push("\n</think>\n") == []
    assert sorter.push("\nSix.") == [Content("Six.")]


def test_nothing_leaves_once_a_call_may_have_begun() -> None:
    sorter = AnswerSorter(ANGLE, tools={})
    assert sorter.push("Look.\n<tool") == [Content("Look.")]
    assert sorter.push(CALL[len("<tool") :]) == []
    assert sorter.push("\n") == []
    assert sorter.finish() == [Calls(MADE)]


@pytest.mark.parametrize(
    "text",
    [
        CALL[:-1],
        CALL + "And so",
        CALL + "<tool_call>",
        "<tool_call>f(x)</tool_call>",
        '<tool_call>{"name": "f", "arguments": {"x": </tool_call>',
        "<tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_is_an_error_unless_the_turn_was_cut(text: str) -> None:
    with pytest.raises(UnreadableCall, match=r"expected .* found "):
        sort([text], tools={})
    assert sort(["Look. ", text], tools={}, cut=True) == ("", "Look.", ())


def test_whole_calls_count_although_the_turn_was_cut() -> None:
    assert sort([CALL], tools={}, cut=True) == ("", "", MADE)


def test_hidden_texts_never_leave() -> None:
    text = "<|channel>final<|channel>thought\nhm<channel|>"
    assert sort(list(text), PIPED, hidden=("<|channel>", "<channel|>")) == ("hm", "final", ())


@pytest.mark.parametrize(
    ("text", "thinking", "expected"),
    [
        ('<think>hm</think>\n{"a": "<think>"}', False, ("hm", '{"a": "<think>"}', ())),
        ('hm</think>{"a": "</think><think>"}', True, ("hm", '{"a": "</think><think>"}', ())),
        ('{"a": "</think><think>b</think>"}', False, ("", '{"a": "</think><think>b</think>"}', ())),
        ("\n<think>hm</think>1", False, ("hm", "\n1", ())),
    ],
)
def test_marks_are_content_after_the_one_thought(text: str, thinking: bool, expected: Sorted) -> None:
    assert sort([text], thinking=thinking, one_thought=True) == expected
    assert sort(list(text), thinking=thinking, one_thought=True) == expected


def test_marks_of_control_tokens_too_are_content_after_the_one_thought() -> None:
    text, marks = '<think>hm</think>{"a": "</think><think>b"}', ("<think>", "</think>")
    for pieces in ([text], list(text)):
        sorter = AnswerSorter(ANGLE, hidden=marks, one_thought=True)
        sent = [event for piece in pieces for event in sorter.push(piece)] + sorter.finish()
        content = "".join(event.text for event in sent if isinstance(event, Content))
        assert content == '{"a": "</think><think>b"}'


# ---------------------------------------------------------------- any split, one result

FRAGMENTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<",
    "</",
    "<t",
    "tool_call>",
    "\n",
    " ",
    "a",
    "é",
    ">",
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join)
call_texts = st.lists(st.sampled_from([CALL, "\n", " "]), max_size=4).map("".join)


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    """All ways to split a text into pieces, empty ones among them."""

    def split(places: list[int]) -> list[str]:
        return [text[a:b] for a, b in itertools.pairwise([0, *sorted(places), len(text)])]

    return st.lists(st.integers(0, len(text)), max_size=30).map(split)


@st.composite
def split_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(texts) + draw(call_texts)
    return text, draw(cuts(text))


MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def expected(text: str, thinking: bool, tools: bool) -> tuple[str, str, str | None]:
    """The rules on a whole text: (reasoning, content, the text after the first call mark)."""
    marks = r"<think>|</think>" + (r"|<tool_call>|</tool_call>" if tools else "")
    state, out, calls = ("reasoning" if thinking else "content"), {"reasoning": "", "content": ""}, None
    parts = re.split(f"((?:{marks})\n*)", ("<think>" if thinking else "") + text)
    for index, part in enumerate(parts):
        mark = part.rstrip("\n")
        if index % 2 == 0:
            out[state] += part
        elif mark == "<tool_call>" and state == "content":
            calls = part[len(mark) :] + "".join(parts[index + 1 :])
            out[state] = out[state].rstrip()
            break
        elif mark == "</think>" and state == "reasoning":
            out[state], state = out[state].rstrip("\n"), "content"
        elif mark == "<think>":
            state = "reasoning"
    return out["reasoning"], out["content"].lstrip() if tools else out["content"], calls


@settings(deadline=None)
@given(split_texts(), st.booleans(), st.booleans(), st.booleans())
def test_the_split_does_not_matter(case: tuple[str, list[str]], thinking: bool, tools: bool, one_thought: bool) -> None:
    text, pieces = case
    facts: dict[str, Any] = {"thinking": thinking, "tools": {} if tools else None, "cut": True}
    facts["one_thought"] = one_thought
    assert sort(pieces, **facts) == sort([text], **facts)


def test_what_dropping_a_mark_would_make_whole_is_dropped():
    assert sort(["<think><<think>tool_call>"], tools={}, cut=True)[:2] == ("<", "")


@settings(deadline=None)
@given(split_texts(), st.booleans(), st.booleans())
@example(("a\n<think></think><tool_call>", ["a\n<think></think><tool_call>"]), False, True)
@example(("a\n<think>b", ["a\n", "<think>b"]), False, True)
@example(("a \n<think>b</think> c", list("a \n<think>b</think> c")), False, True)
def test_any_split_follows_the_rules_on_the_whole_text(
    case: tuple[str, list[str]], thinking: bool, tools: bool
) -> None:
    text, pieces = case
    reasoning, content, calls = expected(text, thinking, tools)
    assume(not any(mark in part for mark in MARKS[: 4 if tools else 2] for part in (reasoning, content)))
    found = sort(pieces, thinking=thinking, tools={} if tools else None, cut=True)
    assert found[:2] == (reasoning, content)
    whole = calls is not None and re.fullmatch(f"\\s*{CALL[11:]}\\s*({CALL}\\s*)*", calls)
    assert found[2] == MADE * ((calls or "").count("</tool_call>") if whole else 0)


@settings(deadline=None)
@given(split_texts(), st.booleans())
@example(("<think><<think>tool_call>", ["<think><<think>tool_call>"]), False)
@example(("<think><<think>tool_call>", list("<think><<think>tool_call>")), False)
@example(("</<think></think>tool_call>", ["</<think></think>tool_call>"]), False)
@example(("<<think>x</think>tool_call>{}", list("<<think>x</think>tool_call>{}")), False)
@example(("<think><</think><think>tool_call>", ["<think><</think><think>tool_call>"]), False)
@example(("<th\n</think><think>ink>", ["<th\n</think><think>ink>"]), True)
def test_no_piece_of_the_answer_has_a_mark_in_it(case: tuple[str, list[str]], thinking: bool) -> None:
    sorter = AnswerSorter(ANGLE, thinking=thinking, tools={})
    sent = [event for piece in case[1] for event in sorter.push(piece)] + sorter.finish(cut=True)
    for kind in (Content, Reasoning):
        text = "".join(event.text for event in sent if isinstance(event, kind))
        assert not re.search("</?think>|</?tool_call>", text)


@settings(deadline=None)
@given(st.data())
def test_marks_that_overlap_and_contain_each_other(data: st.DataObject) -> None:
    marks = data.draw(st.lists(st.text("ab", min_size=1, max_size=4), min_size=2, max_size=5, unique=True))
    text = data.draw(st.text("abc", max_size=20))
    markers = Markers((marks[0], marks[1]))
    pieces = data.draw(cuts(text))
    assert sort(pieces, markers, hidden=marks[2:]) == sort([text], markers, hidden=marks[2:])


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        (["a", "bbbb"], "aaaaabbabbb"),
        (["bbbb", "b", "aaaa"], "baaaabababaabbaaa"),
        (["aaaa", "bb", "aba", "bab", "bbba"], "baabbaaa"),
    ],
)
def test_what_completes_a_mark_after_another_does_not_depend_on_what_follows(marks: list[str], text: str) -> None:
    facts = {"markers": Markers((marks[0], marks[1])), "hidden": marks[2:]}
    whole = sort([text], **facts)
    assert sort(text, **facts) == whole
    assert [sort([text[:at], text[at:]], **facts) for at in range(len(text))] == [whole] * len(text)
