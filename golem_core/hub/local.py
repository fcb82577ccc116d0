"""The server's own models as the provider "golem": what channels talk to unless the settings say otherwise.

Requests take the way of POST /v1/chat/completions, so that a conversation here is read, templated, constrained and
cached like any other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import msgspec

from golem_core.errors import BadRequest
from golem_core.hub.errors import CallbackFailed
from golem_core.hub.messages import FunctionCall, Message, ToolCall, ToolDef
from golem_core.hub.providers import json_in
from golem_core.hub.reading import whole_text

if TYPE_CHECKING:
    from golem_core.embedder import LoadedEmbedder
    from golem_core.engine import SortedAnswer, WholeAnswer
    from golem_core.server.loading import LoadedChat

__all__ = ["Local"]


class Local:
    """The loaded conversation and embedding models, those that there are, in the words of a provider."""

    def __init__(self, chat: LoadedChat | None, say: Callable[[str], None], embedder: LoadedEmbedder | None = None):
        self._chat = chat
        self._embedder = embedder
        self._say = say
        self._lock = threading.Lock()
        self._running: set[SortedAnswer] = set()
        self._closed = False
        self._told = False

    @property
    def chats(self) -> bool:
        """Whether a conversation model is loaded that has a chat template."""
        return self._chat is not None and self._chat.template is not None

    @property
    def embeds(self) -> bool:
        """Whether an embedding model is loaded."""
        return self._embedder is not None

    @property
    def embedder(self) -> str:
        """The name of the embedding model, "" where there is none."""
        return "" if self._embedder is None else self._embedder.model.name

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolDef]) -> Message:
        """The next message of a conversation.

        When the conversation has outgrown the model's context, its oldest turns are left out.  A model that has no
        tool calls is told of no tools.
        """
        fields: dict[str, Any] = {}
        if tools and self._calls_tools(tools):
            fields["tools"] = [{"type": "function", "function": msgspec.to_builtins(tool)} for tool in tools]
        answer = self._answered(messages, fields)
        calls = [
            ToolCall(
                FunctionCall(call.name, json.dumps(whole_text(call.arguments), ensure_ascii=False)), f"call_{index}"
            )
            for index, call in enumerate(answer.calls, 1)
        ]
        return Message("assistant", answer.content.strip(), calls)

    def structured(self, messages: Sequence[Message], schema: Mapping[str, Any]) -> Any:
        """A JSON value that follows a schema; the schema is held to while the answer is drawn."""
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        answer = self._answered(messages, {"response_format": wanted})
        if answer.finish_reason == "length":
            raise CallbackFailed("golem: the structured answer did not end within its budget")
        return json_in(answer.content)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A unit vector for each text; one that is too long for the model is cut."""
        if self._embedder is None:
            raise CallbackFailed('provider "golem" does not support embedding')
        try:
            return self._embedder.embed(texts, truncate=True).tolist()
        except CancelledError:
            raise CallbackFailed("golem: the server is stopping") from None

    def close(self) -> None:
        """End the answers under way; later ones fail."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for answer in running:
            answer.generation.cancel()
        if self._embedder is not None:
            self._embedder.engine.cancel_all()

    def _answered(self, messages: Sequence[Message], fields: Mapping[str, Any]) -> WholeAnswer:
        kept = list(messages)
        while True:
            try:
                return self._answer(kept, fields)
            except BadRequest as error:
                shorter = _without_oldest_turn(kept)
                if error.code != "context_length_exceeded" or shorter is None:
                    raise
                kept = shorter

    def _answer(self, messages: Sequence[Message], fields: Mapping[str, Any]) -> WholeAnswer:
        from golem_core.server.chat_request import prepare

        if self._chat is None:
            raise CallbackFailed('provider "golem" does not support chat')
        body = msgspec.json.encode({"messages": messages, **fields})
        asked = prepare(self._chat, body)
        with self._lock:
            if self._closed:
                raise CallbackFailed("golem: the server is stopping")
            answer = self._chat.answer(asked.generation, asked.tools)
            self._running.add(answer)
        try:
            return answer.wait()
        finally:
            answer.generation.cancel()
            with self._lock:
                self._running.discard(answer)

    def _calls_tools(self, tools: Sequence[ToolDef]) -> bool:
        assert self._chat is not None or not self.chats
        chat = self._chat
        if chat is None or (chat.model.markers.call and chat.template is not None and chat.template.takes("tools")):
            return True
        if not self._told:
            self._told = True
            self._say(f"{chat.name} has no tool calls, so it is told of no tools ({tools[0].name} and others)")
        return False


def _without_oldest_turn(messages: list[Message]) -> list[Message] | None:
    """The messages without the oldest turn, system messages aside; None when only one turn is left."""
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    if len(starts) < 2:
        return None
    return [*(m for m in messages[: starts[1]] if m.role == "system"), *messages[starts[1] :]]
