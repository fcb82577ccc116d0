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

from golem_core.errors import GolemError
from golem_core.server import errors
from golem_core.server.chat_request import Asked, prepare
from golem_core.server.disconnect import unless_gone
from golem_core.server.log import Entry, entry
from golem_core.server.sse import DONE, PING, EventStream, event, with_pings

if TYPE_CHECKING:
    from golem_core.engine import Generation, Token
    from golem_core.server.app import Server

__all__ = ["handlers"]

PING_SECONDS = 30.0


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


class Answer(msgspec.Struct):
    """What a message says."""

    content: str
    role: str = "assistant"


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
        generation = chat.engine.submit(asked.generation)
        if asked.stream:
            return await _streamed(server, request, asked, generation)
        try:
            text = await unless_gone(request.receive, _all(generation))
        finally:
            generation.cancel()
            entry(request.scope).generation(generation)
        completion = Completion(
            id=_identity(),
            created=int(time.time()),
            model=server.name,
            choices=[Choice(Answer(text), _reason(generation))],
            usage=_usage(generation),
            timings=_timings(generation),
        )
        return Response(msgspec.json.encode(completion), media_type="application/json")

    return [chat_completions]


async def _all(generation: Generation) -> str:
    return "".join([token.text async for token in generation])


async def _streamed(server: Server, request: Request, asked: Asked, generation: Generation) -> EventStream:
    """A stream whose headers leave once there is something to send: until then a failure is a plain refusal."""
    tokens = with_pings(aiter(generation), PING_SECONDS)
    log = entry(request.scope)
    try:
        first = await unless_gone(request.receive, _first(tokens, generation))
    except BaseException:
        generation.cancel()
        log.generation(generation)
        raise
    return EventStream(_events(server, asked, generation, first, tokens, log))


async def _first(tokens: AsyncIterator[Token | None], generation: Generation) -> list[Token | None]:
    """What to begin with: a token, a ping once the slot is taken, or nothing when the answer is empty."""
    async for token in tokens:
        if token is not None or generation.slot is not None:
            return [token]
    return []


async def _events(
    server: Server,
    asked: Asked,
    generation: Generation,
    first: list[Token | None],
    tokens: AsyncGenerator[Token | None, None],
    log: Entry,
) -> AsyncGenerator[bytes, None]:
    base = {"id": _identity(), "object": "chat.completion.chunk", "created": int(time.time()), "model": server.name}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event(Chunk(**base, choices=[ChunkChoice(delta, reason)]))

    def piece(token: Token | None) -> bytes:
        if token is None:
            return PING
        return chunk({"content": token.text}) if token.text else b""

    try:
        async with aclosing(tokens):
            yield chunk({"role": "assistant", "content": ""})
            for token in first:
                if out := piece(token):
                    yield out
            async for token in tokens:
                if out := piece(token):
                    yield out
        yield chunk({}, _reason(generation))
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


def _reason(generation: Generation) -> str:
    if generation.finish_reason not in ("stop", "length"):
        raise GolemError("the answer was cut off: the server is stopping")
    return generation.finish_reason


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
