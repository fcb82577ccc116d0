"""A live server on a port of its own for each test: the real HTTP stack over the fake engine."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(0, str(Path(__file__).parent))

from server_fakes import FakeEngine, fake_chat

from golem_core.options import CORE_OPTIONS, Address
from golem_core.server.app import Server, listen
from golem_core.server.web import Runner, application

LOCAL = Address("127.0.0.1", 0)


@dataclass
class Live:
    url: str
    port: int
    server: Server
    engine: FakeEngine
    client: httpx.Client

    def chat(self, **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "hello"}], **fields}
        return self.client.post("/v1/chat/completions", json=body)

    def idle(self, within: float = 2.0) -> bool:
        """Whether every slot is free again within so many seconds."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.engine.active == 0 and all(each.finish_reason for each in self.engine.generations):
                return True
            time.sleep(0.005)
        return False


def servers() -> Iterator[Callable[..., Live]]:
    """A function that starts servers, which all stop when this is done."""
    stops: list[Callable[[], None]] = []

    def launch(
        options: dict[str, Any] | None = None, prepare: Callable[[Server], None] | None = None, **settings: Any
    ) -> Live:
        values = {option.name: option.default for option in CORE_OPTIONS} | {"addr": LOCAL} | (options or {})
        chat = fake_chat(**settings)
        server = Server(chat.name, values, chat)
        if prepare:
            prepare(server)
        bound = listen(LOCAL)
        port = bound.getsockname()[1]
        runner = Runner(application(server), bound)
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

        def stop() -> None:
            client.close()
            runner.should_exit = True
            thread.join(15)
            assert not thread.is_alive()

        stops.append(stop)
        while not runner.started:
            time.sleep(0.001)
        return Live(f"http://127.0.0.1:{port}", port, server, chat.engine, client)  # type: ignore[arg-type]

    yield launch
    for stop in stops:
        stop()


@pytest.fixture
def start() -> Iterator[Callable[..., Live]]:
    """Start a server: start(slots=…, context=…, options={…})."""
    yield from servers()


@pytest.fixture(scope="module")
def module_start() -> Iterator[Callable[..., Live]]:
    """The same for servers that stay for a whole module."""
    yield from servers()


@pytest.fixture(scope="module")
def module_live() -> Iterator[Live]:
    """One server for a whole module of requests that leave nothing behind."""
    for launch in servers():
        yield launch()


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    return start()
