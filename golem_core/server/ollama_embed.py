"""POST /api/embed and the older POST /api/embeddings: vectors as ollama's clients read them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, post
from msgspec import Meta

from golem_core.embedder import unit
from golem_core.errors import BadRequest
from golem_core.server.bodies import Number, read_body, shown, whole
from golem_core.server.embedding import ServedEmbedder, check_count, embedded, numbers
from golem_core.server.ollama_request import unloads
from golem_core.server.openapi import described

__all__ = ["handlers"]

if TYPE_CHECKING:
    from golem_core.engine.embedding import Embedded


class EmbedRequest(msgspec.Struct):
    """The body of POST /api/embed; null is the same as absent."""

    model: Annotated[str | None, Meta(description="Said again in the answer; there is one embedding model here.")] = (
        None
    )
    input: Annotated[str | list[Any] | None, Meta(description="A text, or a list of texts.")] = None
    truncate: Annotated[bool | None, Meta(description="Whether a text that is too long is cut; true.")] = None
    dimensions: Annotated[Number, Meta(description="Components to keep; the vector is made a unit vector again.")] = (
        None
    )
    options: Annotated[dict[str, Any] | None, Meta(description="Concern the loading of a model, which is done.")] = None
    keep_alive: Annotated[Any, Meta(description="Seconds or a duration; the model stays loaded anyway.")] = None


class EmbedAnswer(msgspec.Struct):
    """Unit vectors in the order of the texts."""

    model: Annotated[str, Meta(description="The name that was asked for.")]
    embeddings: Annotated[list[list[float]], Meta(description="A vector for each text.")]
    total_duration: Annotated[int, Meta(description="Nanoseconds of the whole request.")]
    load_duration: Annotated[int, Meta(description="Nanoseconds until the model was free for it.")]
    prompt_eval_count: Annotated[int, Meta(description="Tokens read.")]


class OldEmbedRequest(msgspec.Struct):
    """The body of POST /api/embeddings; null is the same as absent."""

    model: Annotated[str | None, Meta(description="Selects nothing; there is one embedding model here.")] = None
    prompt: Annotated[str | None, Meta(description="The text; it is cut if it is too long.")] = None
    options: Annotated[dict[str, Any] | None, Meta(description="Concern the loading of a model, which is done.")] = None
    keep_alive: Annotated[Any, Meta(description="Seconds or a duration; the model stays loaded anyway.")] = None


class OldEmbedAnswer(msgspec.Struct):
    """One vector as the model gives it, of any length; empty without a text."""

    embedding: Annotated[list[float], Meta(description="The vector.")]


def handlers(served: ServedEmbedder) -> list[Any]:
    """The route handlers; they need an embedding model."""

    @post("/api/embed", status_code=200, **described(body=EmbedRequest, answer=EmbedAnswer))
    async def ollama_embed(request: Request) -> Response[bytes]:
        """A unit vector for each text."""
        start = time.perf_counter()
        body = await request.body()
        asked, texts, kept = await asyncio.to_thread(_read, served, body)
        found = await _found(request, served, texts) if texts else None
        made = await asyncio.to_thread(_written, asked.model or served.name, found, kept, start)
        return Response(made, media_type="application/json")

    @post("/api/embeddings", status_code=200, **described(body=OldEmbedRequest, answer=OldEmbedAnswer))
    async def ollama_embeddings(request: Request) -> Response[bytes]:
        """The vector of one text, not made a unit vector."""
        body = await request.body()
        ids = await asyncio.to_thread(_read_old, served, body)
        found = await _found(request, served, [ids]) if ids is not None else None
        answer = OldEmbedAnswer([] if found is None else numbers(found.vectors[0]))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return [ollama_embed, ollama_embeddings]


async def _found(request: Request, served: ServedEmbedder, texts: Sequence[Sequence[int]]) -> Embedded:
    try:
        return await embedded(request, served, texts)
    except BadRequest as error:
        if error.code != "context_length_exceeded":
            raise
        raise BadRequest(f"the input length exceeds the context length: {error}", code=error.code) from None


def _read(served: ServedEmbedder, body: bytes) -> tuple[EmbedRequest, list[Sequence[int]], int | None]:
    request, _ = read_body(_body(body), EmbedRequest)
    unloads(request.keep_alive)
    dimensions = whole(request.dimensions, "dimensions")
    kept = served.loaded.check_dimensions(dimensions or None)
    given = [request.input] if isinstance(request.input, str) and request.input else request.input or []
    check_count(len(given))
    truncate = request.truncate is not False
    texts: list[Sequence[int]] = []
    for index, each in enumerate(given):
        if not isinstance(each, str):
            raise BadRequest(f"input[{index}]: expected a text, got {shown(each)}", param="input")
        texts.append(served.loaded.tokenize(each, truncate=truncate))
    return request, texts, kept


def _read_old(served: ServedEmbedder, body: bytes) -> Sequence[int] | None:
    request, _ = read_body(_body(body), OldEmbedRequest)
    unloads(request.keep_alive)
    return served.loaded.tokenize(request.prompt, truncate=True) if request.prompt else None


def _body(body: bytes) -> bytes:
    if not body.strip():
        raise BadRequest("missing request body")
    return body


def _written(model: str, found: Embedded | None, kept: int | None, start: float) -> bytes:
    vectors = [] if found is None else [numbers(row) for row in unit(found.vectors[:, :kept])]
    return msgspec.json.encode(
        EmbedAnswer(
            model,
            vectors,
            total_duration=_nanoseconds(time.perf_counter() - start),
            load_duration=_nanoseconds(0.0 if found is None else found.queued),
            prompt_eval_count=0 if found is None else found.positions,
        )
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
