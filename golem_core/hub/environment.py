"""The virtual environment of an extension: made by uv where it is installed, else by venv and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from golem_core.errors import GolemError

__all__ = ["binaries", "make_environment"]


def binaries(venv: Path) -> Path:
    """The folder of an environment's programs."""
    return venv / ("Scripts" if os.name == "nt" else "bin")


def make_environment(folder: Path, say: Callable[[str], None]) -> None:
    """Make `folder/.venv` and install the extension of `folder` into it.

    Raises GolemError with what the installer said; nothing is left behind then.
    """
    venv = folder / ".venv"
    say("creating the environment")
    try:
        uv = shutil.which("uv")
        sdk = _sdk()
        if uv and sdk is None:
            frozen = ["--frozen"] if (folder / "uv.lock").exists() else []
            _run([uv, "sync", "--no-dev", "--no-editable", *frozen], folder)
        else:
            _run([sys.executable, "-m", "venv", "--clear", str(venv)], folder)
            python = str(binaries(venv) / "python")
            wanted = [sdk] if sdk else []
            _run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *wanted, "."], folder)
    except BaseException:
        shutil.rmtree(venv, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(folder / "build", ignore_errors=True)


def _sdk() -> str | None:
    """What is installed as golem-agent-sdk: GOLEM_SDK, the folder beside the core's in a checkout, or the index's."""
    if named := os.environ.get("GOLEM_SDK"):
        return str(Path(named).absolute()) if Path(named).exists() else named
    beside = Path(__file__).resolve().parents[2] / "sdk"
    return str(beside) if (beside / "pyproject.toml").is_file() else None


def _run(command: list[str], folder: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise GolemError(f"{Path(command[0]).name} failed: {' '.join(said[-5:]) or done.returncode}")
