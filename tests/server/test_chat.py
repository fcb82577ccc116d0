"""POST /v1/chat/completions answered, whole and streamed, to plain HTTP and to OpenAI's own client."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import openai
import pytest
from server_fakes import FakeTemplate


def events(response: httpx.Response) -> list[Any]:
    """The data of every event; the literal [DONE] stays text."""
    found = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in found]


def test_an_answer_is_openais_object_with_llama_cpps_timings(live) -> None:
    body = live.chat().json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny-echo"
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "user:hello"}, "finish_reason": "stop"}
    ]
    assert body["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 11,
        "total_tokens": 21,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    timings = body["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == body["usage"]["prompt_tokens"]
    assert timings["predicted_n"] == 11


def test_a_stream_is_role_then_content_then_reason_then_done(live) -> None:
    response = live.chat(stream=True)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    *chunks, done = events(response)
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0] == {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    assert [choice["delta"] for choice in choices[1:-1]] == [{"content": letter} for letter in "user:hello"]
    assert choices[-1] == {"index": 0, "delta": {}, "finish_reason": "stop"}


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_a_stream_joins_to_the_whole_answer_of_the_same_seed(live, seed) -> None:
    whole = live.chat(seed=seed, max_tokens=5).json()["choices"][0]
    *chunks, _ = events(live.chat(seed=seed, max_tokens=5, stream=True))
    pieces = [chunk["choices"][0] for chunk in chunks]
    assert "".join(piece["delta"].get("content", "") for piece in pieces) == whole["message"]["content"]
    assert pieces[-1]["finish_reason"] == whole["finish_reason"]


def test_usage_is_streamed_in_a_chunk_without_choices_when_asked_for(live) -> None:
    *_, last, usage, done = events(live.chat(stream=True, stream_options={"include_usage": True}))
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 21
    assert usage["timings"]["predicted_n"] == 11
    assert done == "[DONE]"


def test_openais_client_reads_both_forms_and_its_errors(live) -> None:
    client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)
    messages: Any = [{"role": "user", "content": "hello"}]
    answer = client.chat.completions.create(model="any", messages=messages)
    assert answer.choices[0].message.content == "user:hello"
    assert answer.usage and answer.usage.prompt_tokens == 10
    stream = client.chat.completions.create(
        model="any", messages=messages, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "user:hello"
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens == 11
    assert client.models.list().data[0].id == "tiny-echo"
    assert client.models.retrieve("tiny-echo").id == "tiny-echo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")
    with pytest.raises(openai.BadRequestError, match="one answer"):
        client.chat.completions.create(model="any", messages=messages, n=3)


@pytest.mark.parametrize(
    ("fields", "drawn"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_tokens": 3.0}, 3),
        ({"max_tokens": 3, "max_completion_tokens": 2}, 2),
        ({"max_tokens": None, "max_completion_tokens": None}, 4),
        ({"max_tokens": 0}, 4),
        ({"max_tokens": -1}, 4),
    ],
)
def test_the_budget_is_the_requests_or_the_servers(start, fields, drawn) -> None:
    body = start(answer_budget=4).chat(**fields).json()
    assert body["usage"]["completion_tokens"] == drawn
    assert body["choices"][0]["finish_reason"] == "length"


def test_sampling_follows_the_model_unless_the_request_names_a_value(live) -> None:
    live.chat()
    live.chat(temperature=0, top_k=5.0, seed=-1, frequency_penalty=1, stop="x", mirostat=2)
    live.chat(stop=["a", "", "b"], temperature=None, logit_bias={"97": -100, "98": False}, seed=12)
    plain, named, listed = [request.sampling for request in live.engine.requests]
    assert (plain.temperature, plain.top_k, plain.top_p, plain.min_p, plain.seed) == (0.7, 40, 0.9, 0.0, None)
    assert (named.temperature, named.top_k, named.seed, named.frequency_penalty) == (0, 5, None, 1)
    assert named.extra == {"mirostat": 2}
    assert live.engine.requests[1].stop == ("x",)
    assert live.engine.requests[2].stop == ("a", "b")
    assert (listed.temperature, listed.seed) == (0.7, 12)
    assert listed.logit_bias == {97: -100.0, 98: float("-inf")}
    live.chat(logit_bias=[[97, 1], ["bc", -2]])
    assert live.engine.requests[3].sampling.logit_bias == {97: 1.0, 98: -2.0, 99: -2.0}


def test_null_is_absent_for_every_optional_field(live) -> None:
    names = "tools tool_choice stream stream_options max_completion_tokens max_tokens temperature top_p top_k min_p"
    names += (
        " seed repeat_penalty repeat_last_n frequency_penalty presence_penalty logit_bias stop response_format grammar"
    )
    names += " json_schema chat_template_kwargs reasoning_effort n logprobs model user"
    assert live.chat(**dict.fromkeys(names.split())).status_code == 200


def test_a_body_needs_no_content_type(live) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json; charset=latin-1"):
        response = live.client.post("/v1/chat/completions", content=body, headers={"content-type": kind})
        assert response.json()["choices"][0]["message"]["content"] == "user:hi"
    assert live.client.post("/v1/chat/completions", content=body).status_code == 200


def test_a_chunked_body_is_read(live) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 3000}], "max_tokens": 10}).encode()
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))
    response = live.client.post("/v1/chat/completions", content=pieces)
    assert response.json()["usage"]["prompt_tokens"] == 3005


def test_a_budget_beyond_every_context_is_a_budget(live) -> None:
    for budget in (1e15, (1 << 63) - 1):
        assert live.chat(max_tokens=budget).json()["choices"][0]["finish_reason"] == "stop"


def test_messages_reach_the_template_in_its_own_form(live) -> None:
    template: FakeTemplate = live.server.chat.template
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "name": "Al"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "content": "1"},
        {"role": "assistant"},
    ]
    assert live.chat(messages=messages, chat_template_kwargs={"enable_thinking": True, "x": 5}).status_code == 200
    read, settings, thread = template.calls[-1]
    assert read == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one\ntwo", "name": "Al"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "2", "tool_call_id": "b", "name": "g"},
        {"role": "tool", "content": "1", "tool_call_id": "a", "name": "f"},
        {"role": "assistant", "content": ""},
    ]
    assert settings == {"enable_thinking": True, "x": 5}
    assert "asyncio" in thread or "worker" in thread.lower(), "rendering belongs off the event loop"


def test_thinking_is_off_unless_asked_for(live) -> None:
    template: FakeTemplate = live.server.chat.template
    high = {"reasoning_effort": "high"}
    for fields, settings in (
        ({}, {"enable_thinking": False}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        (high, {"enable_thinking": True} | high),
        (high | {"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False} | high),
        (high | {"chat_template_kwargs": {"enable_thinking": None}}, {"enable_thinking": True} | high),
        ({"chat_template_kwargs": {"enable_thinking": None}}, {"enable_thinking": False}),
    ):
        live.chat(**fields)
        assert template.calls[-1][1] == settings


def test_tools_with_tool_choice_none_are_dropped(live) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert live.chat(tools=[tool], tool_choice="none").status_code == 200
    assert live.chat(tools=[]).status_code == 200


def test_requests_beyond_the_slots_wait_their_turn_and_all_are_answered(start) -> None:
    live = start(slots=2)
    live.engine.token_delay = 0.002
    answers: list[str] = []

    def ask(index: int) -> None:
        stream = index % 2 == 0
        messages = [{"role": "user", "content": f"number {index}"}]
        with httpx.Client(base_url=live.url, timeout=20) as client:
            response = client.post("/v1/chat/completions", json={"messages": messages, "stream": stream})
        if stream:
            *chunks, _ = events(response)
            answers.append("".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks))
        else:
            answers.append(response.json()["choices"][0]["message"]["content"])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted(f"user:number {index}" for index in range(12))
    assert live.idle()


def test_a_failure_after_the_start_is_an_error_event_and_the_end(live) -> None:
    live.engine.fail_at = 3
    *chunks, last = events(live.chat(stream=True))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "use"
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert last["error"]["type"] == "server_error" and last["error"]["param"] is None
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a"}], stream=True))
    assert live.idle()


def test_a_failure_before_anything_was_sent_is_a_500_that_clients_do_not_retry(live) -> None:
    live.engine.fail_at = 0
    for stream in (False, True):
        response = live.chat(stream=stream)
        assert response.status_code == 500
        assert response.headers["x-should-retry"] == "false"
        assert response.json()["error"]["type"] == "server_error"
    assert live.idle()


def test_a_long_silence_is_filled_with_comments_once_the_slot_is_taken(live, monkeypatch) -> None:
    monkeypatch.setattr("golem_core.server.streaming.PING_SECONDS", 0.05)
    live.engine.prompt_delay = 0.3
    response = live.chat(stream=True)
    assert response.text.count(": ping\n\n") >= 2
    *chunks, done = events(response)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "user:hello"
    assert done == "[DONE]"


def test_a_model_without_a_template_says_so(live) -> None:
    live.server.chat.template = None
    response = live.chat()
    assert response.status_code == 400
    assert "chat template" in response.json()["error"]["message"]


def test_small_pieces_leave_at_once(live) -> None:
    live.chat()
    start = time.monotonic()
    for _ in range(20):
        live.client.get("/health")
    assert time.monotonic() - start < 20 * 0.03, "with Nagle's algorithm each answer takes 40 ms"
