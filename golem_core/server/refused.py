"""Endpoints of the APIs we speak that this server does not have, refused with the name of the one to use."""

from __future__ import annotations

from typing import Any

from litestar import post
from litestar.exceptions import NotFoundException

__all__ = ["handlers"]

_INSTEAD = {
    "/v1/completions": "POST /v1/chat/completions",
    "/v1/responses": "POST /v1/chat/completions",
    "/v1/messages": "POST /v1/chat/completions",
    "/v1/moderations": "POST /v1/chat/completions",
}


def handlers() -> list[Any]:
    """The route handlers of everything refused by name."""
    return [_refusing(path, instead) for path, instead in _INSTEAD.items()]


def _refusing(path: str, instead: str) -> Any:
    @post(path, name=path, sync_to_thread=False)
    def refuse() -> None:
        """Not implemented: always 404, with the name of the endpoint to use."""
        raise NotFoundException(f"{path} is not implemented here; use {instead}")

    return refuse
