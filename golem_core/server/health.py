"""GET /health for load balancers, and GET / for clients that ask whether anybody is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import MediaType, get

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["handlers"]


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""

    @get("/", media_type=MediaType.TEXT, sync_to_thread=False)
    def root() -> str:
        return "golem is running"

    @get("/health", sync_to_thread=False)
    def health() -> dict[str, str]:
        return {"status": "ok"}

    return [root, health]
