"""What is refused, with which status, in which envelope, and that the message names the thing at fault."""

from __future__ import annotations

import gzip
import json
import re
import socket
from typing import Any

import pytest

from golem_core.errors import BadRequest
from golem_core.server.bodies import read_body
from golem_core.server.chat_request import ChatRequest

TOOL = {"type": "function", "function": {"name": "f"}}
USER = {"role": "user", "content": "hello"}
CALLING = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}]}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "a"}


def parts(*found: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "user", "content": list(found)}]}


REFUSED = [
    ({"messages": None}, ["message"]),
    ({"messages": []}, ["message"]),
    ({"messages": "hello"}, ["messages", "array", '"hello"']),
    ({"messages": ["hello"]}, ["messages[0]", "object"]),
    ({"messages": [{"role": "user", "content": 5}]}, ["messages[0].content", "5"]),
    ({"messages": [{"role": "robot", "content": "x"}]}, ["messages[0].role", "robot"]),
    ({"messages": [{"content": "x"}]}, ["messages[0].role"]),
    ({"n": 3}, ["n", "3", "one answer"]),
    ({"n": 0}, ["n", "0"]),
    ({"n": "three"}, ["n", "three"]),
    ({"logprobs": True}, ["logprobs"]),
    ({"tool_choice": "required"}, ["tool_choice", "required", "auto", "none"]),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, ["tool_choice", "an object", "auto", "none"]),
    ({"tools": [TOOL]}, ["tools", "tiny-echo", "no tool calls", "echo"]),
    ({"tools": [{"type": "retrieval"}]}, ["tools[0].type", "retrieval"]),
    ({"tools": [{"type": "function", "function": {}}]}, ["tools[0].function.name"]),
    ({"tools": {"a": 1}}, ["tools", "array"]),
    ({"grammar": 'root ::= "a" |\n  b'}, ["grammar", "line 2", "column 3", "b is not defined"]),
    ({"grammar": 'root ::= "a"', "tools": [TOOL]}, ["grammar", "tools"]),
    ({"json_schema": {"pattern": "a"}}, ["json_schema", "pattern at #/pattern"]),
    ({"json_schema": {}, "response_format": {"type": "json_object"}}, ["json_schema", "response_format"]),
    ({"json_schema": False}, ["json_schema", "false at #"]),
    ({"response_format": {"type": "json_object", "schema": {"items": {"minimum": 1}}}}, ["minimum at #/items/minimum"]),
    ({"response_format": {"type": "json_schema"}}, ["response_format.json_schema.schema"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, ["json_schema.schema", "missing"]),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://x/y"}}}},
        ["response_format", "$ref", "http://x/y", "#/$ref"],
    ),
    ({"response_format": {"type": "yaml"}}, ["yaml", "text", "json_object", "json_schema"]),
    ({"response_format": "json"}, ["response_format", "json"]),
    ({"response_format": {"type": "json_object"}, "grammar": "x"}, ["grammar", "response_format"]),
    ({"temperature": "hot"}, ['temperature: expected a number, got "hot"']),
    ({"temperature": True}, ["temperature", "true"]),
    ({"max_tokens": 1.5}, ["max_tokens", "1.5"]),
    ({"max_tokens": "many"}, ["max_tokens", "many"]),
    ({"max_tokens": [1]}, ["max_tokens", "[1]"]),
    ({"seed": 1 << 70}, ["seed"]),
    ({"seed": -1e308}, ["seed", "1e308"]),
    ({"max_tokens": 1e308}, ["max_tokens", "1e308", "9223372036854775807"]),
    ({"max_completion_tokens": 1 << 63}, ["max_completion_tokens", "9223372036854775808"]),
    ({"top_k": -1 << 64}, ["top_k", "-9223372036854775808"]),
    ({"repeat_last_n": 1 << 64}, ["repeat_last_n", "18446744073709551616"]),
    ({"repeat_last_n": 1e308}, ["repeat_last_n", "1e308"]),
    ({"repeat_penalty": 1e-320}, ["repeat_penalty", "1e-320"]),
    ({"logit_bias": {"x" * 65_537: 1}}, ["logit_bias", "65537", "65536"]),
    ({"seed": "x"}, ["seed", "x"]),
    ({"repeat_penalty": 0}, ["repeat_penalty", "0"]),
    ({"repeat_last_n": -2}, ["repeat_last_n", "-2"]),
    ({"stop": 5}, ["stop", "5"]),
    ({"stop": ["a", 5]}, ["stop[1]", "5"]),
    ({"stop": ["a"] * 1001}, ["stop", "1001", "1000"]),
    ({"stop": ["é" * 32_768, "b"]}, ["stop", "65537", "65536"]),
    ({"stream": "yes"}, ["stream", "yes"]),
    ({"stream_options": []}, ["stream_options"]),
    ({"logit_bias": {"-1": 1}}, ["logit_bias", "-1"]),
    ({"logit_bias": {"99999999": 1}}, ["logit_bias", "99999999"]),
    ({"logit_bias": {"1": "much"}}, ["logit_bias", "much"]),
    ({"logit_bias": {"1": 10**400}}, ["logit_bias", '"1"']),
    ({"logit_bias": 7}, ["logit_bias", "7"]),
    ({"logit_bias": [[1]]}, ["logit_bias"]),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, ["enable_thinking", "yes"]),
    ({"chat_template_kwargs": {"messages": []}}, ["chat_template_kwargs.messages"]),
    ({"chat_template_kwargs": {"self": 2}}, ["chat_template_kwargs.self"]),
    ({"chat_template_kwargs": {"tools": 2}}, ["chat_template_kwargs.tools"]),
    ({"chat_template_kwargs": {"bos_token": "x"}}, ["chat_template_kwargs.bos_token"]),
    (parts({"type": "video", "video": "x"}), ["messages[1].content[0]", "video"]),
    (parts({"type": "text"}), ["messages[1].content[0].text"]),
    (parts("loose"), ["messages[1].content[0]"]),
    (parts({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}), ["fetches nothing", "data:"]),
    (parts({"type": "image_url", "image_url": "HTTP://example.com/a.png"}), ["fetches nothing", "data:"]),
    (parts({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}), ["see", "-mmproj"]),
    (parts({"type": "input_audio", "input_audio": {"data": "AAAA"}}), ["hear", "-mmproj"]),
    ({"messages": [USER, {"role": "tool", "content": "4", "tool_call_id": "q"}]}, ["messages[1]", "tool_call_id", "q"]),
    ({"messages": [USER, {"role": "tool", "content": "4"}]}, ["messages[1]", "tool_call_id"]),
    ({"messages": [USER, CALLING, USER, RESULT]}, ["messages[3].tool_call_id", '"a"']),
    ({"messages": [USER, CALLING, RESULT, {"role": "tool", "content": "4"}]}, ["messages[3]", "tool_call_id"]),
    ({"messages": [USER, CALLING, RESULT | {"tool_call_id": "b"}]}, ["messages[2].tool_call_id", '"b"']),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]}, ["tools[0].function.parameters"]),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]},
        ["messages[0].tool_calls[0]", "arguments", "object"],
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
        ["messages[0].tool_calls[0]", "arguments", "JSON"],
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, ["messages[0].tool_calls[0]"]),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED, ids=[json.dumps(fields)[:60] for fields, _ in REFUSED])
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_cannot_be_answered_is_a_400_that_names_why(module_live, fields, named, stream) -> None:
    response = module_live.chat(**{"stream": stream, **fields})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert {"message", "param", "code"} <= set(error)
    for word in named:
        assert word in error["message"]
    assert module_live.engine.requests == [], "nothing refused reaches the engine"


def test_refusals_come_in_their_order(module_live) -> None:
    wrong: dict[str, Any] = {
        "messages": [{"role": "tool", "content": "x"}],
        "tool_choice": "required",
        "response_format": {"type": "yaml"},
        "n": 2,
    }
    for field in ("n", "response_format", "tool_choice", "messages"):
        assert module_live.chat(**wrong).json()["error"]["param"] == field
        wrong.pop(field)
    assert module_live.chat(messages=[], n=2).json()["error"]["param"] == "messages"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"hello",
        b"[]",
        b"null",
        b'"text"',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": -Infinity}',
        b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "unknown": "\xff"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\\udc00 x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}]} trailing',
        b'{"messages": [{"role": "user", "content": "x"}]',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "deep": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_odd_json_is_a_400_and_never_a_500(module_live, body) -> None:
    response = module_live.client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (gzip.compress(b"{}"), "it is compressed by gzip"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        ("{}".encode("utf-16"), "it is UTF-16 or UTF-32, and UTF-8 is read"),
    ],
)
def test_what_a_body_is_in_place_of_json_is_said(module_live, body, what) -> None:
    response = module_live.client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == f"the body is not JSON: {what}"


def test_a_text_in_another_encoding_is_refused(module_live) -> None:
    response = module_live.client.post("/v1/chat/completions", content='{"model": "é"}'.encode("latin-1"))
    assert response.status_code == 400
    assert re.match("the body is not JSON: .*utf-8", response.json()["error"]["message"], re.IGNORECASE)


def test_of_repeated_keys_the_last_counts(live) -> None:
    body = b'{"messages": [], "max_tokens": 1, "messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}'
    response = live.client.post("/v1/chat/completions", content=body)
    assert response.json()["choices"][0]["message"]["content"] == "us"


def test_a_prompt_longer_than_its_slot_is_refused_with_both_counts(start) -> None:
    live = start(context=64)
    for stream in (False, True):
        response = live.chat(messages=[{"role": "user", "content": "x" * 64}], stream=stream)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (69, 64)
        assert "69" in error["message"] and "64" in error["message"] and "-context" in error["message"]


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_cut_into_tokens_or_written(start, monkeypatch) -> None:
    live = start(context=64)
    tokenizer, template = live.server.chat.model.tokenizer, live.server.chat.template
    monkeypatch.setattr(tokenizer, "encode", lambda *args, **settings: pytest.fail("the text was cut"))
    error = live.chat(messages=[{"role": "user", "content": "x" * 1000}]).json()["error"]
    assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", 1005, 64)
    assert "at least 1005" in error["message"]
    written = len(template.calls)
    error = live.chat(messages=[USER] * 64).json()["error"]
    assert (error["code"], error["n_prompt_tokens"]) == ("context_length_exceeded", 64)
    assert len(template.calls) == written


def test_what_a_template_says_is_told_in_one_line(live, monkeypatch, printed) -> None:
    def render(messages: Any, **settings: Any) -> str:
        raise BadRequest("roles\n  must\r\nalternate\n", param="messages")

    monkeypatch.setattr(live.server.chat.template, "render", render)
    assert live.chat().json()["error"]["message"] == "roles must alternate"
    assert len(printed.lines()) == 1


def test_a_body_over_the_limit_is_a_413(start, monkeypatch) -> None:
    monkeypatch.setattr("golem_core.server.web.BODY_LIMIT", 1000)
    live = start()
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    for content in (body, (body[start : start + 100] for start in range(0, len(body), 100))):
        response = live.client.post("/v1/chat/completions", content=content)
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert "1000" in response.json()["error"]["message"]


@pytest.mark.parametrize("part", ["[],", '{"a":1},', '[{"a":[]}],'])
def test_a_body_of_a_million_arrays_objects_and_members_is_refused_without_being_read(monkeypatch, part) -> None:
    monkeypatch.setattr("golem_core.server.bodies.msgspec.json.decode", lambda body: pytest.fail("it was read"))
    body = b'{"messages": [' + part.encode() * 1_000_001 + b"1]}"
    with pytest.raises(BadRequest, match=r"it has [0-9]{7} arrays, objects and members; 1000000 at most are read"):
        read_body(body, ChatRequest)


def test_what_texts_say_counts_as_no_array_object_or_member() -> None:
    text = '[{:"\\ \\"' * 300_000
    request, _ = read_body(json.dumps({"model": text, "stop": [text], "seed": 4}).encode(), ChatRequest)
    assert request.stop == [text] and request.seed == 4


def test_a_body_of_many_megabytes_is_read(live) -> None:
    big = {"messages": [{"role": "user", "content": "hi"}], "padding": "x" * (20 << 20)}
    assert live.client.post("/v1/chat/completions", json=big).status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/v1/embeddings", "/v1/chat", "/v1/models/a/b"])
def test_an_unknown_path_is_a_404_in_openais_envelope(module_live, path) -> None:
    response = module_live.client.post(path, json={})
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"
    assert path in response.json()["error"]["message"]


def test_an_unknown_path_under_api_is_a_404_in_ollamas_envelope(module_live) -> None:
    response = module_live.client.get("/api/nothing")
    assert response.status_code == 404
    assert isinstance(response.json()["error"], str)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages"])
def test_endpoints_that_are_not_here_name_the_one_that_is(module_live, path) -> None:
    response = module_live.client.post(path, json={"prompt": "x"})
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"
    assert "/v1/chat/completions" in response.json()["error"]["message"]


def test_a_wrong_method_is_a_405_that_names_the_right_ones(module_live) -> None:
    response = module_live.client.get("/v1/chat/completions")
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "POST" in response.json()["error"]["message"]
    for path in ("/v1/models", "/v1/models/tiny-echo", "/api/tags"):
        refused = module_live.client.delete(path)
        assert refused.status_code == 405 and refused.headers["allow"] == "GET, HEAD, OPTIONS"
        assert "it takes GET, HEAD, OPTIONS" in refused.text


def test_head_has_the_headers_of_get_and_no_body(module_live) -> None:
    for path in ("/", "/health", "/v1/models"):
        response, full = module_live.client.head(path), module_live.client.get(path)
        assert response.status_code == 200
        assert response.content == b""
        assert response.headers["content-length"] == full.headers["content-length"] == str(len(full.content))
    assert module_live.client.head("/v1/chat/completions").status_code == 405
    assert module_live.client.get("/").text == "golem is running"
    assert module_live.client.get("/health").json() == {"status": "ok"}


def test_options_lists_the_methods(module_live) -> None:
    response = module_live.client.options("/v1/chat/completions")
    assert response.status_code == 204
    assert response.headers["allow"] == "OPTIONS, POST"
    assert "access-control-allow-origin" not in response.headers
    assert module_live.client.options("/v1/models").headers["allow"] == "GET, HEAD, OPTIONS"


def test_models_lists_the_one_model(module_live) -> None:
    body = module_live.client.get("/v1/models").json()
    assert body["object"] == "list"
    [model] = body["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("tiny-echo", "model", "golem")
    assert isinstance(model["created"], int)
    assert module_live.client.get("/v1/models/tiny-echo").json()["id"] == "tiny-echo"
    missing = module_live.client.get("/v1/models/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("app.localhost", 200),
        ("[::1]:8080", 200),
        ("192.168.1.4:80", 200),
        ("printer.local", 200),
        ("host.docker.internal:8080", 200),
        (socket.gethostname(), 200),
        ("", 403),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("notlocalhost", 403),
        ("evillocal", 403),
        ("127.0.0.1.evil.example", 403),
        ("8.8.8.8", 403),
        ("[::1]evil", 403),
        ("localhost:80@evil", 403),
    ],
)
def test_a_loopback_server_answers_local_names_only(module_live, host, status) -> None:
    reply = answer_to(module_live.port, "/v1/models", host)
    assert int(reply.split()[1]) == status
    if status == 403:
        assert b'"permission_error"' in reply


def answer_to(port: int, target: str, host: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        reply = b""
        while piece := connection.recv(65536):
            reply += piece
        return reply


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost:8080/v1/models/tiny-echo", "evil.example", 200),
        ("HTTP://LOCALHOST/v1/models/tiny%2Decho", "localhost", 200),
        ("https://127.0.0.1/v1/models/tiny-echo?a=http://b", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost?a=b", "localhost", 200),
        ("http://localhost//", "localhost", 200),
        ("http://localhost/v1/models/other", "localhost", 404),
        ("/http://localhost/v1/models", "localhost", 404),
        ("ftp://localhost/v1/models", "localhost", 404),
        ("http://evil.example/v1/models", "localhost", 403),
        ("http://localhost@evil.example/v1/models", "localhost", 403),
        ("http:///v1/models", "localhost", 403),
    ],
)
def test_a_request_for_a_whole_url_asks_its_host_for_its_path(module_live, target, host, status) -> None:
    reply = answer_to(module_live.port, target, host)
    assert int(reply.split()[1]) == status
    if "tiny" in target:
        assert reply.endswith(module_live.client.get("/v1/models/tiny-echo").content)


def test_a_server_for_every_interface_does_not_look_at_the_host(start) -> None:
    from golem_core.options import Address

    live = start(options={"addr": Address("", 0)})
    assert live.client.get("/v1/models", headers={"host": "my.example"}).status_code == 200


def test_keys_are_asked_for_where_they_are_set(start) -> None:
    live = start(options={"api-key": ("first", "second")})
    for path in ("/", "/health", "/v1/models", "/v1/models/tiny-echo"):
        assert live.client.get(path).status_code == 200
    body = {"messages": [USER]}
    for headers, status in [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic first"}, 401),
        ({"authorization": "Bearer first"}, 200),
        ({"authorization": "bearer second"}, 200),
        ({"x-api-key": "second"}, 200),
        ({"x-api-key": "secon"}, 401),
    ]:
        response = live.client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == status, headers
        if status == 401:
            assert response.json()["error"]["type"] == "authentication_error"
    assert live.client.get("/nothing").status_code == 401


def test_without_keys_any_key_is_welcome(module_live) -> None:
    assert module_live.client.get("/v1/models", headers={"authorization": "Bearer anything"}).status_code == 200
