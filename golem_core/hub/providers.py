"""Models by provider: a registered extension that is called back, or the server's own.

Which provider a name means is looked up at each call, so that an extension may come and go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from golem_core.hub.callbacks import Callbacks
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.messages import Message, ToolDef
from golem_core.hub.reading import whole_text
from golem_core.hub.registry import LOCAL, Registration, Registry

__all__ = ["LocalModels", "ModelRef", "Providers", "json_in", "quoted"]

UNSUPPORTED_FORMAT = "unsupported_format"


@dataclass(frozen=True)
class ModelRef:
    """A model of a provider."""

    provider: str
    model: str


class LocalModels(Protocol):
    """What the server itself has loaded, in the words of a provider.  Each raises GolemError."""

    @property
    def chats(self) -> bool:
        """Whether there is a model to talk to."""
        ...

    @property
    def embeds(self) -> bool:
        """Whether there is an embedding model."""
        ...

    @property
    def embedder(self) -> str:
        """The name of the embedding model, "" where there is none."""
        ...

    def close(self) -> None:
        """End the answers under way."""
        ...

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolDef]) -> Message:
        """The next message of a conversation."""
        ...

    def structured(self, messages: Sequence[Message], schema: Mapping[str, Any]) -> Any:
        """A JSON value that follows a schema."""
        ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text."""
        ...


class Providers:
    """Chat, structured answers and embeddings by whichever provider a `ModelRef` names.

    Every method raises GolemError saying which provider failed, and why.
    """

    def __init__(self, registry: Registry, callbacks: Callbacks, local: LocalModels):
        self.registry = registry
        self.callbacks = callbacks
        self.local = local

    def can_chat(self, ref: ModelRef) -> bool:
        """Whether somebody would answer now."""
        if ref.provider == LOCAL:
            return self.local.chats
        found = self.registry.provider(ref.provider)
        return found is not None and _chats(found[1])

    def can_embed(self, ref: ModelRef) -> bool:
        """Whether somebody would embed now."""
        if ref.provider == LOCAL:
            return self.local.embeds
        found = self.registry.provider(ref.provider)
        return found is not None and bool(found[1].get("embed"))

    def embedder(self, ref: ModelRef) -> str:
        """A name for the model that embeds, which no other has as far as the hub can know."""
        return f"{ref.provider}/{self.local.embedder if ref.provider == LOCAL else ref.model}"

    def generation(self, ref: ModelRef) -> int:
        """Which registration of a provider is live; 0 for none, and for the server's own models."""
        found = self.registry.provider(ref.provider)
        return 0 if found is None else found[0].generation

    def chat(self, ref: ModelRef, messages: Sequence[Message], tools: Sequence[ToolDef] = ()) -> Message:
        """The next message of a conversation: text, calls of `tools`, or both."""
        if ref.provider == LOCAL:
            return self.local.chat(messages, tools)
        extension, provider = self._find(ref)
        if not _chats(provider):
            raise CallbackFailed(f"provider {quoted(ref.provider)} does not support chat")
        body: dict[str, Any] = {"model": ref.model, "messages": messages}
        if tools:
            body["tools"] = tools
        answer = self.callbacks.post(extension, ("v1", "chat"), body)
        try:
            message = msgspec.convert({"content": "", **_without_nulls(answer), "role": "assistant"}, Message)
        except msgspec.ValidationError as error:
            raise CallbackFailed(f"{extension.name}: the answer is not a message: {error}") from None
        for index, call in enumerate(message.tool_calls):
            call.id = call.id or f"call_{index + 1}"
        return Message(message.role, message.content, message.tool_calls)

    def structured(self, ref: ModelRef, messages: Sequence[Message], name: str, schema: Mapping[str, Any]) -> Any:
        """A JSON value for a schema.

        A provider that does not have structured answers is asked in plain chat, and the JSON is taken out of its
        text; such a value need not follow the schema.
        """
        if ref.provider == LOCAL:
            return self.local.structured(messages, schema)
        extension, provider = self._find(ref)
        if provider.get("structured"):
            wanted = {"name": name, "strict": True, "schema": schema}
            body = {"model": ref.model, "messages": messages, "schema": wanted}
            try:
                answer = self.callbacks.post(extension, ("v1", "chat", "structured"), body)
            except CallbackFailed as error:
                if error.code != UNSUPPORTED_FORMAT:
                    raise
            else:
                if answer.get("data") is None:
                    raise CallbackFailed(f"{extension.name}: the structured answer has no data")
                return answer["data"]
        return json_in(self.chat(ref, messages).content)

    def embed(self, ref: ModelRef, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in order."""
        if ref.provider == LOCAL:
            return self.local.embed(texts)
        extension, provider = self._find(ref)
        if not provider.get("embed"):
            raise CallbackFailed(f"provider {quoted(ref.provider)} does not support embedding")
        answer = self.callbacks.post(extension, ("v1", "embed"), {"model": ref.model, "texts": texts})
        try:
            vectors = msgspec.convert(answer.get("vectors"), list[list[float]])
        except msgspec.ValidationError as error:
            raise CallbackFailed(f"{extension.name}: vectors: {error}") from None
        if len(vectors) != len(texts):
            raise CallbackFailed(f"{extension.name}: {len(vectors)} vectors came back for {len(texts)} texts")
        return vectors

    def _find(self, ref: ModelRef) -> tuple[Registration, Mapping[str, Any]]:
        found = self.registry.provider(ref.provider)
        if found is None:
            raise CallbackFailed(f"unknown provider {quoted(ref.provider)}", unheard=True)
        return found


def _chats(provider: Mapping[str, Any]) -> bool:
    return bool(provider.get("chat") or provider.get("structured"))  # structured counts as chat


def _without_nulls(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if value is not None}


def quoted(name: str) -> str:
    """A name as messages of the hub quote it."""
    return json.dumps(name, ensure_ascii=False)


def json_in(text: str) -> Any:
    """The JSON value in what a model wrote, with or without a code fence or words around it; CallbackFailed if none."""
    fenced = re.search(r"```[\w-]*\s*\n(.*?)```", text, re.DOTALL)
    inside = (fenced[1] if fenced else text).strip()
    starts = [0, *(match.start() for match in re.finditer(r"[\[{]", inside))]
    for start in starts[:50]:
        try:
            return whole_text(json.JSONDecoder().raw_decode(inside, start)[0])
        except (ValueError, RecursionError):
            continue
    raise CallbackFailed("the answer has no JSON in it")
