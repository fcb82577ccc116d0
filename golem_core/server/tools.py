"""Tools of a request: which functions a model may call, and its calls as OpenAI's clients read them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadRequest
from golem_core.server.bodies import shown

if TYPE_CHECKING:
    from golem_core.text import Call

__all__ = ["declared_tools", "numbered"]

_numbers = itertools.count(1)  # of the calls that this process has handed out: no two have the same


def declared_tools(tools: list[Any] | None, choice: Any) -> list[dict[str, Any]] | None:
    """The functions that may be called, as declared; None for none.  Raises BadRequest naming what is wrong."""
    if choice not in (None, "auto", "none"):
        given = "an object" if isinstance(choice, dict) else shown(choice)
        raise BadRequest(f'tool_choice: {given} is not supported; it may be "auto" or "none"', param="tool_choice")
    for index, tool in enumerate(tools or []):
        kind = tool.get("type") if isinstance(tool, dict) else tool
        if kind != "function":
            raise BadRequest(f'tools[{index}].type: {shown(kind)} is not "function"', param="tools")
        _check(tool.get("function"), f"tools[{index}].function")
    return None if choice == "none" else tools or None


def _check(function: Any, where: str) -> None:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise BadRequest(f"{where}.name: a function needs a name", param="tools")
    for field, kind, expected in (("parameters", dict, "an object"), ("description", str, "a text")):
        value = function.get(field)
        if value is not None and not isinstance(value, kind):
            raise BadRequest(f"{where}.{field}: expected {expected}, got {shown(value)}", param="tools")


def numbered(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """OpenAI's objects for the calls of a turn, each with an id that the server never gives again."""
    return [
        {
            "index": index,
            "id": f"call_{next(_numbers)}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":")),
            },
        }
        for index, call in enumerate(calls)
    ]
