"""The hub's own tools: reading, writing and editing files, a shell, and skills.

They act with the server's rights in its working directory, which is why none is on unless the operator names it.
"""

from __future__ import annotations

import os
import re
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from golem_core.errors import GolemError
from golem_core.hub.groups import ProcessGroups
from golem_core.hub.messages import ToolDef
from golem_core.hub.registry import BUILTIN_TOOLS

__all__ = ["OUTPUT_LIMIT", "SHELL_SECONDS", "BuiltinTool", "builtin_tools"]

OUTPUT_LIMIT = 32768
SHELL_SECONDS = 30.0


@dataclass(frozen=True)
class BuiltinTool:
    """A tool; `run` takes its arguments and returns its result, or raises GolemError or OSError."""

    definition: ToolDef
    run: Callable[[Mapping[str, Any]], str]


def builtin_tools(
    names: Iterable[str], skills: Path, groups: ProcessGroups, stopping: threading.Event
) -> dict[str, BuiltinTool]:
    """The tools of these names; `skills` is the folder of skills.

    What the shell runs is one of `groups`, and is ended when `stopping` is set.  Raises GolemError for a name that is
    no tool's.
    """
    made = {
        "read": _tool(
            "read",
            "Read a text file. Lines are numbered.",
            _read,
            path="string",
            offset="integer? the first line, from 1",
            limit="integer? how many lines",
        ),
        "write": _tool("write", "Write a text file, replacing what is there.", _write, path="string", content="string"),
        "edit": _tool(
            "edit",
            "Replace a passage of a text file. The old text must occur in it exactly once.",
            _edit,
            path="string",
            old="string",
            new="string",
        ),
        "shell": _tool(
            "shell",
            "Run a command with the shell. What it leaves running ends with it.",
            partial(_shell, groups, stopping),
            command="string",
        ),
        "skill": _tool(
            "skill",
            f"Read a skill, a description of how to do something. There are: {', '.join(_skills(skills)) or 'none'}.",
            lambda given: _skill(skills, given),
            name="string",
        ),
    }
    wanted = list(names)
    for name in wanted:
        if name not in made:
            raise GolemError(f"-tools {name}: there is no such tool; there are {', '.join(sorted(BUILTIN_TOOLS))}")
    return {name: made[name] for name in wanted}


def _tool(name: str, description: str, run: Callable[[Mapping[str, Any]], str], /, **fields: str) -> BuiltinTool:
    """A tool whose arguments are "TYPE", or "TYPE? DESCRIPTION" for one that may be left out."""
    properties, required = {}, []
    kinds = {"string": str, "integer": int}
    for field, about in fields.items():
        kind, optional, meaning = about.partition("?")
        properties[field] = {"type": kind} | ({"description": meaning.strip()} if meaning else {})
        if not optional:
            required.append(field)

    def checked(given: Mapping[str, Any]) -> str:
        for field, about in properties.items():
            value = given.get(field)
            if value is None and field in required:
                raise GolemError(f"{field} is required")
            if value is not None and (not isinstance(value, kinds[about["type"]]) or isinstance(value, bool)):
                raise GolemError(f"{field} must be of type {about['type']}")
        return run(given)

    schema = {"type": "object", "properties": properties, "required": required}
    return BuiltinTool(ToolDef(name, description, schema), checked)


def _cut(text: str) -> str:
    """At most OUTPUT_LIMIT bytes of a text, with a mark where it is cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= OUTPUT_LIMIT:
        return text
    return encoded[:OUTPUT_LIMIT].decode("utf-8", "ignore") + "\n[truncated]"


def _read(given: Mapping[str, Any]) -> str:
    first = max(1, given.get("offset") or 1)
    limit = given.get("limit")
    chosen: list[str] = []
    length = 0
    with _regular(given["path"]).open(encoding="utf-8", errors="replace") as file:
        for line in islice(file, first - 1, None if limit is None else first - 1 + max(0, limit)):
            chosen.append(f"{first + len(chosen)}\t{line.removesuffix(chr(10))}")
            length += len(chosen[-1]) + 1
            if length > OUTPUT_LIMIT:
                break
    return _cut("\n".join(chosen)) or "(empty)"


def _write(given: Mapping[str, Any]) -> str:
    path = Path(given["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(given["content"], encoding="utf-8", newline="")
    return f"wrote {given['path']}"


def _edit(given: Mapping[str, Any]) -> str:
    path = _regular(given["path"])
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise GolemError(f"{given['path']} is no UTF-8 text") from None
    old, new = given["old"], given["new"]
    if "\r\n" in text:
        old, new = (re.sub("\r?\n", "\r\n", each) for each in (old, new))
    count = text.count(old) if old else 0
    if count != 1:
        raise GolemError(f"old occurs {count} times in {given['path']}, not once")
    path.write_bytes(text.replace(old, new).encode())
    return f"edited {given['path']}"


def _regular(path: str) -> Path:
    """The path of a file that ends; GolemError for a folder, a pipe or a device."""
    found = Path(path)
    if found.exists() and not found.is_file():
        raise GolemError(f"{path} is no file")
    return found


def _shell(groups: ProcessGroups, stopping: threading.Event, given: Mapping[str, Any]) -> str:
    running = groups.start(["/bin/sh", "-c", given["command"]])
    assert running.stdout is not None
    until = time.monotonic() + SHELL_SECONDS
    note, kept = "", bytearray()
    with running.stdout as output, selectors.DefaultSelector() as ready:
        ready.register(output, selectors.EVENT_READ)
        while not note:
            ended = groups.ended(running)  # then all that it wrote is there; what it left running may write for ever
            piece = os.read(output.fileno(), 1 << 16) if ready.select(0 if ended else 0.05) else None
            if piece:
                kept += piece[: max(0, OUTPUT_LIMIT + 1 - len(kept))]
            elif piece == b"":  # closed, which need not be the end
                ready.unregister(output)
            if ended and (not piece or len(kept) > OUTPUT_LIMIT):
                break
            if time.monotonic() > until:
                note = f"\n[ended after {SHELL_SECONDS:g} s]"
            elif stopping.is_set():
                note = "\n[ended: the server is stopping]"
    status = groups.finish(running)
    text = _cut(kept.decode("utf-8", "replace").rstrip("\n")) or "(no output)"
    return (f"exit {status}\n" if status and not note else "") + text + note


def _skills(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/SKILL.md"))


def _skill(folder: Path, given: Mapping[str, Any]) -> str:
    name = given["name"]
    if not re.fullmatch(r"[\w-]+", name) or not (folder / name / "SKILL.md").is_file():
        raise GolemError(f"there is no skill {name!r}; there are {', '.join(_skills(folder)) or 'none'}")
    return _cut((folder / name / "SKILL.md").read_text(encoding="utf-8", errors="replace"))
