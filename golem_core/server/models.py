"""GET /v1/models: the one name that this server goes by."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, get
from litestar.exceptions import NotFoundException
from msgspec import Meta

from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["handlers"]


class Model(msgspec.Struct):
    """One entry of the list; `meta` has the conversation model's counts if there is one."""

    id: Annotated[str, Meta(description="The name that this server goes by.")]
    created: Annotated[int, Meta(description="The Unix second of this answer.")]
    object: Annotated[str, Meta(description='Always "model".')] = "model"
    owned_by: Annotated[str, Meta(description="Who serves it.")] = "golem"
    meta: Annotated[dict[str, int] | None, Meta(description="Tokens known, positions trained and positions held.")] = (
        None
    )


class ModelList(msgspec.Struct):
    """The list."""

    data: Annotated[list[Model], Meta(description="One entry.")]
    object: Annotated[str, Meta(description='Always "list".')] = "list"


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    def known() -> Model:
        meta = None
        if server.chat is not None:
            model = server.chat.model
            meta = {"n_vocab": model.vocab_size, "n_ctx_train": model.context_train, "n_ctx": server.chat.slot_context}
        return Model(id=server.name, created=int(time.time()), meta=meta)

    @get("/v1/models", sync_to_thread=False, **described(answer=ModelList))
    def models() -> ModelList:
        """What is loaded."""
        return ModelList([known()])

    @get("/v1/models/{identity:str}", sync_to_thread=False, **described(answer=Model))
    def model(request: Request) -> Model:
        """The model of that name, if it is loaded."""
        asked = request.path_params["identity"]
        if asked != server.name:
            raise NotFoundException(f"the model {asked!r} is not here; this server holds {server.name!r}")
        return known()

    return [models, model]
