"""POST /v1/chat/completions: an answer as one object, or as a stream of its pieces.

The request is prepared on a worker thread; the rest is the writing of it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, post
from msgspec import Meta

from golem_core.server.chat_request import Asked, ChatRequest, prepare
from golem_core.server.guard import is_relayed
from golem_core.server.openapi import described
from golem_core.server.refusal import Refusal, openai_envelope
from golem_core.server.sse import DONE, PING, event
from golem_core.server.streaming import streamed, whole
from golem_core.server.tools import numbered
from golem_core.text import Calls, Content, Event

if TYPE_CHECKING:
    from golem_core.engine import Generation, SortedAnswer, WholeAnswer
    from golem_core.server.app import Server

__all__ = ["handlers"]


class Usage(msgspec.Struct):
    """How many tokens went in and out; the cached ones are part of the prompt."""

    prompt_tokens: Annotated[int, Meta(description="Tokens of the whole prompt.")]
    completion_tokens: Annotated[int, Meta(description="Tokens drawn, the one that ended the answer included.")]
    total_tokens: Annotated[int, Meta(description="Their sum.")]
    prompt_tokens_details: Annotated[
        dict[str, int], Meta(description="cached_tokens: those of the prompt that were held already.")
    ]


class Timings(msgspec.Struct):
    """Where the time went, in llama.cpp's words: what was cached, what was read, what was drawn."""

    cache_n: Annotated[int, Meta(description="Prompt tokens that were held already.")]
    prompt_n: Annotated[int, Meta(description="Prompt tokens read.")]
    prompt_ms: Annotated[float, Meta(description="Milliseconds of reading them.")]
    prompt_per_token_ms: Annotated[float, Meta(description="Milliseconds for each.")]
    prompt_per_second: Annotated[float, Meta(description="How many a second.")]
    predicted_n: Annotated[int, Meta(description="Tokens drawn.")]
    predicted_ms: Annotated[float, Meta(description="Milliseconds of drawing them.")]
    predicted_per_token_ms: Annotated[float, Meta(description="Milliseconds for each.")]
    predicted_per_second: Annotated[float, Meta(description="How many a second.")]
    draft_n: Annotated[int | msgspec.UnsetType, Meta(description="Tokens guessed ahead, if any were.")] = msgspec.UNSET
    draft_n_accepted: Annotated[int | msgspec.UnsetType, Meta(description="Those that were drawn.")] = msgspec.UNSET


class Answer(msgspec.Struct, omit_defaults=True):
    """What a message says; parts that it doesn't have are left out."""

    role: Annotated[str, Meta(description='Always "assistant".')]
    content: Annotated[str, Meta(description="What it says; may be empty.")]
    reasoning_content: Annotated[str, Meta(description="What the model thought before.")] = ""
    tool_calls: Annotated[list[dict[str, Any]], Meta(description="Functions that the model wants called.")] = []


class Choice(msgspec.Struct):
    """The one answer of a completion."""

    message: Annotated[Answer, Meta(description="The answer.")]
    finish_reason: Annotated[str, Meta(description='"stop", "length" or "tool_calls".')]
    index: Annotated[int, Meta(description="Always 0.")] = 0


class Completion(msgspec.Struct):
    """The whole answer."""

    id: Annotated[str, Meta(description="A name that no other answer has.")]
    created: Annotated[int, Meta(description="The Unix second of the answer.")]
    model: Annotated[str, Meta(description="The name of the server's model.")]
    choices: Annotated[list[Choice], Meta(description="The one answer.")]
    usage: Annotated[Usage, Meta(description="Tokens in and out.")]
    timings: Annotated[Timings, Meta(description="Where the time went.")]
    object: Annotated[str, Meta(description='Always "chat.completion".')] = "chat.completion"


class ChunkChoice(msgspec.Struct):
    """One piece of the answer."""

    delta: Annotated[dict[str, Any], Meta(description="The role, a piece of content or of reasoning, or the calls.")]
    finish_reason: Annotated[str | None, Meta(description="At the end: why it is one.")] = None
    index: Annotated[int, Meta(description="Always 0.")] = 0


class Chunk(msgspec.Struct, omit_defaults=True):
    """One event of a stream."""

    id: Annotated[str, Meta(description="The same in all chunks of an answer.")]
    object: Annotated[str, Meta(description='Always "chat.completion.chunk".')]
    created: Annotated[int, Meta(description="The Unix second of the answer.")]
    model: Annotated[str, Meta(description="The name of the server's model.")]
    choices: Annotated[list[ChunkChoice], Meta(description="One piece; none in the chunk that has the usage.")]
    usage: Annotated[Usage | None, Meta(description="Tokens in and out, if asked for.")] = None
    timings: Annotated[Timings | None, Meta(description="Where the time went, beside the usage.")] = None


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need a conversation model."""
    chat = server.chat
    assert chat is not None

    @post(
        "/v1/chat/completions",
        status_code=200,
        **described(body=ChatRequest, answer=Completion, stream=(_Chunks.media_type, Chunk)),
    )
    async def chat_completions(request: Request) -> Response[Any]:
        """Answer a conversation, whole or as a stream of events."""
        body = await request.body()
        asked = await asyncio.to_thread(prepare, chat, body, is_relayed(request.scope))
        answer = chat.answer(asked.generation, asked.tools)
        generation = answer.generation
        if asked.stream:
            return await streamed(request, answer, _Chunks(server, asked, answer))
        found = await whole(request, answer)
        completion = Completion(
            id=_identity(),
            created=int(time.time()),
            model=server.name,
            choices=[Choice(_message(found), found.finish_reason)],
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


class _Chunks:
    """The answer as OpenAI's chunks: the role, the pieces, the reason, and what it took if that was asked for."""

    media_type = "text/event-stream"

    def __init__(self, server: Server, asked: Asked, answer: SortedAnswer):
        self.asked = asked
        self.answer = answer
        created = int(time.time())
        self.base = {
            "id": _identity(),
            "object": "chat.completion.chunk",
            "created": created,
            "model": server.name,
        }

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, event: Event) -> bytes:
        return self._chunk(_delta(event))

    def ping(self) -> bytes:
        return PING

    def end(self) -> bytes:
        out = self._chunk({}, self.answer.finish_reason)
        if self.asked.include_usage:
            generation = self.answer.generation
            out += event(Chunk(**self.base, choices=[], usage=_usage(generation), timings=_timings(generation)))
        return out + DONE

    def failure(self, refusal: Refusal) -> bytes:
        return event(openai_envelope(refusal))

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return event(Chunk(**self.base, choices=[ChunkChoice(delta, reason)]))


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
        *((generation.guessed, generation.confirmed) if generation.guessed else ()),
    )
