"""GET /v1/models: the one name that this server goes by."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, get
from litestar.exceptions import NotFoundException

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["handlers"]


class Model(msgspec.Struct):
    """One entry of the list; `meta` has the conversation model's counts if there is one."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "golem"
    meta: dict[str, int] | None = None


class ModelList(msgspec.Struct):
    """The list."""

    data: list[Model]
    object: str = "list"


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    def described() -> Model:
        meta = None
        if server.chat is not None:
            model = server.chat.model
            meta = {"n_vocab": model.vocab_size, "n_ctx_train": model.context_train, "n_ctx": server.chat.slot_context}
        return Model(id=server.name, created=int(time.time()), meta=meta)

    @get("/v1/models", sync_to_thread=False)
    def models() -> ModelList:
        return ModelList([described()])

    @get("/v1/models/{identity:str}", sync_to_thread=False)
    def model(request: Request) -> Model:
        asked = request.path_params["identity"]
        if asked != server.name:
            raise NotFoundException(f"the model {asked!r} is not here; this server holds {server.name!r}")
        return described()

    return [models, model]
