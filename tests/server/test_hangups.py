"""A client that hangs up takes its request with it: queued, while its prompt is read, and while its answer is drawn."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest


def ask(live: Any, stream: bool, text: str = "hello") -> socket.socket:
    """Send a chat request and return the connection without reading the answer."""
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": stream}).encode()
    connection = socket.create_connection(("127.0.0.1", live.port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def until(condition: Any, within: float = 3.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


@pytest.mark.parametrize("stream", [False, True])
def test_while_the_answer_is_drawn(live, stream, printed) -> None:
    live.engine.token_delay = 0.05
    connection = ask(live, stream, "x" * 1000)
    assert until(lambda: live.engine.generations and live.engine.generations[0].drawn >= 2)
    connection.close()
    assert live.idle(1.0)
    assert live.engine.generations[0].finish_reason == "cancelled"
    assert live.engine.generations[0].drawn < 100
    printed.until("cancelled")


@pytest.mark.parametrize("stream", [False, True])
def test_while_the_prompt_is_read(live, stream, printed) -> None:
    live.engine.prompt_delay = 30
    connection = ask(live, stream)
    assert until(lambda: live.engine.active == 1)
    connection.close()
    assert live.idle(1.0)
    assert live.engine.generations[0].finish_reason == "cancelled"
    printed.until("cancelled")


@pytest.mark.parametrize("stream", [False, True])
def test_while_it_waits_for_a_slot(live, stream, printed) -> None:
    live.engine.prompt_delay = 0.5
    first = ask(live, stream=False)
    assert until(lambda: live.engine.active == 1)
    waiting = ask(live, stream)
    assert until(lambda: len(live.engine.generations) == 2)
    waiting.close()
    assert until(lambda: live.engine.generations[1].finish_reason == "cancelled", 0.4)
    assert live.engine.generations[1].slot is None
    assert live.engine.generations[0].finish_reason is None, "the running request is not disturbed"
    reply = b""
    while b"user:hello" not in reply:
        piece = first.recv(65536)
        assert piece
        reply += piece
    assert b" 200 " in reply
    first.close()
    assert live.idle()
    printed.until("cancelled while queued")


def test_the_next_request_is_answered_at_once(live) -> None:
    live.engine.token_delay = 0.05
    connection = ask(live, True, "x" * 1000)
    assert until(lambda: live.engine.generations and live.engine.generations[0].drawn >= 1)
    connection.close()
    live.engine.token_delay = 0
    start = time.monotonic()
    assert live.chat().status_code == 200
    assert time.monotonic() - start < 1


def test_a_stream_that_is_read_late_is_still_whole(live) -> None:
    live.server.chat.answer_budget = 4000
    connection = ask(live, True, "é" * 3000)
    time.sleep(0.3)
    reply = b""
    while b"[DONE]" not in reply:
        piece = connection.recv(65536)
        assert piece
        reply += piece
    connection.close()
    assert reply.count("é".encode()) == 3000
    assert live.idle()


def test_hanging_up_in_the_middle_of_the_body_leaves_nothing_behind(live, printed) -> None:
    connection = socket.create_connection(("127.0.0.1", live.port))
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    time.sleep(0.1)
    connection.close()
    assert live.chat().status_code == 200
    assert len(live.engine.generations) == 1
    assert " 500 " not in printed.until("POST /v1/chat/completions 499 ")
