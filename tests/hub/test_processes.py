"""Extensions as processes: started and ended with the server, started again when they end, and gone when removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub_fakes import BEARER, TOKEN, alive

from golem_core.errors import GolemError
from golem_core.hub import supervisor as supervisors
from golem_core.hub.config import Home
from golem_core.hub.groups import ProcessGroups
from golem_core.hub.registry import Registry
from golem_core.hub.supervisor import Backoff, Supervisor, environment_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "extensions"

SERVE = """
import sys
sys.path.insert(0, {here!r})
from server_fakes import fake_chat
from golem_core import cli
from golem_core.server import app

chat = fake_chat(slots=2)
chat.engine.token_delay = {delay}
app.load_chat = lambda options, path: chat
sys.argv = ["golem", "serve", "-model", "x.gguf", "-addr", "127.0.0.1:0"]
cli.main()
"""


def until(condition: Callable[[], Any], within: float = 20.0) -> Any:
    """What `condition` returns when it is true at last."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def install(home: Path, name: str, source: Path | None = None, program: str | None = None) -> Path:
    """Put an extension into a hub's folder, with an environment that has the SDK: an example, or a script."""
    folder = home / "extensions" / name
    folder.mkdir(parents=True)
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder / ".venv")
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    (packages / "paths.pth").write_text(f"{ROOT / 'sdk'}\n{folder}\n")
    if source is not None:
        for file in source.glob("*.*"):
            shutil.copy(file, folder)
    else:
        script = folder / ".venv" / "bin" / name
        script.write_text(f"#!{folder / '.venv' / 'bin' / 'python'}\n{program}")
        script.chmod(0o755)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\nversion = "1"\n[project.scripts]\n{name} = "x:main"\n'
        )
    return folder


def started_by(process: subprocess.Popen[str]) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for listing in Path(f"/proc/{process.pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(pid) for pid in listing.read_text().split()]
    return [pid for pid in found if alive(pid)]


def reapers(process: subprocess.Popen[str]) -> list[int]:
    """The process beside a server, if it runs."""
    return [pid for pid in started_by(process) if b"reaper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def children(process: subprocess.Popen[str]) -> list[int]:
    """The extensions that a server has started and that run."""
    beside = reapers(process)
    return [pid for pid in started_by(process) if pid not in beside]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    made = ProcessGroups()
    yield made
    made.close()


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., Any]]:
    """Start `golem serve` as a process: (process, URL of the hub, the lines that it prints)."""
    processes = []

    def start(delay: float = 0.0, **conf: Any) -> tuple[subprocess.Popen[str], str, Any]:
        home.mkdir(exist_ok=True)
        if conf:
            (home / "conf.json").write_text(json.dumps(conf))
        variables = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
        variables |= {"GOLEM_PLUGINS": "", "GOLEM_HOME": str(home), "GOLEM_TOKEN": TOKEN}
        output = home.parent / f"stderr-{len(processes)}"
        code = SERVE.format(here=str(ROOT / "tests" / "server"), delay=delay)
        with output.open("w") as file:
            process = subprocess.Popen([sys.executable, "-c", code], stderr=file, env=variables, text=True)
        processes.append(process)

        def listening() -> str | None:
            said = output.read_text()
            assert process.poll() is None, said
            return said.partition("listening on ")[2].partition("/v1")[0].replace("localhost", "127.0.0.1")

        return process, until(listening), output

    yield start
    for process in processes:
        process.kill()
        process.wait()


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=BEARER, timeout=20)


def registered(http: httpx.Client) -> list[str]:
    return [each["name"] for each in http.get("/v1/extensions").json()["extensions"]]


def answer(http: httpx.Client, conversation: str, text: str) -> str:
    posted = http.post(f"/v1/conversations/{conversation}/turns", json={"channel": "test", "text": text})
    return http.get(f"/v1/turns/{posted.json()['id']}").text


def pid_of(home: Path, name: str) -> int:
    """The number that a program has written, 0 while it has written none."""
    file = home / "extensions" / name / "pid"
    return int((file.exists() and file.read_text()) or 0)


SLEEPER = """
import os, subprocess, sys, time
open("pid", "w").write(str(os.getpid()))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
print("started at", os.environ["GOLEM_URL"], os.environ["GOLEM_TOKEN"], os.getcwd())
time.sleep(600)
"""


STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER


def test_the_wait_doubles_to_thirty_seconds_and_begins_again_after_a_long_run() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [backoff.after(60.1), backoff.after(60.0)] == [1, 2]


def test_a_program_that_ends_is_started_again_whatever_its_status(home, groups) -> None:
    install(home, "brief", program="open('runs', 'a').write('x')\n")
    said: list[str] = []
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            supervisor._stopping.set()

    registry = Registry()
    registry.register({"name": "brief", "callback_url": "http://127.0.0.1:9"})
    supervisor = Supervisor(Home(home), registry, TOKEN, said.append, groups, wait=wait)
    supervisor.start("http://127.0.0.1:1")
    until(lambda: len(waits) == 3)
    supervisor.stop()
    assert waits == [1, 2, 4]
    assert (home / "extensions" / "brief" / "runs").read_text() == "xxx"
    assert said[:2] == ["[brief] ended with status 0", "[brief] starting again in 1 s"]
    assert registry.live() == [], "what has ended is not listed"


def test_a_program_that_cannot_be_started_does_not_hinder_others(home, groups) -> None:
    broken = install(home, "broken", program="")
    program = broken / ".venv" / "bin" / "broken"
    program.unlink()
    install(home, "good", program=SLEEPER)
    (home / "extensions" / "odd").mkdir()
    said: list[str] = []
    supervisor = Supervisor(Home(home), Registry(), TOKEN, said.append, groups)
    supervisor.start("http://127.0.0.1:1")
    until(lambda: any(line.startswith("[good] started at http://127.0.0.1:1 a-token") for line in said))
    until(lambda: "[broken] starting again in 1 s" in said)
    until(lambda: f"[broken] {program}: cannot be run: No such file or directory" in said)
    assert any(line.startswith("extension odd: ") for line in said)
    supervisor.stop()


def test_a_missing_environment_is_made_again(home, groups, monkeypatch) -> None:
    folder = install(home, "good", program=SLEEPER)
    kept = folder.with_name(".kept")
    (folder / ".venv").rename(kept)
    monkeypatch.setattr(supervisors, "make_environment", lambda folder, say: kept.rename(folder / ".venv"))
    said: list[str] = []
    supervisor = Supervisor(Home(home), Registry(), TOKEN, said.append, groups)
    supervisor.start("http://127.0.0.1:1")
    until(lambda: any(line.startswith("[good] started at http://127.0.0.1:1 a-token") for line in said))
    assert said[0] == "[good] repairing its environment"
    supervisor.stop()


def test_a_program_that_will_not_end_is_ended_with_all_that_it_started(home, groups) -> None:
    install(home, "stubborn", program=STUBBORN)
    supervisor = Supervisor(Home(home), Registry(), TOKEN, lambda line: None, groups, grace=0.5)
    supervisor.start("http://127.0.0.1:1")
    folder = home / "extensions" / "stubborn"
    until(lambda: (folder / "child").exists() and (folder / "child").read_text())
    pids = [int((folder / name).read_text()) for name in ("pid", "child")]
    assert all(map(alive, pids))
    supervisor.stop()
    until(lambda: not any(map(alive, pids)), 2)


def test_what_a_stubborn_program_started_ends_even_if_the_server_is_killed(serve, home) -> None:
    install(home, "stubborn", program=STUBBORN)
    process, _, _ = serve()
    folder = home / "extensions" / "stubborn"
    until(lambda: (folder / "child").exists() and (folder / "child").read_text())
    pids = [int((folder / name).read_text()) for name in ("pid", "child")] + started_by(process)
    assert len(set(pids)) == 3 and all(map(alive, pids)), "the program, what it started, and the reaper"
    (reaper,) = reapers(process)
    os.kill(reaper, signal.SIGTERM)  # as a service manager tells all processes of a service to end
    process.kill()
    process.wait()
    until(lambda: not any(map(alive, pids)))


def test_the_settings_of_an_extension_do_not_reach_the_hubs_own() -> None:
    own = {"KEY": "k", "BLANK": " ", "GOLEM_TOKEN": "stolen", "GOLEM_URL": "http://evil"}
    made = environment_of(
        Path("x"), "http://127.0.0.1:1", TOKEN, own, {"BLANK": "kept", "PATH": "p", "PYTHONPATH": "q"}
    )
    assert made["GOLEM_URL"] == "http://127.0.0.1:1" and made["GOLEM_TOKEN"] == TOKEN
    assert (made["KEY"], made["BLANK"]) == ("k", "kept") and "PYTHONPATH" not in made
    assert made["PATH"].split(os.pathsep) == [str(Path("x", ".venv", "bin")), "p"]


@pytest.mark.parametrize(
    ("extensions", "reason"),
    [
        ({"x": {"env": {"PORT": 7000}}}, "extensions.x.env.PORT: expected a text, got 7000"),
        ({"x": {"env": ["PORT"]}}, "extensions.x.env: expected an object, got ['PORT']"),
        ({"x": {"env": {"A=B": "c"}}}, "extensions.x.env.A=B: no environment variable can be that"),
        ({"x": {"env": {"A": "\0"}}}, "extensions.x.env.A: no environment variable can be that"),
        ({"x": 7}, "extensions.x: expected an object, got 7"),
        ([], "extensions: expected an object, got []"),
    ],
)
def test_settings_of_an_extension_that_cannot_be_used_are_told_by_key(home, extensions, reason) -> None:
    Home(home).make()
    Home(home).write({"extensions": extensions})
    with pytest.raises(GolemError) as told:
        Home(home).config().environment("x")
    assert str(told.value) == f"{home / 'conf.json'}: {reason}"


def test_example_extensions_hold_conversations_and_end_with_the_server(serve, home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    install(home, "golem-echo", EXAMPLES / "golem-echo")
    install(home, "golem-console", EXAMPLES / "golem-console")
    model = {"provider": "echo", "model": "e"}
    about = {"golem-console": {"env": {"CONSOLE_PORT": str(port)}}}
    process, url, output = serve(default_model=model, extensions=about, memory={})
    http = client(url)
    assert until(lambda: len(names := registered(http)) == 2 and names) == ["golem-console", "golem-echo"]
    until(lambda: f"[golem-console] listening on port {port}" in output.read_text())
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        for text in ("hello there", "naïve 😀"):
            lines.write(text + "\n")
            lines.flush()
            assert lines.readline() == text + "\n"
    (conversation,) = http.get("/v1/conversations?channel=console").json()["conversations"]
    assert conversation["title"] == "hello there"

    assert len(children(process)) == 2
    pids = started_by(process)
    assert len(pids) == 3, "and the reaper"
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    assert not any(map(alive, pids))


def test_a_killed_extension_comes_back_and_a_removed_one_does_not(serve, home) -> None:
    install(home, "golem-echo", EXAMPLES / "golem-echo")
    process, url, output = serve(default_model={"provider": "echo", "model": "e"}, memory={})
    http = client(url)
    until(lambda: registered(http))
    (pid,) = children(process)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "[golem-echo] ended with status -9" in output.read_text())
    until(lambda: registered(http))
    assert '{"text":"hello"}' in answer(http, "c", "hello")

    from golem_core.hub.installer import remove

    remove(Home(home), "golem-echo", lambda line: None)
    until(lambda: not registered(http), 10)
    until(lambda: "[golem-echo] was removed" in output.read_text())
    assert children(process) == []
    assert list((home / "extensions").iterdir()) == []


def test_a_program_that_hangs_is_ended_and_its_turn_answered_by_the_next(start, home, capfd) -> None:
    folder = install(home, "golem-echo", EXAMPLES / "golem-echo")
    with (folder / "golem_echo.py").open("a") as file:
        file.write("\nimport os\nopen('pid', 'w').write(str(os.getpid()))\n")
    live = start(conf={"default_model": {"provider": "echo", "model": "e"}, "memory": {}})
    until(live.hub.registry.live)
    pid = pid_of(home, "golem-echo")
    time.sleep(1.2)  # the supervisor has seen it
    os.kill(pid, signal.SIGSTOP)
    turn = live.post("hello")
    time.sleep(0.2)
    live.hub.registry._clock = lambda: time.monotonic() + 31
    assert live.events(turn) == [("done", {"text": "hello"})]
    assert not alive(pid) and pid_of(home, "golem-echo") != pid
    assert "[golem-echo] gives no sign of life" in capfd.readouterr().err


def test_a_flood_of_turns_is_answered_though_their_provider_is_killed(start, home) -> None:
    folder = install(home, "golem-echo", EXAMPLES / "golem-echo")
    with (folder / "golem_echo.py").open("a") as file:
        file.write("\nimport os\nopen('pid', 'w').write(str(os.getpid()))\n")
    live = start(conf={"default_model": {"provider": "echo", "model": "e"}, "memory": {}})
    until(live.hub.registry.live)
    killed = []
    for number in range(TURNS):
        if number in (TURNS // 4, TURNS // 2):
            killed.append(until(lambda: (pid := pid_of(home, "golem-echo")) and alive(pid) and pid))
            os.kill(killed[-1], signal.SIGKILL)
        live.post(f"t{number}", f"c{number % CONVERSATIONS}")

    def said(number: int) -> list[str]:
        return [m["content"] for m in live.client.get(f"/v1/conversations/c{number}").json()["messages"]]

    for number in range(CONVERSATIONS):
        texts = [f"t{each}" for each in range(number, TURNS, CONVERSATIONS)]
        until(lambda number=number, texts=texts: len(said(number)) == 2 * len(texts), 60)
        assert said(number) == [each for text in texts for each in (text, text)], "each is answered once, in its order"
    pid = pid_of(home, "golem-echo")
    assert alive(pid) and not any(map(alive, killed))
    live.stop()
    assert not alive(pid)


TURNS, CONVERSATIONS = 1000, 50


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the children of a process that was killed")
def test_after_a_kill_nothing_is_lost_and_nothing_left_running(serve, home) -> None:
    install(home, "sleeper", program=SLEEPER)
    process, url, _ = serve(delay=0.05)
    http = client(url)
    pid = until(lambda: pid_of(home, "sleeper"))
    for conversation in ("a", "b"):
        for number in range(3):
            body = {"channel": "test", "text": f"message {number}"}
            assert http.post(f"/v1/conversations/{conversation}/turns", json=body).status_code == 202
    time.sleep(0.2)
    process.kill()
    process.wait()
    until(lambda: not alive(pid), 5)

    _, url, _ = serve()
    http = client(url)

    def said(conversation: str) -> list[str]:
        return [
            m["content"]
            for m in http.get(f"/v1/conversations/{conversation}").json()["messages"]
            if m["role"] == "user"
        ]

    for conversation in ("a", "b"):
        until(
            lambda conversation=conversation: len(http.get(f"/v1/conversations/{conversation}").json()["messages"]) == 6
        )
        assert said(conversation) == [f"message {number}" for number in range(3)]
    assert "event: done" in answer(http, "a", "and on it goes")


def test_two_servers_do_not_share_a_folder(serve, home) -> None:
    serve()
    _, url, output = serve()
    refused = client(url).post("/v1/conversations/c/turns", json={"channel": "x", "text": "y"})
    assert refused.status_code == 503 and "in use by another golem serve" in refused.json()["error"]
    assert "the hub is off: " in output.read_text()
    assert "the token of extensions" not in output.read_text()


def test_a_folder_is_locked_while_it_is_served(home) -> None:
    hub_home = Home(home)
    assert not hub_home.served()
    hub_home.make()
    held = hub_home.lock()
    assert held is not None and hub_home.served()
    from golem_core.hub.installer import add

    with pytest.raises(GolemError, match="stop it first"):
        add(hub_home, str(EXAMPLES / "golem-echo"), force=True, say=lambda line: None)
    os.close(held)
    assert not hub_home.served()
    assert (home / "conf.json").stat().st_mode & 0o777 == 0o600 and home.stat().st_mode & 0o777 == 0o700
