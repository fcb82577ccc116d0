"""README.md, held to its word: its tables against the code, its commands against a running server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import pytest
from PIL import Image
from repository_layout import ROOT

from golem_core import cli, plugins
from golem_core.cpu.kernels.products import FORMATS
from golem_core.options import CORE_OPTIONS, Option

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
CURLS = [code for kind, code in BLOCKS if kind == "sh" and code.startswith("curl")]
SCRIPTS = [code for kind, code in BLOCKS if kind == "python"]
DEFAULTS = {
    "model": "a model in an installed package",
    "threads": "the device decides",
    "cache-ttl": "`0`",
    "draft-n": "1 where it helps",
}
MODEL = ROOT / "plugins" / "golem-gemma" / "tests" / "fixtures" / "gemma3.gguf"
PROJECTOR = MODEL.with_name("mmproj-gemma3.gguf")
EMBEDDER = ROOT / "plugins" / "golem-nomic" / "tests" / "fixtures" / "nomic-moe.gguf"


def default(option: Option) -> str:
    if option.type is bool:
        return "off"
    return DEFAULTS.get(option.name) or ("none" if option.default in (None, ()) else f"`{option.default}`")


def test_the_table_of_options_is_the_command_line_s() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `-")
    ]
    told = {(row[0], row[1], row[2]) for row in rows}
    assert told == {
        (f"`-{o.name}{'' if o.type is bool else ' ' + o.example}`", f"`{o.variable}`", default(o)) for o in CORE_OPTIONS
    }


@pytest.mark.parametrize("command", ["run", "embed", "bench"])
def test_the_options_of_the_other_commands_are_named(command: str) -> None:
    paragraph = re.search(rf"^`golem {command}` .*$", TEXT, re.MULTILINE)
    found = cli.cli.get_command(click.Context(cli.cli), command)
    assert paragraph and found
    told = re.findall(r"`(-[\w-]+)", paragraph[0])
    installed = {f"-{option.name}" for option in plugins.options()} - {f"-{option.name}" for option in CORE_OPTIONS}
    options = [each.opts for each in found.params if isinstance(each, click.Option)]
    options = [names for names in options if "-version" not in names and installed.isdisjoint(names)]
    assert [names for names in options if not set(names) & set(told)] == [], "these are not told"
    assert [name for name in told if not any(name in names for names in options)] == [], "these do not exist"


def test_every_variable_that_the_code_reads_is_told() -> None:
    read = {
        name for path in (ROOT / "golem_core").rglob("*.py") for name in re.findall(r'"(GOLEM_\w+)"', path.read_text())
    }
    read -= {"GOLEM_"}
    assert read and all(f"`{name}`" in TEXT for name in read), read


def test_the_architectures_are_those_of_the_packages() -> None:
    for name, claims in plugins.installed().architectures().items():
        for plugin, _ in claims:
            row = next(line for line in TEXT.splitlines() if line.startswith(f"| [`{plugin.distribution}`]"))
            assert f"`{name}`" in row


def test_the_weight_types_are_those_of_the_kernels() -> None:
    sentence = re.search(r"computes with these weight types: (.*?)\. ", TEXT)
    assert sentence and set(sentence[1].split(", ")) == set(FORMATS)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server over tiny models."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
    program = "from golem_core.cli import main; main()"
    running = subprocess.Popen(
        [
            *(sys.executable, "-c", program, "serve", "-model", str(MODEL), "-embed", str(EMBEDDER)),
            *("-addr", "127.0.0.1:0", "-context", "512"),
        ],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        assert running.stderr is not None
        said = ""
        while (found := re.search(r"127\.0\.0\.1:\d+", said)) is None:
            line = running.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        yield found[0]
    finally:
        running.terminate()
        running.communicate(timeout=60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", [each for code in CURLS for each in re.split(r"^(?=curl )", code, flags=re.M)[1:]])
def test_the_curl_commands_are_answered(server: str, command: str) -> None:
    assert "127.0.0.1:8080" in command
    command = command.replace("127.0.0.1:8080", server).replace("curl ", "curl -sS --fail-with-body ", 1)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    if '"stream": true' in command:
        events = [line for line in done.stdout.splitlines() if line]
        assert events[-1] == "data: [DONE]" and '"usage"' in events[-2]
    else:
        assert ('"finish_reason"' if "completions" in command else '"embedding') in done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=["client", "api", "pictures", "embedder"])
def test_the_python_examples_run(server: str, script: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to(MODEL)
    (tmp_path / "mmproj.gguf").symlink_to(PROJECTOR)
    (tmp_path / "nomic.gguf").symlink_to(EMBEDDER)
    Image.new("RGB", (40, 30), "green").save(tmp_path / "cat.png")
    script = script.replace("127.0.0.1:8080", server)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_routes_are_there(server: str) -> None:
    models = httpx.get(f"http://{server}/v1/models").json()
    assert httpx.get(f"http://{server}/v1/models/{models['data'][0]['id']}").json()["meta"].keys() >= {
        "n_vocab",
        "n_ctx",
    }
    assert httpx.get(f"http://{server}/health").json() == {"status": "ok"}
    assert httpx.get(f"http://{server}/").text == "golem is running"
    refused = httpx.post(f"http://{server}/v1/completions", json={})
    assert refused.status_code == 404 and "/v1/chat/completions" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"n": 2}, 400),
        ({"messages": []}, 400),
        ({"messages": [{"role": "poet", "content": "x"}]}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400),
        ({"tool_choice": "required"}, 400),
        ({"temperature": "hot"}, 400),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, 400),
        ({"seed": 1e308}, 400),
        ({"repeat_penalty": 0}, 400),
        ({"min_p": 1.5}, 400),
        ({"temperature": 1e300}, 400),
        ({"chat_template_kwargs": {"self": 2}}, 400),
        ({"max_completion_tokens": 0}, 200),
        ({"max_completion_tokens": -1}, 200),
        ({"temperature": -1, "top_k": -1, "top_p": 2, "min_p": -1, "repeat_last_n": 0, "repeat_penalty": 2}, 200),
        ({"seed": None, "stop": None, "unheard_of": 1}, 200),
    ],
)
def test_what_the_page_says_is_refused_is(server: str, fields: dict[str, object], status: int) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2} | fields
    answer = httpx.post(f"http://{server}/v1/chat/completions", json=body)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"].keys() >= {"message", "type", "param", "code"}
