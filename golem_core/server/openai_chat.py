"""POST /v1/chat/completions: an answer as one object, or as a stream of its pieces.

The request is prepared on a worker thread; the answer is drawn while somebody listens for the client hanging up.
The slot is given back whatever happens.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response, post

from golem_core.server import errors
from golem_core.server.chat_request import Asked, prepare
from golem_core.server.disconnect import unless_gone
from golem_core.server.log import Entry, entry
from golem_core.server.sse import DONE, PING, EventStream, event, with_pings
from golem_core.server.tools import numbered
from golem_core.text import Calls, Content, Event

if TYPE_CHECKING:
    from golem_core.engine import Generation, SortedAnswer, WholeAnswer
    from golem_core.server.app import Server

__all__ = ["handlers"]

PING_SECONDS = 30.0

Step = list[Event] | None
"""The events of one token, or None for a while in which no token came."""


class Usage(msgspec.Struct):
    """How many tokens went in and out; the cached ones are part of the prompt."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class Timings(msgspec.Struct):
    """Where the time went, in llama.cpp's words: what was cached, what was read, what was drawn."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class Answer(msgspec.Struct, omit_defaults=True):
    """What a message says; parts that it doesn't have are left out."""

    role: str
    content: str
    reasoning_content: str = ""
    tool_calls: list[dict[str, Any]] = []


class Choice(msgspec.Struct):
    """The one answer of a completion."""

    message: Answer
    finish_reason: str
    index: int = 0


class Completion(msgspec.Struct):
    """The whole answer."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    timings: Timings
    object: str = "chat.completion"


class ChunkChoice(msgspec.Struct):
    """One piece of the answer."""

    delta: dict[str, Any]
    finish_reason: str | None = None
    index: int = 0


class Chunk(msgspec.Struct, omit_defaults=True):
    """One event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    timings: Timings | None = None


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need a conversation model."""
    chat = server.chat
    assert chat is not None

    @post("/v1/chat/completions", status_code=200)
    async def chat_completions(request: Request) -> Response[Any]:
        body = await request.body()
        asked = await asyncio.to_thread(prepare, chat, body)
        answer = chat.answer(asked.generation, asked.tools)
        generation = answer.generation
        if asked.stream:
            return await _streamed(server, request, asked, answer)
        try:
            whole = await unless_gone(request.receive, answer.whole())
        finally:
            generation.cancel()
            entry(request.scope).generation(generation)
        completion = Completion(
            id=_identity(),
            created=int(time.time()),
            model=server.name,
            choices=[Choice(_message(whole), whole.finish_reason)],
            usage=_usage(generation),
            timings=_timings(generation),
        )
        return Response(msgspec.json.encode(completion), media_type="application/json")

    return [chat_completions]


def _message(answer: WholeAnswer) -> Answer:
    calls = numbered(answer.calls)
    for call in calls:
        del call["index"]  # it tells the pieces of a stream apart
    return Answer("assistant", answer.content, answer.reasoning, calls)


async def _streamed(server: Server, request: Request, asked: Asked, answer: SortedAnswer) -> EventStream:
    """A stream whose headers leave once there is something to send: until then a failure is a plain refusal."""
    generation = answer.generation
    steps = with_pings(aiter(answer), PING_SECONDS)
    log = entry(request.scope)
    try:
        first = await unless_gone(request.receive, _first(steps, generation))
    except BaseException:
        generation.cancel()
        log.generation(generation)
        raise
    return EventStream(_events(server, asked, answer, first, steps, log))


async def _first(steps: AsyncIterator[Step], generation: Generation) -> list[Step]:
    """What to begin with: the first token, a ping once the slot is taken, or the end when the answer is empty."""
    async for step in steps:
        if step is not None or generation.slot is not None:
            return [step]
    return []


async def _events(
    server: Server,
    asked: Asked,
    answer: SortedAnswer,
    first: list[Step],
    steps: AsyncGenerator[Step, None],
    log: Entry,
) -> AsyncGenerator[bytes, None]:
    generation = answer.generation
    base = {"id": _identity(), "object": "chat.completion.chunk", "created": int(time.time()), "model": server.name}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event(Chunk(**base, choices=[ChunkChoice(delta, reason)]))

    def pieces(step: Step) -> bytes:
        return PING if step is None else b"".join(chunk(_delta(each)) for each in step)

    try:
        async with aclosing(steps):
            yield chunk({"role": "assistant", "content": ""})
            for step in first:
                if out := pieces(step):
                    yield out
            async for step in steps:
                if out := pieces(step):
                    yield out
        yield chunk({}, answer.finish_reason)
        if asked.include_usage:
            yield event(Chunk(**base, choices=[], usage=_usage(generation), timings=_timings(generation)))
        yield DONE
    except Exception as error:
        refusal = errors.refusal_of(error)
        log.refusal = refusal.message
        yield event({"error": {"message": refusal.message, "type": refusal.type, "code": refusal.code}})
    finally:
        generation.cancel()
        log.generation(generation)


def _identity() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _delta(event: Event) -> dict[str, Any]:
    if isinstance(event, Calls):
        return {"tool_calls": numbered(event.calls)}
    return {"content" if isinstance(event, Content) else "reasoning_content": event.text}


def _usage(generation: Generation) -> Usage:
    prompt, drawn = generation.prompt_tokens, generation.drawn
    return Usage(prompt, drawn, prompt + drawn, {"cached_tokens": generation.cached_tokens})


def _timings(generation: Generation) -> Timings:
    def part(count: int, seconds: float) -> tuple[int, float, float, float]:
        milliseconds = seconds * 1e3
        each = milliseconds / count if count else 0.0
        rate = count / seconds if seconds > 0 else 0.0
        return count, round(milliseconds, 3), round(each, 3), round(rate, 3)

    return Timings(
        generation.cached_tokens,
        *part(generation.fed, generation.prompt_seconds),
        *part(generation.drawn, generation.draw_seconds),
    )
