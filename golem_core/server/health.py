"""GET /health for load balancers, and GET / for clients that ask whether anybody is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import MediaType, get
from msgspec import Meta

from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["handlers"]


class Health(msgspec.Struct):
    """How the server is."""

    status: Annotated[str, Meta(description='"ok": everything is loaded.')] = "ok"


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    @get("/", media_type=MediaType.TEXT, sync_to_thread=False, **described(answer=str))
    def root() -> str:
        """Whether anybody is there."""
        return "golem is running"

    @get("/health", sync_to_thread=False, **described(answer=Health))
    def health() -> Health:
        """Whether this server can answer."""
        return Health()

    return [root, health]
