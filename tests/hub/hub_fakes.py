"""A live server with its hub, extensions that a test scripts, and a clock that a test sets."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from golem_core.hub import hub as hubs
from golem_core.server.app import Server

TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Live:
    """A running server with its hub; `client` sends the token."""

    url: str
    server: Server
    hub: hubs.Hub
    client: httpx.Client
    stop: Callable[[], None]

    def register(self, extension: Extension, **fields: Any) -> httpx.Response:
        body = {"name": extension.name, "callback_url": extension.url, **fields}
        return self.client.post("/v1/extensions/register", json=body)

    def post(self, text: str, conversation: str = "c", channel: str = "test") -> str:
        answer = self.client.post(f"/v1/conversations/{conversation}/turns", json={"channel": channel, "text": text})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def events(self, turn: str) -> list[tuple[str, dict[str, Any]]]:
        """The whole stream of a turn."""
        with self.client.stream("GET", f"/v1/turns/{turn}") as answer:
            assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache"
            frames = [each for each in "".join(answer.iter_text()).split("\n\n") if each and each[0] != ":"]
        events = []
        for frame in frames:
            name, data = frame.split("\n")
            events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return events

    def say(self, text: str, conversation: str = "c") -> tuple[str, dict[str, Any]]:
        """The last event of a turn."""
        return self.events(self.post(text, conversation))[-1]


@dataclass
class Extension:
    """An extension in this process: `answers` has a function of the body for each path, or what it would return.

    A result is (status, object), or an object alone.
    """

    name: str
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        extension = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                extension.calls.append((self.path, body, dict(self.headers)))
                found = extension.answers.get(self.path, (404, {"error": {"message": "not found"}}))
                found = found(body) if callable(found) else found
                status, answer = found if isinstance(found, tuple) else (200, found)
                sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(sent)

            def log_message(self, *args: Any) -> None:
                pass

        class Callbacks(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a test that has the hub hang up

        self.http = Callbacks(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def echo(body: dict[str, Any]) -> dict[str, Any]:
    """A provider's answer: the last text again."""
    return {"role": "assistant", "content": f"echo: {body['messages'][-1]['content']}"}


CHATS = [{"id": "echo", "chat": True}]
"""The providers of an extension that chats."""


def calling(name: str, *arguments: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A provider's answer: first these calls of a tool, and then the results."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if results:
            return {"role": "assistant", "content": " ".join(results)}
        calls = [
            {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": each}}
            for index, each in enumerate(arguments)
        ]
        return {"role": "assistant", "tool_calls": calls}

    return answer


def roll(**fields: Any) -> dict[str, Any]:
    """The tool `roll`, as an extension registers it."""
    return {"name": "roll", "description": "roll dice", "parameters": {"type": "object"}, **fields}
