"""Connections: those whose clients say nothing more are closed, and a system that has no more of them is told of once.

Nothing holds a slot before its request is whole, but every connection takes one of the open files that a process may
have.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from golem_core.server.log import say

__all__ = ["PATIENCE", "Connection", "Strain", "allow_many"]

PATIENCE = 75.0
"""Seconds without a byte of a request that has not come whole."""

MOST_FILES = 16384
"""Open files that are asked for."""

_LACKING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_Http: Any = AutoHTTPProtocol


class Connection(_Http):
    """uvicorn's connection, which closes where a request, or what is left of one, does not come."""

    patience = PATIENCE

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._looking = self.loop.call_later(self.patience, self._look)

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._looking.cancel()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, *event: Any) -> None:
        self._looking.cancel()
        super().handle_websocket_upgrade(*event)

    @property
    def awaits_body(self) -> bool:
        """Whether a request is under way whose body has not come whole."""
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body

    def _look(self) -> None:
        left = self.patience
        if self._waits():
            left += self._heard - self.loop.time()
            if left <= 0:
                self.transport.close()
                return
        self._looking = self.loop.call_later(left, self._look)

    def _waits(self) -> bool:
        """Whether it is the client's turn; the time between two requests is uvicorn's own to look at."""
        cycle = self.cycle
        if cycle is None:
            return True
        if cycle.response_complete:
            return self.timeout_keep_alive_task is None
        return cycle.more_body and not self.flow.read_paused


class Strain:
    """The event loop's handler of errors: that no connection can be taken is said once a minute, in one line."""

    EVERY = 60.0

    def __init__(self) -> None:
        self._said = -self.EVERY

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _LACKING:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._said >= self.EVERY:
            self._said = time.monotonic()
            say(f"no more connections can be taken until others end: {error.strerror}")


def allow_many() -> None:
    """Let this process have as many open files as the system allows it, up to `MOST_FILES`."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
