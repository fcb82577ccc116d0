"""Who answers a turn, and what its poster is told where nobody does."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from hub_fakes import CHATS, echo

from golem_core.hub import callbacks


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": {"message": "no credit"}}, "echo-ext: no credit"),
        ((500, {"error": {"code": "broken", "message": "oh"}}), "echo-ext: oh"),
        ((400, {"error": {"code": "unsupported_format"}}), "echo-ext: unsupported_format"),
        ((503, b"busy"), "echo-ext: unexpected status 503"),
        ((302, {}), "echo-ext: unexpected status 302"),
        (b"[]", "echo-ext: the answer is not a JSON object"),
        (b"", "echo-ext: the answer is not a JSON object"),
        (
            {"role": "assistant", "content": 7},
            "echo-ext: the answer is not a message: Expected `str`, got `int` - at `$.content`",
        ),
    ],
)
def test_a_provider_that_fails_ends_the_turn_and_not_the_conversation(live, extension, answer, reason) -> None:
    provider = extension(answers={"/v1/chat": answer})
    live.register(provider, providers=CHATS)
    assert live.say("hello") == ("error", {"error": reason})
    provider.answers["/v1/chat"] = lambda body: {"role": "assistant", "content": str(len(body["messages"]))}
    assert live.say("again") == ("done", {"text": "3"}), "the error is a message of the conversation"


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        (b'{"content": "a\\ud83d"}', ("done", {"text": "a\ufffd"})),
        (b'{"content": "a\xed\xa0\x80"}', ("error", {"error": "echo-ext: the answer is not a JSON object"})),
        (b'{"error": {"message": "a\\ud83d"}}', ("error", {"error": "echo-ext: a\ufffd"})),
        (b'{"content": "\\ud83d\\ude00 \\u0000"}', ("done", {"text": "😀 \0"})),
    ],
)
def test_half_of_a_surrogate_pair_is_no_character(live, extension, answer, last) -> None:
    live.register(extension(answers={"/v1/chat": answer}), providers=CHATS)
    assert live.say("hello") == last
    assert not live.hub.store.waiting()


def test_an_unknown_provider_and_one_that_cannot_chat_are_told_by_name(live, extension) -> None:
    assert live.say("x") == ("error", {"error": 'unknown provider "echo"'})
    live.register(extension(), providers=[{"id": "echo", "embed": True}])
    assert live.say("x") == ("error", {"error": 'provider "echo" does not support chat'})


def test_a_provider_that_only_has_structured_answers_counts_as_one_that_chats(live, extension) -> None:
    live.register(
        extension(answers={"/v1/chat": echo}), capabilities=[{"kind": "provider", "id": "echo", "structured": True}]
    )
    assert live.say("x") == ("done", {"text": "echo: x"})


def test_a_provider_that_hangs_is_given_up_and_others_do_not_notice(start, extension) -> None:
    release = threading.Event()
    conf = {"default_model": {"provider": "echo", "model": "m"}}
    live = start(conf=conf, prepare=lambda hub: setattr(hub.callbacks, "timeout", 0.5))

    def hang(body):
        if body["messages"][-1]["content"] == "hang":
            release.wait(10)
        return echo(body)

    live.register(extension(answers={"/v1/chat": hang}), providers=CHATS)
    hanging = live.post("hang", "one")
    assert live.say("hello", "two") == ("done", {"text": "echo: hello"})
    assert live.events(hanging) == [("error", {"error": "echo-ext: no answer within 0.5 s"})]
    release.set()


def test_an_answer_that_drips_is_given_up_too(start) -> None:
    live = start(
        conf={"default_model": {"provider": "drip", "model": "m"}},
        prepare=lambda hub: setattr(hub.callbacks, "timeout", 0.6),
    )
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.1)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    body = {"name": "drip", "callback_url": url, "providers": [{"id": "drip", "chat": True}]}
    live.client.post("/v1/extensions/register", json=body)
    began = time.monotonic()
    assert live.say("x") == ("error", {"error": "drip: no answer within 0.6 s"})
    assert time.monotonic() - began < 3
    listener.close()


def test_an_answer_that_is_too_large_is_refused(live, extension, monkeypatch) -> None:
    monkeypatch.setattr(callbacks, "ANSWER_LIMIT", 1000)
    live.register(extension(answers={"/v1/chat": {"content": "x" * 1000}}), providers=CHATS)
    assert live.say("x") == ("error", {"error": "echo-ext: the answer is larger than 1000 bytes"})


def test_a_closed_port_is_told(live, extension) -> None:
    gone = extension("gone")
    live.register(gone, providers=CHATS)
    gone.close()
    assert live.say("x") == ("error", {"error": "gone: nothing listens at its callback_url"})
    assert live.hub.registry.provider("echo"), "a failing provider stays registered"


def test_localhost_is_either_loopback_address_of_this_machine(live) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{"content": "six"}')

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://localhost:{listener.getsockname()[1]}"
        live.client.post("/v1/extensions/register", json={"name": "x", "callback_url": url, "providers": CHATS})
        assert live.say("hello") == ("done", {"text": "six"})


def test_a_provider_that_died_during_a_call_is_waited_for(live, extension) -> None:
    first = extension("echo-ext")
    first.close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        live.register(first, providers=CHATS)
        turn = live.post("hello")
        connection, _ = listener.accept()
        connection.recv(100)
        connection.close()
    live.hub.registry.drop("echo-ext")
    time.sleep(0.3)
    live.register(extension("echo-ext", {"/v1/chat": echo}), providers=CHATS)
    assert live.events(turn) == [("done", {"text": "echo: hello"})]
