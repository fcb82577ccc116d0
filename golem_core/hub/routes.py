"""The hub's HTTP side: /v1/health, conversations and turns, and the registration of extensions.

Ids are single percent-encoded segments, so they are read from the path as it was sent.  Errors are
{"error": "text"}; an error inside a turn is an event of its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from litestar import HttpMethod, Request, Response, get, post
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import route

from golem_core.hub.errors import Refused
from golem_core.hub.turns import Turn, TurnEvent, follow
from golem_core.server.log import entry
from golem_core.server.sse import PING, ByteStream, with_pings

if TYPE_CHECKING:
    from golem_core.hub.hub import Hub

__all__ = ["BODY_LIMIT", "PREFIXES", "handlers"]

PREFIXES = ("/v1/health", "/v1/conversations", "/v1/turns", "/v1/extensions")
BODY_LIMIT = 1 << 20
PING_SECONDS = 15.0

OK = {"ok": True}


def handlers(hub: Hub) -> list[Any]:
    """The route handlers."""

    @get("/v1/health", sync_to_thread=False, **_REFUSALS)
    def health() -> dict[str, bool]:
        """Whether the hub is there and the token is its own."""
        return OK

    @get("/v1/conversations", sync_to_thread=True, **_REFUSALS)
    def conversations(request: Request) -> dict[str, Any]:
        """All conversations, or those of a channel; the latest first."""
        return {"conversations": hub.store.conversations(request.query_params.get("channel"))}

    @route("/v1/conversations/{rest:path}", http_method=[HttpMethod.GET, HttpMethod.POST], **_REFUSALS)
    async def conversation(request: Request) -> Response[Any]:
        """POST {id}/turns: have a text answered.  GET {id}: a conversation with its messages."""
        match _segments(request, "/v1/conversations/"):
            case [identity, "turns"]:
                if request.method != "POST":
                    raise MethodNotAllowedException
                turn = await _accept(hub, identity, await _body(request))
                return Response({"id": turn.id}, status_code=202)
            case [identity]:
                if request.method == "POST":
                    raise MethodNotAllowedException
                found = await asyncio.to_thread(hub.store.conversation, identity)
                messages = await asyncio.to_thread(hub.store.messages, identity)
                return Response({**msgspec.to_builtins(found), "messages": messages}, status_code=200)
        raise Refused(404, "not found")

    @get("/v1/turns/{rest:path}", **_REFUSALS)
    async def turn(request: Request) -> Response[Any]:
        """The events of a turn, from the first to the last."""
        match _segments(request, "/v1/turns/"):
            case [identity]:
                return ByteStream(_written(hub.turns.find(identity)), "text/event-stream")
        raise Refused(404, "turn not found")

    @post("/v1/extensions/register", status_code=200, **_REFUSALS)
    async def register(request: Request) -> dict[str, bool]:
        """Announce an extension, in place of what its name stood for before."""
        hub.registry.register(await _body(request))
        return OK

    @post("/v1/extensions/heartbeat", status_code=200, **_REFUSALS)
    async def heartbeat(request: Request) -> dict[str, bool]:
        """Give a sign of life."""
        entry(request.scope).routine = True
        hub.registry.heartbeat(await _body(request))
        return OK

    @get("/v1/extensions", sync_to_thread=False, **_REFUSALS)
    def extensions() -> dict[str, Any]:
        """The extensions that are there."""
        return {"extensions": [record.listed() for record in hub.registry.live()]}

    return [health, conversations, conversation, turn, register, heartbeat, extensions]


def _refuse(request: Request, error: Refused) -> Response[Any]:
    entry(request.scope).refusal = str(error)
    return Response({"error": str(error)}, status_code=error.status)


_REFUSALS: Any = {"exception_handlers": {Refused: _refuse}}


def _segments(request: Request, prefix: str) -> list[str]:
    """The segments after `prefix`, decoded one by one; none of them may be empty."""
    raw = (request.scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    segments = [unquote(each) for each in raw.removeprefix(prefix).split("/")] if raw.startswith(prefix) else []
    return segments if all(segments) else []


async def _body(request: Request) -> Any:
    body = await request.body()
    if len(body) > BODY_LIMIT:
        raise Refused(400, "invalid json")
    try:
        body.decode()
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "invalid json") from None


async def _accept(hub: Hub, conversation: str, body: Any) -> Turn:
    if not isinstance(body, dict):
        raise Refused(400, "invalid json")
    channel, text = body.get("channel"), body.get("text")
    if not all(isinstance(each, str | None) for each in (channel, text)):
        raise Refused(400, "invalid json")
    channel, text = (channel or "").strip(), text or ""
    if not channel or not text.strip():
        raise Refused(400, "channel and text are required")
    return await asyncio.to_thread(hub.turns.accept, conversation, channel, text)


async def _written(turn: Turn) -> AsyncGenerator[bytes, None]:
    """The stream of a turn's events, with a comment now and then while there are none."""
    async with contextlib.aclosing(with_pings(follow(turn), PING_SECONDS)) as events:
        async for event in events:
            yield PING if event is None else _frame(event)


def _frame(event: TurnEvent) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.name.encode(), msgspec.json.encode(event.data))
