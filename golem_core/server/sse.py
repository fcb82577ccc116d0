"""Server-sent events and other streams: an async generator of encoded pieces becomes a response.

The generator is always closed, whether the answer ended, failed, or the client hung up, so that what it holds
(a slot) is released in its `finally`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

import msgspec
from litestar import Response

from golem_core.server.disconnect import ClientGone, unless_gone

__all__ = ["DONE", "PING", "ByteStream", "event", "with_pings"]

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"  # a comment: readers skip it, proxies see that the connection lives

_encoder = msgspec.json.Encoder()


def event(data: Any) -> bytes:
    """One event with `data` as JSON on one line."""
    return b"data: " + _encoder.encode(data) + b"\n\n"


async def with_pings(items: AsyncIterator[T], interval: float) -> AsyncGenerator[T | None, None]:
    """Yield each item, and None whenever `interval` seconds passed without one."""
    waiting: asyncio.Future[T] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(items))
            await asyncio.wait((waiting,), timeout=interval)
            if not waiting.done():
                yield None
                continue
            finished, waiting = waiting, None
            try:
                item = finished.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


class ByteStream(Response[Any]):
    """A response whose body is the pieces that `pieces` yields, each sent at once."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], media_type: str):
        super().__init__(None, media_type=media_type)
        self.pieces = pieces

    def to_asgi_response(self, *arguments: Any, **settings: Any) -> Any:
        """The ASGI application that sends the stream."""
        return self._respond

    async def _respond(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [
            (b"content-type", str(self.media_type).encode()),
            (b"cache-control", b"no-cache"),
            (b"connection", b"keep-alive"),
            (b"x-accel-buffering", b"no"),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await unless_gone(receive, self._send(send))
        except ClientGone:
            pass  # nobody is left to tell
        finally:
            await self.pieces.aclose()

    async def _send(self, send: Any) -> None:
        async for each in self.pieces:
            await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
