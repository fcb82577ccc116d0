"""Which pages in a browser may read answers: the origins that the operator has listed, and by default none.

A browser asks first, with an OPTIONS request that carries no key; the answer to that is given here, before anything
asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Cors"]

_DAY = b"86400"


class Cors:
    """ASGI middleware that lets pages of `origins` ("https://host:port", or "*" for every page) read answers."""

    def __init__(self, app: Any, origins: Sequence[str]):
        self.app = app
        self.origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        allowed = self._allowed(headers.get(b"origin"))
        if allowed and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            asked = headers.get(b"access-control-request-headers", b"")
            more = [
                (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
                (b"access-control-max-age", _DAY),
                *([(b"access-control-allow-headers", asked)] if asked else []),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": [*allowed, *more]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def allowing(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *allowed, (b"vary", b"Origin")]}
            await send(message)

        await self.app(scope, receive, allowing)

    def _allowed(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if origin is None or not self.origins & {"*", origin.decode("latin-1").lower()}:
            return []
        return [(b"access-control-allow-origin", origin)]
