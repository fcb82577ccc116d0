"""Tools made of functions: the declaration comes from the signature, the result is text."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from golem.messages import ToolDef

__all__ = ["Tool", "tools_of"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


class Tool:
    """A function that models may call.  ValueError for one whose signature cannot be declared."""

    def __init__(self, function: Callable[..., Any]):
        name = function.__name__
        if inspect.iscoroutinefunction(function):
            raise ValueError(f"tool {name}: coroutines cannot be tools")
        hints = typing.get_type_hints(function)
        properties: dict[str, Any] = {}
        required = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"tool {name}: the parameter {parameter.name} cannot be given by name")
            kind = _TYPES.get(hints.get(parameter.name, None))  # type: ignore[arg-type]
            if kind is None:
                raise ValueError(f"tool {name}: the parameter {parameter.name} needs a type: str, int, float or bool")
            properties[parameter.name] = {"type": kind}
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        description = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        self.function = function
        self.definition = ToolDef(name, description, schema | ({"required": required} if required else {}))

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """The function's result; JSON text unless it is text."""
        result = self.function(**arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def tools_of(functions: Iterable[Callable[..., Any]] | Callable[..., Any]) -> dict[str, Tool]:
    """The tools of one function or several, by name."""
    listed = [functions] if callable(functions) else list(functions)
    made = [Tool(function) for function in listed]
    found = {tool.definition.name: tool for tool in made}
    if len(found) < len(made):
        raise ValueError("two tools have the same name")
    return found
