"""POST /v1/embeddings: unit vectors as OpenAI's clients read them, in numbers or in base64."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from litestar import Request, Response, post
from msgspec import Meta

from golem_core.embedder import unit
from golem_core.errors import BadRequest
from golem_core.server.bodies import Number, read_body, shown, whole
from golem_core.server.embedding import ServedEmbedder, check_count, embedded, numbers
from golem_core.server.openapi import described

__all__ = ["handlers"]

if TYPE_CHECKING:
    from golem_core.engine.embedding import Embedded


class EmbeddingsRequest(msgspec.Struct):
    """The body; null is the same as absent."""

    input: Annotated[
        str | list[Any] | None,
        Meta(description="A text, a list of texts, a list of token ids, or a list of such lists and texts."),
    ] = None
    model: Annotated[Any, Meta(description="Selects nothing; there is one embedding model here.")] = None
    encoding_format: Annotated[str | None, Meta(description='"float" or "base64": little-endian float32.')] = None
    dimensions: Annotated[Number, Meta(description="Components to keep; the vector is made a unit vector again.")] = (
        None
    )


class EmbeddingItem(msgspec.Struct):
    """The vector of one text."""

    index: Annotated[int, Meta(description="Which of the texts it is.")]
    embedding: Annotated[list[float] | str, Meta(description="The vector, in the encoding that was asked for.")]
    object: Annotated[str, Meta(description='Always "embedding".')] = "embedding"


class EmbeddingUsage(msgspec.Struct):
    """How many tokens were read, those around the texts included."""

    prompt_tokens: Annotated[int, Meta(description="Tokens of all texts.")]
    total_tokens: Annotated[int, Meta(description="The same.")]


class Embeddings(msgspec.Struct):
    """The vectors, in the order of the texts."""

    data: Annotated[list[EmbeddingItem], Meta(description="One entry for each text.")]
    model: Annotated[str, Meta(description="The name of the embedding model.")]
    usage: Annotated[EmbeddingUsage, Meta(description="Tokens in.")]
    object: Annotated[str, Meta(description='Always "list".')] = "list"


def handlers(served: ServedEmbedder) -> list[Any]:
    """The route handlers; they need an embedding model."""

    @post("/v1/embeddings", status_code=200, **described(body=EmbeddingsRequest, answer=Embeddings))
    async def embeddings(request: Request) -> Response[bytes]:
        """A vector for each text."""
        body = await request.body()
        asked, texts, kept = await asyncio.to_thread(_read, served, body)
        found = await embedded(request, served, texts)
        made = await asyncio.to_thread(_written, served, found, kept, asked.encoding_format == "base64")
        return Response(made, media_type="application/json")

    return [embeddings]


def _read(served: ServedEmbedder, body: bytes) -> tuple[EmbeddingsRequest, list[Sequence[int]], int | None]:
    request, _ = read_body(body, EmbeddingsRequest)
    if request.encoding_format not in (None, "", "float", "base64"):
        given = shown(request.encoding_format)
        raise BadRequest(f'encoding_format: expected "float" or "base64", got {given}', param="encoding_format")
    dimensions = whole(request.dimensions, "dimensions")
    kept = served.loaded.check_dimensions(dimensions or None)  # clients in Go write 0 for none
    given = request.input
    if given is None or given == []:
        raise BadRequest("input: there is nothing to embed", param="input")
    if isinstance(given, str):
        return request, [served.loaded.tokenize(given)], kept
    if _is_number(given[0]):
        return request, [_ids(served, given, "input", 0)], kept
    check_count(len(given))
    return request, [_text(served, each, index) for index, each in enumerate(given)], kept


def _text(served: ServedEmbedder, given: Any, index: int) -> Sequence[int]:
    if isinstance(given, str):
        return served.loaded.tokenize(given)
    if not isinstance(given, list):
        raise BadRequest(f"input[{index}]: expected a text or a list of token ids, got {shown(given)}", param="input")
    return _ids(served, given, f"input[{index}]", index)


def _ids(served: ServedEmbedder, given: list[Any], field: str, index: int) -> Sequence[int]:
    if not given:
        raise BadRequest(f"{field}: the list of token ids is empty", param="input")
    if len(given) > served.loaded.limit or set(map(type, given)) == {int}:
        return given  # the engine refuses what is too long, and what is outside the vocabulary
    for at, each in enumerate(given):
        if not _is_number(each):
            raise BadRequest(f"{field}[{at}]: expected a token id, got {shown(each)}", param="input")
    return [id for at, each in enumerate(given) if (id := whole(each, f"{field}[{at}]")) is not None]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(served: ServedEmbedder, found: Embedded, kept: int | None, in_base64: bool) -> bytes:
    vectors = unit(found.vectors[:, :kept])
    write = _base64 if in_base64 else numbers
    data = [EmbeddingItem(index, write(row)) for index, row in enumerate(vectors)]
    return msgspec.json.encode(Embeddings(data, served.name, EmbeddingUsage(found.positions, found.positions)))


def _base64(row: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()
