"""What a conversation is made of, as it travels to providers and lies in the store."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["FunctionCall", "Message", "ToolCall", "ToolDef"]


class FunctionCall(msgspec.Struct):
    """The function that a model wants called; `arguments` is JSON text."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct):
    """One call of an assistant message; the tool message with its result names `id`."""

    function: FunctionCall
    id: str = ""
    type: str = "function"


class Message(msgspec.Struct, omit_defaults=True):
    """One message of a conversation; empty fields do not travel."""

    role: str
    content: str = ""
    tool_calls: list[ToolCall] = []
    tool_call_id: str = ""


class ToolDef(msgspec.Struct):
    """A function as it is declared to a model; `parameters` is a JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
