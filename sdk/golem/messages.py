"""What a conversation is made of, as providers get it and give it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FunctionCall", "JSONSchema", "Message", "ToolCall", "ToolDef"]


@dataclass
class FunctionCall:
    """The function that a model wants called; `arguments` is JSON text."""

    name: str
    arguments: str = ""


@dataclass
class ToolCall:
    """One call of an assistant message; the tool message with its result names `id`."""

    id: str
    function: FunctionCall
    type: str = "function"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ToolCall:
        """Read a call as it travels."""
        function = value.get("function") or {}
        called = FunctionCall(str(function.get("name") or ""), str(function.get("arguments") or ""))
        return cls(str(value.get("id") or ""), called, str(value.get("type") or "function"))

    def to_dict(self) -> dict[str, Any]:
        """The call as it travels."""
        function = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": self.type, "function": function}


@dataclass
class Message:
    """One message: `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str = ""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Message:
        """Read a message as it travels; what is missing is empty."""
        calls = [ToolCall.from_dict(each) for each in value.get("tool_calls") or []]
        return cls(
            str(value.get("role") or ""), value.get("content") or "", calls, str(value.get("tool_call_id") or "")
        )

    def to_dict(self) -> dict[str, Any]:
        """The message as it travels; empty fields are left out."""
        made: dict[str, Any] = {"role": self.role}
        if self.content:
            made["content"] = self.content
        if self.tool_calls:
            made["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id:
            made["tool_call_id"] = self.tool_call_id
        return made


@dataclass
class ToolDef:
    """A function that a model may call; `parameters` is a JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ToolDef:
        """Read a declaration as it travels."""
        return cls(str(value.get("name") or ""), value.get("description") or "", dict(value.get("parameters") or {}))

    def to_dict(self) -> dict[str, Any]:
        """The declaration as it travels."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass
class JSONSchema:
    """What a structured answer is to follow."""

    name: str
    schema: dict[str, Any]
    strict: bool = True

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> JSONSchema:
        """Read a schema as it travels."""
        return cls(str(value.get("name") or ""), dict(value.get("schema") or {}), bool(value.get("strict", True)))
