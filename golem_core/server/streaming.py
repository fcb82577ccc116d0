"""An answer on its way to a client, whole or in pieces, in whatever form an endpoint writes them.

Somebody listens for the client hanging up all the while, and the slot is given back whatever happens.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from litestar import Request

from golem_core.server import errors
from golem_core.server.disconnect import unless_gone
from golem_core.server.errors import Refusal
from golem_core.server.log import Entry, entry
from golem_core.server.sse import ByteStream, with_pings
from golem_core.text import Event

if TYPE_CHECKING:
    from golem_core.engine import Generation, SortedAnswer, WholeAnswer

__all__ = ["Writer", "streamed", "whole"]

PING_SECONDS = 30.0

Step = list[Event] | None
"""The events of one token, or None for a while in which no token came."""


class Writer(Protocol):
    """How an endpoint writes a stream; b"" where it has nothing to write."""

    media_type: str

    def begin(self) -> bytes:
        """What stands before the first piece."""
        ...

    def piece(self, event: Event) -> bytes:
        """A piece of the answer."""
        ...

    def ping(self) -> bytes:
        """What shows that the connection lives while nothing is drawn."""
        ...

    def end(self) -> bytes:
        """What follows the last piece.  Raises GolemError if the answer was cut off."""
        ...

    def failure(self, refusal: Refusal) -> bytes:
        """What ends a stream that has begun and cannot go on."""
        ...


async def whole(request: Request, answer: SortedAnswer) -> WholeAnswer:
    """All of an answer.  Raises ClientGone when nobody waits for it any more."""
    try:
        return await unless_gone(request.receive, answer.whole())
    finally:
        answer.generation.cancel()
        entry(request.scope).generation(answer.generation)


async def streamed(request: Request, answer: SortedAnswer, writer: Writer) -> ByteStream:
    """A stream whose headers leave once there is something to send: until then a failure is a plain refusal."""
    steps = with_pings(aiter(answer), PING_SECONDS)
    log = entry(request.scope)
    try:
        first = await unless_gone(request.receive, _first(steps, answer.generation))
    except BaseException:
        answer.generation.cancel()
        log.generation(answer.generation)
        raise
    return ByteStream(_written(answer, writer, first, steps, log), writer.media_type)


async def _first(steps: AsyncIterator[Step], generation: Generation) -> list[Step]:
    """What to begin with: the first token, a ping once the slot is taken, or the end when the answer is empty."""
    async for step in steps:
        if step is not None or generation.slot is not None:
            return [step]
    return []


async def _written(
    answer: SortedAnswer, writer: Writer, first: list[Step], steps: AsyncGenerator[Step, None], log: Entry
) -> AsyncGenerator[bytes, None]:
    def written(step: Step) -> bytes:
        return writer.ping() if step is None else b"".join(map(writer.piece, step))

    try:
        async with aclosing(steps):
            if out := writer.begin():
                yield out
            for step in first:
                if out := written(step):
                    yield out
            async for step in steps:
                if out := written(step):
                    yield out
        yield writer.end()
    except Exception as error:
        refusal = errors.refusal_of(error)
        log.refusal = refusal.message
        yield writer.failure(refusal)
    finally:
        answer.generation.cancel()
        log.generation(answer.generation)
