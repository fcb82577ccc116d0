"""GET /v1/models: the names of what this server holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, get
from litestar.exceptions import NotFoundException
from msgspec import Meta

from golem_core.server.embedding import embedder_of
from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["handlers"]


class Model(msgspec.Struct):
    """One entry of the list; `meta` has the counts of a conversation or embedding model."""

    id: Annotated[str, Meta(description="The name of the model.")]
    created: Annotated[int, Meta(description="The Unix second of this answer.")]
    object: Annotated[str, Meta(description='Always "model".')] = "model"
    owned_by: Annotated[str, Meta(description="Who serves it.")] = "golem"
    meta: Annotated[dict[str, int] | None, Meta(description="Tokens known, positions trained and positions held.")] = (
        None
    )


class ModelList(msgspec.Struct):
    """The list."""

    data: Annotated[list[Model], Meta(description="One entry for each model.")]
    object: Annotated[str, Meta(description='Always "list".')] = "list"


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    def known() -> dict[str, Model]:
        counts: dict[str, dict[str, int]] = {}
        if (embedder := embedder_of(server)) is not None:
            held = embedder.loaded.model
            counts[embedder.name] = {
                "n_vocab": held.vocab_size,
                "n_ctx_train": held.limit,
                "n_ctx": held.limit,
                "n_embd": held.dimensions,
            }
        if server.chat is not None:
            model, context = server.chat.model, server.chat.slot_context
            counts[server.name] = {"n_vocab": model.vocab_size, "n_ctx_train": model.context_train, "n_ctx": context}
        now = int(time.time())
        names = (server.name, *(part.name for part in server.parts.values()))
        return {name: Model(id=name, created=now, meta=counts.get(name)) for name in names}

    @get("/v1/models", sync_to_thread=False, **described(answer=ModelList))
    def models() -> ModelList:
        """What is loaded."""
        return ModelList(list(known().values()))

    @get("/v1/models/{identity:str}", sync_to_thread=False, **described(answer=Model))
    def model(request: Request) -> Model:
        """The model of that name, if it is loaded."""
        asked, held = request.path_params["identity"], known()
        if asked not in held:
            names = " and ".join(repr(name) for name in held)
            raise NotFoundException(f"the model {asked!r} is not here; this server holds {names}")
        return held[asked]

    return [models, model]
