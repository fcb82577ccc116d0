"""The extensions that the documentation shows and that examples/ holds, against services that a test plays."""

from __future__ import annotations

import io
import json
import queue
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from server_fakes import fake_chat

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extensions.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def paths(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "sdk"))
    for folder in (ROOT / "examples" / "extensions").iterdir():
        monkeypatch.syspath_prepend(str(folder))


class FakeTelegram:
    """The Bot API: `updates` are handed out until they are confirmed, `sent` gets the answers; the first poll fails."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.sent: queue.Queue[tuple[int, str]] = queue.Queue()
        self.paths: set[str] = set()
        self.fail = 1
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.paths.add(self.path)
                status, result = 200, fake.answer(self.path.rpartition("/")[2], body)
                if result is None:
                    status = 502
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps({"ok": status == 200, "result": result}).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, method: str, body: dict[str, Any]) -> Any:
        if method == "sendMessage":
            self.sent.put((body["chat_id"], body["text"]))
            return {"message_id": 1}
        if self.fail:
            self.fail -= 1
            return None
        self.updates = [each for each in self.updates if each["update_id"] >= body["offset"]]
        if not self.updates:
            threading.Event().wait(0.02)
        return self.updates


def test_a_telegram_bot_talks_to_the_served_model(start, monkeypatch) -> None:
    from golem import Client
    from golem_telegram import Telegram

    live = start(chat=fake_chat(context=1 << 20, answer_budget=6000))
    telegram = FakeTelegram()
    monkeypatch.setenv("TELEGRAM_TOKEN", "77:secret")
    monkeypatch.setenv("TELEGRAM_API", telegram.url)
    monkeypatch.setenv("TELEGRAM_CHATS", "-100, 5")
    channel, stop = Telegram(), threading.Event()
    channel.id = "telegram"
    thread = threading.Thread(target=channel.run, args=(Client(live.url, live.hub.token), stop), daemon=True)
    monkeypatch.setattr(stop, "wait", lambda seconds: None)
    thread.start()
    telegram.updates = [
        {"update_id": 1, "message": {"chat": {"id": -100}, "text": "hello"}},
        {"update_id": 2, "message": {"chat": {"id": 9}, "text": "a stranger"}},
        {"update_id": 3, "message": {"chat": {"id": -100}, "photo": []}},
        {"update_id": 4, "edited_message": {}},
        {"update_id": 5, "message": {"chat": {"id": 5}, "text": "x" * 5000}},
    ]
    answers = [telegram.sent.get(timeout=20) for _ in range(3)]
    assert [text for chat, text in answers if chat == -100] == ["user:hello"]
    assert [text for chat, text in answers if chat == 5] == ["user:" + "x" * 4091, "x" * 909]
    listed = live.client.get("/v1/conversations?channel=telegram").json()["conversations"]
    assert {each["id"] for each in listed} == {"telegram:-100", "telegram:5"}
    assert telegram.paths == {"/bot77:secret/getUpdates", "/bot77:secret/sendMessage"}
    stop.set()
    thread.join(10)
    telegram.http.shutdown()
    assert telegram.sent.empty() and not thread.is_alive()


def test_a_provider_passes_calls_on_to_a_server_with_openais_api(start, monkeypatch) -> None:
    from golem import FunctionCall, JSONSchema, Message, ToolCall, UnsupportedFormat
    from golem_openai import OpenAI

    live = start(chat=fake_chat())
    monkeypatch.setenv("OPENAI_BASE_URL", f"{live.url}/v1")
    call = ToolCall("c", FunctionCall("roll", "{}"))
    history = [Message("user", "hi"), Message("assistant", tool_calls=[call]), Message("tool", "6", tool_call_id="c")]
    assert OpenAI().chat("m", history) == Message("assistant", "user:hi|assistant:|tool:6")
    with pytest.raises(UnsupportedFormat, match="response_format"):
        OpenAI().chat_structured("m", history[:1], JSONSchema("x", {"type": "nonsense"}))


def test_the_examples_of_the_documentation_run(start, monkeypatch, tmp_path) -> None:
    blocks = dict(re.findall(r"^```python\n\"\"\"(\w+\.py): .*?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    (tmp_path / "golem_lines.py").write_text(blocks["golem_lines.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    live = start(chat=fake_chat())
    monkeypatch.setenv("GOLEM_URL", live.url)
    monkeypatch.setenv("GOLEM_TOKEN", live.hub.token)
    from golem import Client
    from golem_lines import Lines

    channel, stop = Lines(), threading.Event()
    channel.id = "lines"
    monkeypatch.setattr(sys, "stdout", said := io.StringIO())
    thread = threading.Thread(target=channel.run, args=(Client.from_env(), stop), daemon=True)
    thread.start()
    end = time.monotonic() + 10
    while "\n" not in said.getvalue() and time.monotonic() < end:
        with (tmp_path / "lines.txt").open("a") as file:
            file.write("hello\n")  # not read if the channel hasn't opened the file yet
        time.sleep(0.5)
    stop.set()
    thread.join(10)
    assert set(said.getvalue().splitlines()) == {"user:hello"}
    sys.modules.pop("golem_lines")
