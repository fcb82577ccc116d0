"""The hub's own tools: reading, writing and editing files, a shell, and skills.

They act with the server's rights in its working directory, which is why none is on unless the operator names it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_core.errors import GolemError
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


def builtin_tools(names: Iterable[str], skills: Path) -> dict[str, BuiltinTool]:
    """The tools of these names; `skills` is the folder of skills.  Raises GolemError for a name that is none."""
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
        "shell": _tool("shell", "Run a command with the shell.", _shell, command="string"),
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
    lines = Path(given["path"]).read_text(encoding="utf-8", errors="replace").splitlines()
    first = max(1, given.get("offset") or 1)
    limit = given.get("limit")
    chosen = lines[first - 1 :] if limit is None else lines[first - 1 : first - 1 + max(0, limit)]
    return _cut("\n".join(f"{number}\t{line}" for number, line in enumerate(chosen, first))) or "(empty)"


def _write(given: Mapping[str, Any]) -> str:
    path = Path(given["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(given["content"], encoding="utf-8")
    return f"wrote {given['path']}"


def _edit(given: Mapping[str, Any]) -> str:
    path = Path(given["path"])
    text = path.read_text(encoding="utf-8")
    count = text.count(given["old"]) if given["old"] else 0
    if count != 1:
        raise GolemError(f"old occurs {count} times in {given['path']}, not once")
    path.write_text(text.replace(given["old"], given["new"]), encoding="utf-8")
    return f"edited {given['path']}"


def _shell(given: Mapping[str, Any]) -> str:
    running = subprocess.Popen(
        ["sh", "-c", given["command"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    note = ""
    try:
        output, _ = running.communicate(timeout=SHELL_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        output, _ = running.communicate()
        note = f"\n[ended after {SHELL_SECONDS:g} s]"
    text = _cut(output.decode("utf-8", "replace").rstrip("\n")) or "(no output)"
    status = f"exit {running.returncode}\n" if running.returncode and not note else ""
    return status + text + note


def _skills(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/SKILL.md"))


def _skill(folder: Path, given: Mapping[str, Any]) -> str:
    name = given["name"]
    if not re.fullmatch(r"[\w-]+", name) or not (folder / name / "SKILL.md").is_file():
        raise GolemError(f"there is no skill {name!r}; there are {', '.join(_skills(folder)) or 'none'}")
    return _cut((folder / name / "SKILL.md").read_text(encoding="utf-8", errors="replace"))
