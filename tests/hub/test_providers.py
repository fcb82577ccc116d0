"""Structured answers and embeddings."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from golem_core.hub.agent import repaired, title_of
from golem_core.hub.callbacks import Callbacks
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.local import Local
from golem_core.hub.messages import FunctionCall, Message, ToolCall
from golem_core.hub.providers import ModelRef, Providers, json_in
from golem_core.hub.registry import Registration, Registry

MODEL = ModelRef("p", "m")
SCHEMA = {"type": "object"}
ASK = [Message("user", "extract")]


@pytest.fixture
def providers():
    return Providers(Registry(), Callbacks("t", 5), Local(None, print))


def register(providers, extension, **able) -> None:
    body = {"name": extension.name, "callback_url": extension.url, "providers": [{"id": "p", **able}]}
    providers.registry.register(body)


def test_a_structured_answer_is_the_data(providers, extension) -> None:
    found = extension(answers={"/v1/chat/structured": {"data": {"a": 1}}})
    register(providers, found, structured=True)
    assert providers.structured(MODEL, ASK, "memories", SCHEMA) == {"a": 1}
    assert found.calls[0][1] == {
        "model": "m",
        "messages": [{"role": "user", "content": "extract"}],
        "schema": {"name": "memories", "strict": True, "schema": SCHEMA},
    }


def test_an_unsupported_format_falls_back_to_plain_chat(providers, extension) -> None:
    refused = (422, {"error": {"code": "unsupported_format", "message": "no json schema"}})
    plain = {"content": 'Here:\n```json\n{"a": 2}\n```\nDone.'}
    found = extension(answers={"/v1/chat/structured": refused, "/v1/chat": plain})
    register(providers, found, structured=True)
    assert providers.structured(MODEL, ASK, "x", SCHEMA) == {"a": 2}
    assert [path for path, _, _ in found.calls] == ["/v1/chat/structured", "/v1/chat"]
    assert "tools" not in found.calls[1][1]


def test_other_errors_do_not_fall_back(providers, extension) -> None:
    found = extension(answers={"/v1/chat/structured": (400, {"error": {"code": "odd", "message": "no"}})})
    register(providers, found, structured=True)
    with pytest.raises(CallbackFailed, match="echo-ext: no"):
        providers.structured(MODEL, ASK, "x", SCHEMA)
    found.answers["/v1/chat/structured"] = {"data": None}
    with pytest.raises(CallbackFailed, match="no data"):
        providers.structured(MODEL, ASK, "x", SCHEMA)
    assert len(found.calls) == 2


@pytest.mark.parametrize(
    ("answer", "gone", "why"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n", True, "not a JSON object"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"content": "ha', True, "not a JSON object"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{"content": "ha', True, "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhaha", False, "not a JSON object"),
        (b"HTTP/1.0 200 OK\r\n\r\n[1]", False, "not a JSON object"),
    ],
)
def test_an_extension_that_ends_within_its_answer_went_away_during_the_call(answer, gone, why) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as opened:
                asked = b""
                while not asked.endswith(b"{}"):
                    asked += opened.recv(1 << 16)
                opened.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        called = Registration("p", f"http://127.0.0.1:{server.getsockname()[1]}", 1)
        with pytest.raises(CallbackFailed, match=why) as failed:
            Callbacks("", 5).post(called, ("v1", "chat"), {})
        thread.join()
    assert failed.value.unheard == gone


def test_a_provider_without_structured_answers_is_asked_in_plain_chat_at_once(providers, extension) -> None:
    found = extension(answers={"/v1/chat": {"content": "[1, 2]"}})
    register(providers, found, chat=True)
    assert providers.structured(MODEL, ASK, "x", SCHEMA) == [1, 2]
    assert [path for path, _, _ in found.calls] == ["/v1/chat"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ('Sure! {"a": 1} there.', {"a": 1}),
        ("```\n[]\n```", []),
        ("see [this]: [1]", [1]),
        ("7", 7),
    ],
)
def test_json_is_found_in_what_a_model_writes(text, value) -> None:
    assert json_in(text) == value


def test_a_text_without_json_is_a_failure() -> None:
    with pytest.raises(CallbackFailed, match="no JSON"):
        json_in("I can't.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"vectors": [[1.0]]}, "1 vectors came back for 2 texts"),
        ({"vectors": None}, "vectors"),
        ({}, "vectors"),
        ({"vectors": [["x"], [1]]}, "vectors"),
    ],
)
def test_vectors_must_be_as_many_as_the_texts(providers, extension, answer, reason) -> None:
    found = extension(answers={"/v1/embed": answer})
    register(providers, found, embed=True)
    with pytest.raises(CallbackFailed, match=reason):
        providers.embed(MODEL, ["a", "b"])
    found.answers["/v1/embed"] = {"vectors": [[1, 0.5], [2, 3]]}
    assert providers.embed(MODEL, ["a", "b"]) == [[1, 0.5], [2, 3]]
    with pytest.raises(CallbackFailed, match='provider "p" does not support chat'):
        providers.chat(MODEL, ASK)


def test_what_cannot_be_embedded_is_told(providers, extension) -> None:
    register(providers, extension(), chat=True)
    with pytest.raises(CallbackFailed, match='provider "p" does not support embedding'):
        providers.embed(MODEL, ["a"])
    with pytest.raises(CallbackFailed, match='unknown provider "q"'):
        providers.embed(ModelRef("q", ""), ["a"])


def test_a_conversation_is_named_by_the_fast_model(start, extension) -> None:
    conf = {"default_model": {"provider": "p", "model": "m"}, "fast_model": {"provider": "p", "model": "fast"}}
    live = start(conf=conf | {"memory": {}})
    name = lambda body: {"content": '"Bees at home"\n' if body["model"] == "fast" else "yes"}
    live.register(extension(answers={"/v1/chat": name}), providers=[{"id": "p", "chat": True}])
    assert live.say("I keep bees.") == ("done", {"text": "yes"})
    until = time.monotonic() + 10
    while time.monotonic() < until and live.hub.store.conversation("c").title != "Bees at home":
        time.sleep(0.01)
    assert live.hub.store.conversation("c").title == "Bees at home"


def test_calls_without_a_result_are_answered_where_they_stand() -> None:
    calls = [ToolCall(FunctionCall("x"), name) for name in ("a", "b")]
    result = Message("tool", "1", tool_call_id="a")
    lost = Message("tool", "error: interrupted", tool_call_id="b")
    asked, user = Message("assistant", tool_calls=calls), Message("user", "go on")
    assert repaired([user, asked, result]) == ([user, asked, result, lost], [lost])
    assert repaired([asked, result, user]) == ([asked, result, lost, user], [])
    assert repaired([user]) == ([user], [])


def test_a_title_is_a_line_without_quotes() -> None:
    assert title_of("\n  “Hello”\nmore") == "Hello"
    assert title_of("x" * 90) == "x" * 80
    assert title_of('"a" and "b"') == 'a" and "b'
