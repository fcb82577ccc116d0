"""ollama's API, to plain HTTP and to ollama's own client."""

from __future__ import annotations

import datetime
import json
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import ollama
import pytest
from server_fakes import FakeTemplate

from golem_core import Markers
from golem_core.files import Metadata, Weight, Weights
from golem_core.text import JsonCalls

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}
THINKING = Markers(thought=("<think>", "</think>"), call=("<call>", "</call>"), syntaxes=(JsonCalls(),))


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def echoing(live: Any, markers: Markers = THINKING) -> Any:
    """Let the model repeat the last message only, with marks that its family would write."""
    model = live.server.chat.model
    model.markers = markers
    template = FakeTemplate()
    render = template.render
    template.render = lambda messages, **settings: (render(messages, **settings), messages[-1]["content"])[1]  # type: ignore
    live.server.chat.template = template
    return template


# ---------------------------------------------------------------- /api/chat


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


# ---------------------------------------------------------------- /api/generate


def test_a_prompt_is_a_conversation_of_one_message_with_a_system_text_before_it(live) -> None:
    *pieces, last = lines(live.client.post("/api/generate", json={"prompt": "hi", "system": "be brief"}))
    assert "".join(piece["response"] for piece in pieces) == "system:be brief|user:hi"
    assert last["response"] == "" and last["done"] and last["done_reason"] == "stop"
    whole = live.client.post("/api/generate", json={"prompt": "hi", "stream": False}).json()
    assert whole["response"] == "user:hi"
    assert whole["context"] == [ord(letter) for letter in "user:hi" + "user:hi"], "the prompt and the answer"


def test_a_raw_prompt_is_continued_as_it_stands(live) -> None:
    echoing(live)
    text = "a <think>b</think>"
    whole = live.client.post("/api/generate", json={"prompt": text, "raw": True, "stream": False}).json()
    assert whole["response"] == text, "nothing is sorted out of it"
    assert "context" not in whole
    assert not live.server.chat.template.calls


def test_a_context_is_gone_on_from(live) -> None:
    first = live.client.post("/api/generate", json={"prompt": "hi", "stream": False}).json()
    body = {"prompt": "more", "context": first["context"], "stream": False}
    second = live.client.post("/api/generate", json=body).json()
    assert second["response"] == "user:hiuser:hiuser:more"
    assert live.engine.requests[-1].prompt[: len(first["context"])] == first["context"]


def test_the_token_that_begins_a_text_stands_there_once(live, monkeypatch) -> None:
    tokenizer = live.server.chat.model.tokenizer
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "bos", ord("^"))
    monkeypatch.setattr(tokenizer, "encode", lambda text, add_special=False, **_: encode("^" * add_special + text))
    post = live.client.post
    post("/api/generate", json={"prompt": "hi", "raw": True})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("h"), ord("i")]
    post("/api/generate", json={"prompt": "^hi", "raw": True})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("h"), ord("i")]
    post("/api/generate", json={"prompt": "^hi", "raw": True, "context": [ord("^"), ord("a")]})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("a"), ord("h"), ord("i")]


def test_a_model_without_a_template_continues_the_prompt(live) -> None:
    live.server.chat.template = None
    whole = live.client.post("/api/generate", json={"prompt": "once", "stream": False}).json()
    assert whole["response"] == "once"


# ---------------------------------------------------------------- refusals

BOTH = ("/api/chat", "/api/generate")


@pytest.mark.parametrize(
    ("paths", "fields", "words"),
    [
        (BOTH, {"options": {"temperature": "hot"}}, ["options.temperature", "hot"]),
        (BOTH, {"options": {"num_predict": 1.5}}, ["num_predict", "1.5"]),
        (BOTH, {"options": {"stop": 5}}, ["options.stop"]),
        (BOTH, {"options": []}, ["options"]),
        (BOTH, {"think": "maybe"}, ["think", "maybe"]),
        (BOTH, {"think": 1}, ["think", "1"]),
        (BOTH, {"keep_alive": "soon"}, ["keep_alive", "soon"]),
        (BOTH, {"keep_alive": True}, ["keep_alive", "true"]),
        (BOTH, {"format": "yaml"}, ["format", "yaml"]),
        (BOTH, {"format": 5}, ["format", "5"]),
        (BOTH, {"format": {"type": "string", "pattern": "["}}, ["format", "pattern"]),
        (BOTH, {"logprobs": True}, ["logprobs"]),
        (BOTH, {"stream": "no"}, ["stream"]),
        (BOTH[1:], {"images": ["aGk="]}, ["images", "-mmproj"]),
        (BOTH[1:], {"suffix": "."}, ["suffix"]),
        (BOTH[1:], {"template": "{{ .Prompt }}"}, ["template", "raw"]),
        (BOTH[1:], {"context": [1, "a"]}, ["context[1]"]),
        (BOTH[1:], {"context": [1 << 40]}, ["context[0]"]),
        (BOTH[:1], {"tools": [{"type": "function"}]}, ["tools[0].function.name"]),
        (BOTH[:1], {"tools": [TOOL]}, ["tools", "tiny-echo"]),
        (
            BOTH[:1],
            {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]},
            ["messages[0].images", "-mmproj"],
        ),
        (BOTH[:1], {"messages": [{"role": "robot"}]}, ["messages[0].role", "robot"]),
        (BOTH[:1], {"messages": [{"role": "tool", "content": "x"}]}, ["messages[0]", "call"]),
    ],
)
def test_what_cannot_be_done_is_named_in_ollama_s_envelope(module_live, paths, fields, words) -> None:
    for path in paths:
        usual = {"messages": [USER]} if path == "/api/chat" else {"prompt": "hi"}
        response = module_live.client.post(path, json=usual | fields)
        assert response.status_code == 400, response.text
        assert list(response.json()) == ["error"]
        for word in words:
            assert word in response.json()["error"]


def test_a_model_that_cannot_think_is_not_asked_to(live, monkeypatch) -> None:
    monkeypatch.setattr(live.server.chat.template, "takes", lambda variable: False)
    answer = live.client.post("/api/chat", json={"messages": [USER], "think": True})
    assert answer.status_code == 400 and "thinking" in answer.json()["error"]
    assert live.client.post("/api/chat", json={"messages": [USER], "think": False}).status_code == 200


def test_a_conversation_that_does_not_fit_is_refused_and_not_cut(start) -> None:
    live = start(context=8)
    answer = live.client.post("/api/chat", json={"messages": [USER], "truncate": True, "shift": True})
    assert answer.status_code == 400 and "10" in answer.json()["error"] and "-context" in answer.json()["error"]


def test_what_the_framework_refuses_has_the_same_envelope(start, monkeypatch) -> None:
    monkeypatch.setattr("golem_core.server.app.BODY_LIMIT", 1000)
    live = start()
    large = {"messages": [{"role": "user", "content": "x" * 2000}]}
    for response, status in [
        (live.client.post("/api/chat", json=large), 413),
        (live.client.get("/api/chat"), 405),
        (live.client.post("/api/pull", json={}), 404),
        (live.client.post("/api/chat", content=b"{"), 400),
    ]:
        assert response.status_code == status
        assert isinstance(response.json()["error"], str)


def test_a_failure_before_the_first_piece_is_a_status_and_after_it_a_line(live) -> None:
    live.engine.fail_at = 0
    early = live.client.post("/api/chat", json={"messages": [USER]})
    assert early.status_code == 500 and isinstance(early.json()["error"], str)
    live.engine.fail_at = 3
    *pieces, last = lines(live.client.post("/api/chat", json={"messages": [USER]}))
    assert [piece["message"]["content"] for piece in pieces] == list("use")
    assert list(last) == ["error"]
    assert live.idle()


def test_a_client_that_hangs_up_frees_its_slot(live) -> None:
    live.engine.token_delay = 0.05
    with live.client.stream("POST", "/api/generate", json={"prompt": "hi" * 200}) as response:
        next(response.iter_lines())
    assert live.idle()
    assert live.engine.generations[-1].drawn < 100


# ---------------------------------------------------------------- models


def filed(live: Any, tmp_path: Any, **metadata: Any) -> Any:
    """Give the model a file of its own, with two weights."""
    path = tmp_path / "tiny-echo.gguf"
    path.write_bytes(b"GGUF")
    tensors = {
        "token_embd.weight": Weight("token_embd.weight", "Q8_0", (1000, 32), np.zeros(34000, np.uint8)),
        "output_norm.weight": Weight("output_norm.weight", "F32", (32,), np.zeros(128, np.uint8)),
    }
    known = {"general.architecture": "echo", "echo.block_count": 2} | metadata
    live.server.chat.model.file = SimpleNamespace(
        path=path, architecture="echo", metadata=Metadata(path, known), weights=Weights(path, tensors)
    )
    return path


def test_tags_and_ps_describe_the_file(live, tmp_path) -> None:
    path = filed(live, tmp_path, **{"general.file_type": 15})
    (tag,) = live.client.get("/api/tags").json()["models"]
    assert tag["name"] == tag["model"] == "tiny-echo"
    assert tag["size"] == 34128
    assert len(tag["digest"]) == 64
    written = datetime.datetime.fromisoformat(tag["modified_at"])
    assert abs(written.timestamp() - path.stat().st_mtime) < 1e-3
    assert tag["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "echo",
        "families": ["echo"],
        "parameter_size": "32.0K",
        "quantization_level": "Q4_K_M",
    }
    (running,) = live.client.get("/api/ps").json()["models"]
    assert {name: running[name] for name in tag} == tag
    assert (running["size_vram"], running["context_length"]) == (0, 4096)
    assert datetime.datetime.fromisoformat(running["expires_at"]).year == 9999


@pytest.mark.parametrize("stated", [{}, {"general.file_type": [15]}, {"general.file_type": 15.5}])
def test_a_file_that_does_not_say_how_it_is_stored_is_known_by_its_largest_part(live, tmp_path, stated) -> None:
    filed(live, tmp_path, **stated)
    assert live.client.get("/api/tags").json()["models"][0]["details"]["quantization_level"] == "Q8_0"


def test_show_tells_the_metadata_and_what_the_model_can_do(live, tmp_path) -> None:
    lists = {"tokenizer.ggml.tokens": ["a", "\udcff"], "echo.sizes": [1, 2], "echo.many": list(range(100))}
    filed(live, tmp_path, **lists, **{"general.license": "mit"})
    body = live.client.post("/api/show", json={"model": "tiny-echo:latest"}).json()
    assert body["model_info"] == {
        "general.parameter_count": 32032,
        "general.architecture": "echo",
        "echo.block_count": 2,
        "tokenizer.ggml.tokens": None,
        "echo.sizes": [1, 2],
        "echo.many": None,
        "general.license": "mit",
    }
    assert body["license"] == "mit"
    assert body["capabilities"] == ["completion", "thinking"]
    assert "temperature 0.7" in body["parameters"]
    assert body["template"] == "{# a test #}"
    verbose = live.client.post("/api/show", json={"name": "tiny-echo", "verbose": True}).json()["model_info"]
    assert len(verbose["echo.many"]) == 100 and verbose["tokenizer.ggml.tokens"][0] == "a"
    live.server.chat.model.markers = THINKING
    assert "tools" in live.client.post("/api/show", json={"model": "tiny-echo"}).json()["capabilities"]


def test_a_model_that_is_not_here_is_a_404_and_none_a_400(module_live) -> None:
    missing = module_live.client.post("/api/show", json={"model": "other"})
    assert missing.status_code == 404 and "other" in missing.json()["error"]
    unnamed = module_live.client.post("/api/show", json={})
    assert unnamed.status_code == 400 and "model" in unnamed.json()["error"]


def test_version_and_the_root_answer_get_and_head(module_live) -> None:
    from golem_core import plugins

    assert module_live.client.get("/api/version").json() == {"version": plugins.version()}
    for path in ("/api/version", "/"):
        head = module_live.client.head(path)
        assert head.status_code == 200 and head.content == b""


# ---------------------------------------------------------------- ollama's own client


def test_ollamas_client_chats_generates_and_lists(live, tmp_path) -> None:
    filed(live, tmp_path)
    client = ollama.Client(host=live.url)
    answer = client.chat("tiny-echo", messages=[USER], options={"num_predict": 5})
    assert (answer.message.content, answer.done_reason, answer.eval_count) == ("user:", "length", 5)
    pieces = list(client.chat("tiny-echo", messages=[USER], stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "user:hello"
    assert pieces[-1].done and pieces[-1].total_duration
    first = client.generate("tiny-echo", "hi")
    assert first.response == "user:hi"
    assert client.generate("tiny-echo", "more", context=first.context).response.endswith("user:more")
    assert client.list().models[0].details.family == "echo"
    assert client.ps().models[0].context_length == 4096
    assert client.show("tiny-echo").modelinfo["general.architecture"] == "echo"


def test_ollamas_client_reads_calls_and_thoughts(live) -> None:
    echoing(live)

    def tide(at: str) -> str:
        """When the tide comes.

        Args:
            at: the harbour
        """
        return at

    text = '<think>why</think><call>{"name": "tide", "arguments": {"at": "Brest"}}</call>'
    client = ollama.Client(host=live.url)
    answer = client.chat("m", messages=[{"role": "user", "content": text}], tools=[tide], think=True)
    assert answer.message.thinking == "why"
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("tide", {"at": "Brest"})
    told = {"role": "tool", "tool_name": "tide", "content": "at noon"}
    again = client.chat("m", messages=[{"role": "user", "content": text}, answer.message, told], tools=[tide])
    assert again.message.content == "at noon"


def test_ollamas_client_is_told_what_went_wrong(live) -> None:
    client = ollama.Client(host=live.url)
    with pytest.raises(ollama.ResponseError, match="suffix") as refusal:
        client.generate("m", "hi", suffix=".")
    assert refusal.value.status_code == 400
    with pytest.raises(ollama.ResponseError) as missing:
        client.show("other")
    assert missing.value.status_code == 404
    live.engine.fail_at = 3
    seen = []
    with pytest.raises(ollama.ResponseError, match="internal error"):
        seen += [piece.message.content for piece in client.chat("m", messages=[USER], stream=True)]
    with pytest.raises(ollama.ResponseError):
        for piece in client.chat("m", messages=[USER], stream=True):
            seen.append(piece.message.content)
    assert seen == list("use")
