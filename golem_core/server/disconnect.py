"""Noticing that a client hung up while its answer is being made.

The framework reads nothing from the connection once the body is in, so work that takes long runs beside a task
that waits for the disconnect message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["ClientGone", "unless_gone"]

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection before it had its answer."""


async def unless_gone(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; cancel it and raise ClientGone when the client hangs up first.

    `receive` is the ASGI receive function of a request whose body has been read.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _hang_up(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
