"""A live server with a hub in a folder of its own, and extensions that a test scripts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from hub_fakes import BEARER, TOKEN, Extension, Live

from golem_core.hub import hub as hubs
from golem_core.options import CORE_OPTIONS, Address
from golem_core.server.app import Server, listen, local_url
from golem_core.server.web import Runner, application


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Live]]:
    """Start a server: start(chat=…, options={…}, conf={…}, parts={…}, prepare=function of the hub)."""
    stops: list[Callable[[], None]] = []
    home = tmp_path / "home"
    monkeypatch.setenv("GOLEM_HOME", str(home))

    def launch(
        *,
        chat: Any = None,
        options: dict[str, Any] | None = None,
        conf: dict[str, Any] | None = None,
        parts: dict[str, Any] | None = None,
        prepare: Callable[[hubs.Hub], None] = lambda hub: None,
    ) -> Live:
        values = {option.name: option.default for option in CORE_OPTIONS}
        values |= {"addr": Address("127.0.0.1", 0), "token": TOKEN} | (options or {})
        if conf is not None:
            home.mkdir(exist_ok=True)
            (home / "conf.json").write_text(json.dumps(conf))
        made: list[hubs.Hub] = []
        hub_of = hubs.hub_of
        monkeypatch.setattr(hubs, "hub_of", lambda server: made.append(hub_of(server)) or made[-1])
        server = Server("test", values, chat, parts or {})
        bound = listen(values["addr"])
        app = application(server)
        monkeypatch.setattr(hubs, "hub_of", hub_of)
        prepare(made[0])
        url = local_url(values["addr"], bound)
        for begin in server.starting:
            begin(url)
        runner = Runner(app, bound, server.stopping)
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        client = httpx.Client(base_url=url, timeout=20, headers=BEARER)

        def stop() -> None:
            if stop not in stops:
                return
            stops.remove(stop)
            runner.should_exit = True
            thread.join(15)
            client.close()
            server.close()
            assert not thread.is_alive()

        stops.append(stop)
        while not runner.started:
            time.sleep(0.001)
        return Live(url, server, made[0], client, stop)

    yield launch
    for stop in list(stops):
        stop()


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    return start(conf={"default_model": {"provider": "echo", "model": "echo-1"}})


@pytest.fixture
def extension() -> Iterator[Callable[..., Extension]]:
    """Make an extension: extension(name, answers={path: …})."""
    made: list[Extension] = []

    def make(name: str = "echo-ext", answers: dict[str, Any] | None = None) -> Extension:
        made.append(Extension(name, answers or {}))
        return made[-1]

    yield make
    for each in made:
        each.close()
