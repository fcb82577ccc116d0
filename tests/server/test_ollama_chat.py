"""ollama's /api/chat: lines, options, thoughts, calls and their results."""

from __future__ import annotations

import datetime

import ollama
import pytest
from ollama_helpers import TOOL, USER, echoing, lines


def test_a_chat_is_answered_line_by_line_unless_the_client_says_no(live) -> None:
    response = live.client.post("/api/chat", json={"model": "any:7b", "messages": [USER]})
    assert response.headers["content-type"] == "application/x-ndjson"
    *pieces, last = lines(response)
    assert [piece["message"] for piece in pieces] == [{"role": "assistant", "content": c} for c in "user:hello"]
    assert not any(piece["done"] for piece in pieces)
    assert all(set(piece) == {"model", "created_at", "message", "done"} for piece in pieces)
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["done_reason"], last["model"]) == (True, "stop", "any:7b")

    whole = live.client.post("/api/chat", json={"messages": [USER], "stream": False})
    assert whole.headers["content-type"].startswith("application/json")
    assert whole.json()["message"] == {"role": "assistant", "content": "user:hello"}
    assert whole.json()["model"] == "tiny-echo"
    for figures in (last, whole.json()):
        assert (figures["prompt_eval_count"], figures["eval_count"]) == (10, 11)
        parts = [figures[f"{name}_duration"] for name in ("load", "prompt_eval", "eval")]
        assert all(isinstance(part, int) for part in parts)
        assert sum(parts) <= figures["total_duration"] + 1e6, "durations are nanoseconds of one clock"
        assert figures["eval_duration"] > 1000
        at = datetime.datetime.fromisoformat(figures["created_at"])
        assert abs((datetime.datetime.now(datetime.UTC) - at).total_seconds()) < 60


def test_options_are_those_of_sampling_under_other_names(live) -> None:
    options = {
        "temperature": 0.25,
        "top_k": 3.0,
        "top_p": 0.5,
        "min_p": 0.1,
        "seed": 3,
        "num_predict": 4,
        "stop": ["x", ""],
        "repeat_last_n": 9,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "num_ctx": 8192,
        "mirostat": 0,
    }
    body = live.client.post("/api/chat", json={"messages": [USER], "options": options, "stream": False}).json()
    assert body["message"]["content"] == "r:he"
    assert body["done_reason"] == "length"
    request = live.engine.requests[-1]
    for name in ("temperature", "top_k", "top_p", "min_p", "seed", "repeat_last_n", "repeat_penalty"):
        assert getattr(request.sampling, name) == options[name], name
    assert (request.sampling.presence_penalty, request.sampling.frequency_penalty) == (0.2, 0.3)
    assert (request.stop, request.max_tokens) == (("x",), 4)


@pytest.mark.parametrize(
    ("given", "budget"), [(None, 7), (0, 7), (-1, 64), (-2, 64), (3, 3), (3.0, 3)], ids=lambda value: str(value)
)
def test_a_negative_budget_is_all_the_room_and_none_is_the_server_s(start, given, budget) -> None:
    live = start(context=64, answer_budget=7)
    live.client.post("/api/chat", json={"messages": [USER], "options": {"num_predict": given}})
    assert live.engine.requests[-1].max_tokens == budget


def test_what_the_file_recommends_stands_where_options_say_nothing(live) -> None:
    live.client.post("/api/chat", json={"messages": [USER], "options": None, "format": None, "think": None})
    sampling = live.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed) == (0.7, 40, 0.9, None)


def test_thoughts_and_calls_come_apart_and_arguments_are_an_object(live) -> None:
    echoing(live)
    text = '<think>why</think>Well.<call>{"name": "tide", "arguments": {"at": "Brest", "n": 2}}</call>'
    body = {"messages": [{"role": "user", "content": text}], "tools": [TOOL]}
    whole = live.client.post("/api/chat", json=body | {"stream": False}).json()
    assert whole["message"] == {
        "role": "assistant",
        "content": "Well.",
        "thinking": "why",
        "tool_calls": [{"function": {"index": 0, "name": "tide", "arguments": {"at": "Brest", "n": 2}}}],
    }
    assert whole["done_reason"] == "stop"
    *pieces, last = [line["message"] for line in lines(live.client.post("/api/chat", json=body))]
    assert "".join(piece["content"] for piece in pieces) == "Well."
    assert "".join(piece.get("thinking", "") for piece in pieces) == "why"
    assert [piece["tool_calls"] for piece in pieces if "tool_calls" in piece] == [whole["message"]["tool_calls"]]
    assert last == {"role": "assistant", "content": ""}


def test_results_are_matched_with_calls_by_id_by_name_and_by_order(live) -> None:
    template = echoing(live)
    calls = [{"function": {"name": name, "arguments": {"x": 1}}} for name in ("a", "b", "a")]
    messages = [
        USER,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls},
        {"role": "tool", "tool_name": "b", "content": "of b"},
        {"role": "tool", "tool_name": "a", "content": "of a"},
        {"role": "tool", "content": "of the other a"},
    ]
    assert live.client.post("/api/chat", json={"messages": messages}).status_code == 200
    _, said, *results = template.calls[-1][0]
    assert said["reasoning_content"] == "hm"
    ids = [call["id"] for call in said["tool_calls"]]
    assert len(set(ids)) == 3
    assert [(each["tool_call_id"], each["name"]) for each in results] == [(ids[1], "b"), (ids[0], "a"), (ids[2], "a")]


@pytest.mark.parametrize(
    ("think", "variables"),
    [
        (None, {"enable_thinking": False}),
        (False, {"enable_thinking": False}),
        (True, {"enable_thinking": True}),
        ("high", {"enable_thinking": True, "reasoning_effort": "high"}),
    ],
)
def test_thinking_is_a_variable_of_the_template(live, think, variables) -> None:
    live.client.post("/api/chat", json={"messages": [USER], "think": think})
    settings = live.server.chat.template.calls[-1][1]
    assert {name: settings[name] for name in settings if name != "tools"} == variables


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize("form", ["json", SCHEMA], ids=["json", "schema"])
def test_a_format_becomes_a_grammar(live, monkeypatch, form) -> None:
    tokenizer = live.server.chat.model.tokenizer
    monkeypatch.setattr(tokenizer, "vocab_size", 128)
    monkeypatch.setattr(tokenizer, "eog", frozenset({0}), raising=False)
    client = ollama.Client(host=live.url)
    client.chat("m", messages=[USER], format=form)
    client.generate("m", "hi", format=form)
    assert all(request.sampling.grammar is not None for request in live.engine.requests)
    client.generate("m", "hi", format="")
    assert live.engine.requests[-1].sampling.grammar is None


def test_a_request_without_messages_says_that_the_model_is_loaded(live) -> None:
    for path, said in (
        ("/api/chat", {"message": {"role": "assistant", "content": ""}}),
        ("/api/generate", {"response": ""}),
    ):
        for keep_alive, reason in ((None, "load"), ("5m", "load"), (-1, "load"), (0, "unload"), ("0s", "unload")):
            body = live.client.post(path, json={"model": "m", "keep_alive": keep_alive}).json()
            assert {name: body[name] for name in said} == said
            assert (body["model"], body["done"], body["done_reason"]) == ("m", True, reason)
    assert not live.engine.requests
