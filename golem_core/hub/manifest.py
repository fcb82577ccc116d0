"""What an extension says of itself in its pyproject.toml: name, version, and how it is started."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_core.errors import GolemError

__all__ = ["Manifest", "check_name", "installed", "read_manifest"]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ENTRYPOINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Manifest:
    """An extension: `script` is the program of its environment that runs it, or `arguments` those of the SDK."""

    name: str
    version: str
    description: str = ""
    script: str | None = None
    arguments: tuple[str, ...] = field(default=())

    def command(self, binaries: Path) -> list[str]:
        """The command line; `binaries` is the folder of programs of the extension's environment."""
        if self.script is not None:
            return [str(binaries / self.script)]
        return [str(binaries / "python"), "-m", "golem", "--name", self.name, *self.arguments]


def check_name(name: str) -> str:
    """`name`, if it is one that an extension may have; GolemError otherwise."""
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise GolemError(f"invalid extension name {name!r}: lower-case letters and digits, in groups joined by -")
    return name


def read_manifest(folder: Path, called: str | None = None) -> Manifest:
    """The manifest of the extension in `folder`.  Raises GolemError naming the file and what is missing; `called` is
    the folder's name there, if it is another."""
    called = called or str(folder)
    path = f"{called}/pyproject.toml"
    try:
        values = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GolemError(f"{called} has no pyproject.toml") from None
    except OSError as error:
        raise GolemError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise GolemError(f"{path}: {error}") from None
    project = _table(values, "project")
    name, version = project.get("name"), project.get("version")
    if not isinstance(name, str) or not name:
        raise GolemError(f"{path}: missing name")
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise GolemError(f"{path}: invalid name {name!r}: lower-case letters and digits, in groups joined by -")
    if not isinstance(version, str) or not version:
        raise GolemError(f"{path}: missing version")
    described = project.get("description")
    arguments = _arguments(path, _table(_table(values, "tool"), "golem"))
    script = None if arguments else _script(path, name, _table(project, "scripts"))
    return Manifest(name, version, described if isinstance(described, str) else "", script, arguments)


def installed(extensions: Path, say: Callable[[str], None]) -> list[tuple[Path, Manifest]]:
    """The extensions that lie in a folder, by name; a broken one is said and left out."""
    found = []
    folders = [path for path in extensions.iterdir() if path.is_dir()] if extensions.is_dir() else []
    for folder in sorted(folders):
        if folder.name.startswith("."):
            continue
        try:
            manifest = read_manifest(folder)
            if manifest.name != folder.name:
                raise GolemError(f"{folder} holds an extension of another name, {manifest.name}")
        except GolemError as error:
            say(f"extension {folder.name}: {error}")
            continue
        found.append((folder, manifest))
    return found


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def _arguments(path: str, golem: Mapping[str, Any]) -> tuple[str, ...]:
    """What `python -m golem` is given for the table [tool.golem]; nothing without one."""
    arguments: list[str] = []
    for kind in ("provider", "channel"):
        about = golem.get(kind)
        if about is None:
            continue
        identity, entrypoint = (_table(golem, kind).get(key) for key in ("id", "entrypoint"))
        if not isinstance(identity, str) or not identity or "=" in identity:
            raise GolemError(f"{path}: tool.golem.{kind}: missing id")
        arguments += [f"--{kind}", f"{identity}={_entrypoint(path, kind, entrypoint)}"]
    if golem.get("tools") is not None:
        arguments += ["--tools", _entrypoint(path, "tools", golem["tools"])]
    return tuple(arguments)


def _entrypoint(path: str, where: str, value: Any) -> str:
    if not isinstance(value, str) or not _ENTRYPOINT.fullmatch(value):
        raise GolemError(f'{path}: tool.golem.{where}: expected an entry point such as "module:Class"')
    return value


def _script(path: str, name: str, scripts: Mapping[str, Any]) -> str:
    """The program that runs the extension: the one of its own name, or the only one."""
    if name in scripts:
        return name
    if len(scripts) > 1:
        raise GolemError(f"{path}: several scripts, and none is called {name}")
    if not scripts:
        raise GolemError(f"{path}: declare a provider, a channel or tools in [tool.golem], or a script")
    only = next(iter(scripts))
    if not re.fullmatch(r"[\w.-]+", only):
        raise GolemError(f"{path}: invalid script name {only!r}")
    return only
