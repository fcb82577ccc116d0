"""POST /api/chat and POST /api/generate: answers as ollama's clients read them, line by line unless they say no."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, post
from msgspec import Meta

from golem_core.engine import SortedAnswer
from golem_core.server.chat_request import Asked
from golem_core.server.errors import Refusal
from golem_core.server.ollama_request import (
    OllamaChat,
    OllamaCommon,
    OllamaGenerate,
    read_chat,
    read_generate,
    unloads,
)
from golem_core.server.openapi import described
from golem_core.server.streaming import streamed, whole
from golem_core.text import Call, Calls, Content, Event, Markers, Reasoning

if TYPE_CHECKING:
    from golem_core.server.app import Server
    from golem_core.server.loading import LoadedChat

__all__ = ["handlers"]

_LINES = "application/x-ndjson"


class CalledFunction(msgspec.Struct):
    """What is to be called."""

    index: Annotated[int, Meta(description="Which of the turn's calls this is.")]
    name: Annotated[str, Meta(description="The function.")]
    arguments: Annotated[dict[str, Any], Meta(description="Its arguments.")]


class FunctionCall(msgspec.Struct):
    """A function that the model wants called."""

    function: Annotated[CalledFunction, Meta(description="What is to be called.")]


class Said(msgspec.Struct, omit_defaults=True):
    """What the model says."""

    role: Annotated[str, Meta(description='Always "assistant".')]
    content: Annotated[str, Meta(description="The text.")]
    thinking: Annotated[str, Meta(description="What the model thought before.")] = ""
    tool_calls: Annotated[list[FunctionCall], Meta(description="Functions that the model wants called.")] = []


class Figures(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What an answer took; only where it ends."""

    done_reason: Annotated[str | None, Meta(description='"stop", "length", "load" or "unload".')] = None
    total_duration: Annotated[int | None, Meta(description="Nanoseconds of the whole request.")] = None
    load_duration: Annotated[int | None, Meta(description="Nanoseconds until the model was free for it.")] = None
    prompt_eval_count: Annotated[int | None, Meta(description="Tokens of the whole prompt.")] = None
    prompt_eval_duration: Annotated[int | None, Meta(description="Nanoseconds of reading it.")] = None
    eval_count: Annotated[int | None, Meta(description="Tokens drawn.")] = None
    eval_duration: Annotated[int | None, Meta(description="Nanoseconds of drawing them.")] = None


class ChatLine(Figures, omit_defaults=True, kw_only=True):
    """An answer of /api/chat, or a piece of it."""

    model: Annotated[str, Meta(description="The name that was asked for.")]
    created_at: Annotated[str, Meta(description="The time of this line.")]
    message: Annotated[Said, Meta(description="What the model says.")]
    done: Annotated[bool, Meta(description="Whether this is the last line.")]


class GenerateLine(Figures, omit_defaults=True, kw_only=True):
    """An answer of /api/generate, or a piece of it."""

    model: Annotated[str, Meta(description="The name that was asked for.")]
    created_at: Annotated[str, Meta(description="The time of this line.")]
    response: Annotated[str, Meta(description="The text.")]
    thinking: Annotated[str, Meta(description="What the model thought before.")] = ""
    done: Annotated[bool, Meta(description="Whether this is the last line.")]
    context: Annotated[list[int] | None, Meta(description="What a next request may go on from.")] = None


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need a conversation model."""
    chat = server.chat
    assert chat is not None

    @post("/api/chat", status_code=200, **described(body=OllamaChat, answer=ChatLine, stream=(_LINES, ChatLine)))
    async def ollama_chat(request: Request) -> Response[Any]:
        """Answer a conversation, as a stream of lines or whole."""
        body = await request.body()
        asking, asked = await asyncio.to_thread(read_chat, chat, body)
        return await _answered(request, asking, asked, _ChatLines(asking.model or server.name))

    @post(
        "/api/generate",
        status_code=200,
        **described(body=OllamaGenerate, answer=GenerateLine, stream=(_LINES, GenerateLine)),
    )
    async def ollama_generate(request: Request) -> Response[Any]:
        """Answer one prompt, as a stream of lines or whole."""
        body = await request.body()
        asking, asked = await asyncio.to_thread(read_generate, chat, body)
        lines = _GenerateLines(asking.model or server.name, chat=chat, raw=bool(asking.raw))
        return await _answered(request, asking, asked, lines)

    async def _answered(request: Request, asking: OllamaCommon, asked: Asked | None, lines: _Lines) -> Response[Any]:
        if asked is None:
            reason = "unload" if unloads(asking.keep_alive) else "load"
            return _json(lines.line(done=True, done_reason=reason))
        lines.prompt = asked.generation.prompt
        if isinstance(asking, OllamaGenerate) and asking.raw:
            answer = SortedAnswer.submit(chat.engine, chat.model, asked.generation, markers=Markers())
        else:
            answer = chat.answer(asked.generation, asked.tools)
        lines.answer = answer
        if asking.stream is not False:
            return await streamed(request, answer, lines)
        found = await whole(request, answer)
        return _json(lines.line(found.content, found.reasoning, found.calls, **lines.figures(found.content)))

    return [ollama_chat, ollama_generate]


def _json(line: msgspec.Struct) -> Response[bytes]:
    return Response(msgspec.json.encode(line), media_type="application/json")


@dataclass
class _Lines:
    """The answer as lines of JSON."""

    model: str
    started: float = field(default_factory=time.perf_counter)
    prompt: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    media_type = _LINES
    answer: SortedAnswer | None = None

    def begin(self) -> bytes:
        return b""

    def piece(self, event: Event) -> bytes:
        if isinstance(event, Content):
            self.text.append(event.text)
            line = self.line(event.text)
        elif isinstance(event, Reasoning):
            line = self.line(thinking=event.text)
        else:
            assert isinstance(event, Calls)
            line = self.line(calls=event.calls)
        return msgspec.json.encode(line) + b"\n"

    def ping(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return msgspec.json.encode(self.line(**self.figures("".join(self.text)))) + b"\n"

    def failure(self, refusal: Refusal) -> bytes:
        return msgspec.json.encode({"error": refusal.message}) + b"\n"

    def line(self, text: str = "", thinking: str = "", calls: tuple[Call, ...] = (), **fields: Any) -> msgspec.Struct:
        """One line; `fields` are those of its end."""
        raise NotImplementedError

    def figures(self, text: str) -> dict[str, Any]:
        """The fields of the last line of an answer that said `text`."""
        assert self.answer is not None
        reason, generation = self.answer.finish_reason, self.answer.generation
        return {
            "done": True,
            "done_reason": "stop" if reason == "tool_calls" else reason,
            "total_duration": _nanoseconds(time.perf_counter() - self.started),
            "load_duration": _nanoseconds(generation.queued),
            "prompt_eval_count": generation.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(generation.prompt_seconds),
            "eval_count": generation.drawn,
            "eval_duration": _nanoseconds(generation.draw_seconds),
        }


class _ChatLines(_Lines):
    def line(self, text: str = "", thinking: str = "", calls: tuple[Call, ...] = (), **fields: Any) -> ChatLine:
        fields.setdefault("done", False)
        called = [FunctionCall(CalledFunction(index, call.name, call.arguments)) for index, call in enumerate(calls)]
        message = Said("assistant", text, thinking, called)
        return ChatLine(model=self.model, created_at=_now(), message=message, **fields)


@dataclass
class _GenerateLines(_Lines):
    chat: LoadedChat | None = None
    raw: bool = False

    def line(self, text: str = "", thinking: str = "", calls: tuple[Call, ...] = (), **fields: Any) -> GenerateLine:
        fields.setdefault("done", False)
        return GenerateLine(model=self.model, created_at=_now(), response=text, thinking=thinking, **fields)

    def figures(self, text: str) -> dict[str, Any]:
        fields = super().figures(text)
        if not self.raw:
            assert self.chat is not None
            fields["context"] = [token for token in self.prompt if token >= 0] + self.chat.model.tokenizer.encode(text)
        return fields


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
