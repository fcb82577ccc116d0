"""The base of providers: programs that the server asks for answers and embeddings."""

from __future__ import annotations

from typing import Any

from golem.errors import UnsupportedFormat
from golem.messages import JSONSchema, Message, ToolDef

__all__ = ["Provider", "abilities"]


class Provider:
    """A provider.  What a class overrides is announced; calls come on several threads at once."""

    def chat(self, model: str, messages: list[Message], tools: list[ToolDef] | None = None) -> Message:
        """The next message of a conversation: text, calls of `tools`, or both."""
        raise NotImplementedError

    def chat_structured(self, model: str, messages: list[Message], schema: JSONSchema) -> Any:
        """A JSON value that follows a schema; UnsupportedFormat has the server ask in plain chat."""
        raise UnsupportedFormat("this provider has no structured answers")

    def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        """A vector for each text, in order."""
        raise NotImplementedError


_ABILITIES = {"chat": "chat", "structured": "chat_structured", "embed": "embed"}


def abilities(provider: Provider) -> dict[str, bool]:
    """What a provider has overridden, in the words of a registration."""
    return {
        word: True
        for word, method in _ABILITIES.items()
        if getattr(type(provider), method) is not getattr(Provider, method)
    }
