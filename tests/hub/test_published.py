"""An extension as a stranger publishes it: installed by the command into an environment of its own, and served."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_processes import EXAMPLES, answer, client, registered, until
from test_processes import home as home
from test_processes import serve as serve


def test_an_installed_extension_answers(serve, home, tmp_path) -> None:
    program = [sys.executable, "-c", "from golem_core.cli import main; main()", "extension", "add"]
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GOLEM_")}
    added = subprocess.run(
        [*program, str(EXAMPLES / "golem-echo")],
        env=variables | {"GOLEM_HOME": str(home), "GOLEM_PLUGINS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if any(word in added.stderr for word in ("Connection", "No matching distribution found for setuptools")):
        pytest.skip("no package index can be reached, and building a package needs one")
    assert added.returncode == 0, added.stderr
    assert added.stderr.splitlines() == ["creating the environment", "installed golem-echo"]
    python = home / "extensions" / "golem-echo" / ".venv" / "bin" / "python"
    where = subprocess.run([python, "-c", "import golem; print(golem.__file__)"], capture_output=True, text=True)
    assert Path(where.stdout.strip()).is_relative_to(home)

    _, url, _ = serve(default_model={"provider": "echo", "model": "e"}, memory={})
    http = client(url)
    until(lambda: registered(http) == ["golem-echo"])
    assert 'event: done\ndata: {"text":"hello"}' in answer(http, "c", "hello")
