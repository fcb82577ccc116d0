"""What a model may call during a turn: the tools of live extensions, and those of the hub's own that are turned on.

A tool that fails never fails the turn: its result says what went wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from golem_core.errors import GolemError
from golem_core.hub.builtin_tools import BuiltinTool
from golem_core.hub.callbacks import Callbacks
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.messages import ToolDef
from golem_core.hub.reading import read_json
from golem_core.hub.registry import Registry

__all__ = ["Tools"]


class Tools:
    """The tools that can be called now."""

    def __init__(self, registry: Registry, callbacks: Callbacks, builtin: Mapping[str, BuiltinTool]):
        self.registry = registry
        self.callbacks = callbacks
        self.builtin = builtin

    def definitions(self) -> list[ToolDef]:
        """Every tool as it is declared to the model, by name."""
        found = {
            name: ToolDef(name, tool.get("description") or "", tool["parameters"])
            for name, (_, tool) in self.registry.tools().items()
        }
        found |= {name: tool.definition for name, tool in self.builtin.items()}
        return [found[name] for name in sorted(found)]

    def call(self, name: str, arguments: str) -> str:
        """The result of a call whose arguments are JSON text, or what went wrong with it."""
        try:
            given = read_json(arguments) if arguments.strip() else {}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            return "invalid arguments"
        tool = self.builtin.get(name)
        found = self.registry.tools().get(name)
        if tool is None and found is None:
            return f"unknown tool: {name}"
        try:
            if tool is not None:
                return tool.run(given)
            assert found is not None
            answer = self.callbacks.post(found[0], ("v1", "tools", name), given)
            if not isinstance(answer.get("result"), str):
                raise CallbackFailed(f"{found[0].name}: the answer has no result")
            return answer["result"]
        except (GolemError, OSError, ValueError) as error:  # ValueError: a path or a command with a NUL in it
            return f"error: {error}"
