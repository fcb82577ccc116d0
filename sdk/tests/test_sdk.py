"""The SDK against a server that a test scripts, and its callbacks as the server makes them."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from golem import Channel, Client, Extension, FunctionCall, GolemError, Message, Provider, ToolCall
from golem.tools import tools_of

SDK = Path(__file__).resolve().parents[1]

Answer = Callable[[str, str, Any], tuple[int, bytes]]


class Hub:
    """A server of which a test says what it answers; `asked` has (method, path, body, headers)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.answer: Answer = lambda method, path, body: (200, b'{"ok": true}')
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                hub.asked.append((self.command, self.path, body, dict(self.headers)))
                status, content = hub.answer(self.command, self.path, body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.http.shutdown()
    made.http.server_close()


def until(condition: Callable[[], Any], within: float = 10.0) -> Any:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


# ---------------------------------------------------------------- the client


def test_requests_carry_token_and_type_and_go_round_proxies(hub, monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    hub.answer = lambda method, path, body: (202, b'{"id": "t1"}')
    assert Client(hub.url + "/", "secret").post_turn("telegram:-100/7 ü", "telegram", "hi") == "t1"
    method, path, body, headers = hub.asked[0]
    assert (method, path) == ("POST", "/v1/conversations/telegram%3A-100%2F7%20%C3%BC/turns")
    assert body == {"channel": "telegram", "text": "hi"}
    assert headers["Authorization"] == "Bearer secret" and headers["Content-Type"] == "application/json"


def test_a_refusal_has_message_and_status(hub) -> None:
    hub.answer = lambda method, path, body: (404, b'{"error": "extension not found"}')
    with pytest.raises(GolemError, match="extension not found") as refused:
        Client(hub.url).heartbeat("x")
    assert refused.value.status == 404
    for url in ("http://127.0.0.1:9", "here", "http://[::1"):
        with pytest.raises(GolemError, match="cannot be reached"):
            Client(url).health()


STREAM = (
    b': ping\n\nevent: log\r\ndata: {"line":\r\ndata: "x"}\r\n\r\nid: 7\nevent: other\ndata: {}\n\n'
    b'event: done\ndata: {"text":"caf\xc3\xa9"}\n\nevent: log\ndata: {}\n\n'
)


def test_a_stream_ends_after_the_last_event(hub) -> None:
    hub.answer = lambda method, path, body: (200, STREAM)
    events = list(Client(hub.url).stream_turn("t/1"))
    assert [(event.name, event.data) for event in events] == [
        ("log", {"line": "x"}),
        ("other", {}),
        ("done", {"text": "café"}),
    ]
    assert hub.asked[0][1] == "/v1/turns/t%2F1"


@pytest.mark.parametrize(
    "stream", [b"", b"event: log\ndata: {}\n\n", b"event: done\ndata: [1]\n\n", b"event: done\ndata: {\n\n"]
)
def test_a_stream_without_an_answer_is_an_error(hub, stream) -> None:
    hub.answer = lambda method, path, body: (200, stream)
    with pytest.raises(GolemError):
        list(Client(hub.url).stream_turn("t"))


def test_send_returns_the_answer_or_raises_its_error(hub) -> None:
    streams = [STREAM, b'event: error\ndata: {"error":"no credit"}\n\n']
    hub.answer = lambda method, path, body: (202, b'{"id": "t"}') if method == "POST" else (200, streams.pop(0))
    assert Client(hub.url).send("c", "x", "hi") == "café"
    with pytest.raises(GolemError, match="no credit"):
        Client(hub.url).send("c", "x", "hi")


def test_it_waits_for_the_server(hub) -> None:
    answers = [(503, b"{}"), (200, b'{"ok": true}')]
    hub.answer = lambda method, path, body: answers.pop(0)
    Client(hub.url).wait_ready(5)
    with pytest.raises(GolemError, match=r"did not answer within 0\.1 s"):
        Client("http://127.0.0.1:9").wait_ready(0.1)


def test_both_forms_of_a_registration(hub) -> None:
    client = Client(hub.url)
    client.register("x", "http://127.0.0.1:1", [{"kind": "clock"}])
    client.register("x", "http://127.0.0.1:1", providers=[{"id": "p", "chat": True}])
    base = {"name": "x", "callback_url": "http://127.0.0.1:1"}
    assert [asked[2] for asked in hub.asked] == [
        base | {"capabilities": [{"kind": "clock"}]},
        base | {"providers": [{"id": "p", "chat": True}]},
    ]


def test_messages_travel_without_empty_fields() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "roll", "arguments": '{"n":6}'}}
    message = Message("assistant", tool_calls=[ToolCall("c1", FunctionCall("roll", '{"n":6}'))])
    assert message.to_dict() == {"role": "assistant", "tool_calls": [call]}
    assert Message.from_dict(message.to_dict() | {"content": None}) == message
    assert Message("tool", "6", tool_call_id="c1").to_dict() == {"role": "tool", "content": "6", "tool_call_id": "c1"}


# ---------------------------------------------------------------- the callbacks


class Brain(Provider):
    def chat(self, model, messages, tools=None):
        if messages[-1].content == "fail":
            raise RuntimeError("no thought")
        return Message("assistant", f"{model}:{messages[-1].content}:{[tool.name for tool in tools or []]}")

    def chat_structured(self, model, messages, schema):
        if schema.name == "odd":
            return super().chat_structured(model, messages, schema)
        return {"named": schema.name}


def roll(sides: int, label: str = "d") -> dict[str, Any]:
    """Roll a die.

    And more about it.
    """
    return {label: sides}


@pytest.fixture
def running(hub) -> Iterator[Extension]:
    extension = Extension("brain", hub.url, "secret", heartbeat_interval=0.05, provider=("b", Brain()), tools=roll)
    stop = threading.Event()
    thread = threading.Thread(target=extension.run, args=(stop,))
    thread.start()
    until(lambda: hub.asked)
    yield extension
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def call(extension: Extension, path: str, body: Any, token: str = "secret", method: str = "POST") -> tuple[int, Any]:
    host, port = extension._server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), port, timeout=10)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, content, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


USER = [{"role": "user", "content": "hi"}]


def test_what_is_overridden_is_announced(running, hub) -> None:
    body = hub.asked[0][2]
    assert body["name"] == "brain" and body["callback_url"].startswith("http://127.0.0.1:")
    assert body["providers"] == [{"id": "b", "chat": True, "structured": True}]
    properties = {"sides": {"type": "integer"}, "label": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["sides"]}
    assert body["tools"] == [{"name": "roll", "description": "Roll a die.", "parameters": schema}]


def test_calls_are_answered_as_the_protocol_says(running) -> None:
    tool = {"name": "t", "description": "", "parameters": {"type": "object"}}
    assert call(running, "/v1/chat", {"model": "m", "messages": USER, "tools": [tool]}) == (
        200,
        {"role": "assistant", "content": "m:hi:['t']"},
    )
    structured = {"model": "m", "messages": USER, "schema": {"name": "s", "strict": True, "schema": {}}}
    assert call(running, "/v1/chat/structured", structured) == (200, {"data": {"named": "s"}})
    status, answer = call(running, "/v1/chat/structured", structured | {"schema": {"name": "odd", "schema": {}}})
    assert status == 400 and answer["error"]["code"] == "unsupported_format"
    assert call(running, "/v1/tools/roll", {"sides": 6}) == (200, {"result": '{"d": 6}'})


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/chat", b"{", 400, "invalid JSON"),
        ("/v1/chat", [], 400, "invalid JSON"),
        ("/v1/chat", {"messages": [{"role": "user", "content": "fail"}]}, 500, "no thought"),
        ("/v1/embed", {"texts": ["x"]}, 404, "not found"),
        ("/v1/elsewhere", {}, 404, "not found"),
        ("/v1/tools/none", {}, 404, "not found"),
    ],
)
def test_calls_that_cannot_be_answered(running, path, body, status, message) -> None:
    assert call(running, path, body) == (status, {"error": {"message": message}})


def test_only_the_server_may_call(running) -> None:
    assert call(running, "/v1/chat", {"messages": USER}, token="wrong") == (401, {"error": {"message": "unauthorized"}})
    assert call(running, "/v1/chat", {}, method="GET")[0] == 404


def test_texts_must_be_a_list(hub) -> None:
    class Embeds(Provider):
        def embed(self, model, texts):
            return [[float(len(text))] for text in texts]

    extension = Extension("e", hub.url, provider=("e", Embeds()))
    threading.Thread(target=extension._server.serve_forever, daemon=True).start()
    assert call(extension, "/v1/embed", {"texts": "x"}) == (400, {"error": {"message": "texts must be a list"}})
    assert call(extension, "/v1/embed", {"texts": ["a", "bc"]}) == (200, {"vectors": [[1.0], [2.0]]})
    extension._server.shutdown()
    extension._server.server_close()


def test_heartbeats_go_on_during_a_long_call_and_a_forgotten_extension_registers_again(hub) -> None:
    entered, release = threading.Event(), threading.Event()

    class Slow(Provider):
        def chat(self, model, messages, tools=None):
            entered.set()
            release.wait(10)
            return Message("assistant", "late")

    extension = Extension("slow", hub.url, heartbeat_interval=0.05, provider=("s", Slow()))
    stop = threading.Event()
    thread = threading.Thread(target=extension.run, args=(stop,))
    thread.start()
    until(lambda: hub.asked)
    calling = threading.Thread(target=call, args=(extension, "/v1/chat", {"messages": USER}))
    calling.start()
    assert entered.wait(5)
    count = len(hub.asked)
    until(lambda: len(hub.asked) > count + 3)
    assert {asked[1] for asked in hub.asked[count:]} == {"/v1/extensions/heartbeat"}
    lost = [(404, b'{"error": "extension not found"}')]
    hub.answer = lambda method, path, body: lost.pop() if lost else (200, b'{"ok": true}')
    until(lambda: sum(asked[1].endswith("register") for asked in hub.asked) == 2)
    release.set()
    calling.join(5)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()


def test_a_channel_that_fails_ends_the_extension(hub) -> None:
    class Broken(Channel):
        id = "broken"

        def run(self, client, stop):
            raise RuntimeError("no line")

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(RuntimeError, match="no line"):
        Extension("x", hub.url, channel=Broken()).run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert hub.asked[0][2]["channels"] == [{"id": "broken"}]


# ---------------------------------------------------------------- tools and the command line


async def coroutine() -> None: ...
def star(*args: int) -> None: ...
def stars(**kwargs: int) -> None: ...
def untyped(x) -> None: ...
def listing(x: list) -> None: ...
def positional(x: int, /) -> None: ...


@pytest.mark.parametrize("function", [coroutine, star, stars, untyped, listing, positional])
def test_functions_that_cannot_be_declared_are_refused_by_name(function) -> None:
    with pytest.raises(ValueError, match=f"tool {function.__name__}: "):
        tools_of([function])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name is required"),
        (["--name", "x"], "pass --provider, --channel, or --tools"),
        (["--name", "x", "--provider", "p"], "invalid provider"),
        (["--name", "x", "--provider", "p=module"], "invalid entrypoint"),
        (["--name", "x", "--tools", "json:roll"], "json has no roll, which the entrypoint 'json:roll' names"),
        (["--name", "x", "--name", "y"], "name already set"),
        (["--nom", "x"], "unknown argument"),
    ],
)
def test_mistakes_on_the_command_line(arguments, message) -> None:
    done = subprocess.run([sys.executable, "-m", "golem", *arguments], cwd=SDK, capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr


def test_it_needs_only_the_standard_library() -> None:
    code = f"import sys; sys.path.insert(0, {str(SDK)!r}); import golem, golem.__main__; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "golem.extension" in done.stdout, done.stderr
