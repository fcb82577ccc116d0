"""What serves: the ASGI application made of every plugin's endpoints, and the running of it on a bound socket.

The web framework is imported here and in the endpoints, so that `app` can begin to load a model before.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import uvicorn
from litestar import Litestar, Request

from golem_core import plugins
from golem_core.options import Address
from golem_core.server import errors
from golem_core.server.connections import Connection, Strain, allow_many
from golem_core.server.cors import Cors
from golem_core.server.guard import Guard, is_loopback
from golem_core.server.log import RequestLog, say
from golem_core.server.refusal import Refusal

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["Runner", "application"]

BODY_LIMIT = 64 << 20
KEEP_ALIVE = 75  # seconds; clients drop an idle connection first, so that they never send into a closing one
WAITING = 2048  # connections that the system keeps until they are taken
GRACE = 5  # seconds that answers under way have when the server is told to stop
REST = 3  # more seconds in which those that were cut off can say so
CONVERSATIONS = (
    *("/v1/chat/completions", "/api/chat", "/api/generate", "/tokenize", "/detokenize", "/apply-template", "/slots"),
    *("/props", "/metrics"),  # an embedding model has these, too
)
"""The paths where a conversation model answers."""


class _Litestar(Litestar):
    """Litestar without its plugins for pydantic, unless something has imported pydantic: that takes 0.2 s."""

    @staticmethod
    def _get_default_plugins(plugins: list[Any]) -> list[Any]:
        if "pydantic" in sys.modules:
            return Litestar._get_default_plugins(plugins)
        from litestar.plugins.core import MsgspecDIPlugin

        return [*plugins, MsgspecDIPlugin()]


def application(server: Server) -> Any:
    """The ASGI application for what `server` has loaded."""
    app: Any = _routed(plugins.installed().endpoints(server), errors.handler(server.envelopes, unloaded(server)))

    def refuse(scope: Any, refusal: Refusal) -> Any:
        response = errors.respond(server.envelopes, scope["path"], refusal)
        return response.to_asgi_response(app=None, request=Request(scope))

    listening: Address = server.options["addr"]
    app = _HeadAsGet(app)
    app = Guard(
        app,
        local=is_loopback(listening.host),
        keys=server.options["api-key"],
        answer=refuse,
        admissions=server.admissions,
        origins=server.options["cors"],
    )
    if server.options["cors"]:
        app = Cors(app, server.options["cors"])
    return _OriginForm(RequestLog(app, server.totals.count))


def _routed(endpoints: list[tuple[plugins.Plugin, Any]], handle: Any) -> Litestar:
    """Litestar with these route handlers, without those of plugins whose handlers it does not take beside the rest."""

    def made(handlers: list[Any]) -> Litestar:
        return _Litestar(
            route_handlers=handlers,
            exception_handlers={Exception: handle},
            request_max_body_size=BODY_LIMIT,
            openapi_config=None,
            logging_config=None,
        )

    try:
        return made([handler for _, handler in endpoints])
    except Exception:  # a stranger's handlers may be anything; whose they are is looked for
        taken: list[Any] = []
        for plugin in {id(plugin): plugin for plugin, _ in endpoints}.values():
            own = [handler for other, handler in endpoints if other is plugin]
            try:
                made([*taken, *own])
            except Exception as error:
                if plugin.name == plugins.CORE:
                    raise
                plugin.fail(f"golem_endpoints: {plugins.reason(error)}")
            else:
                taken += own
        return made(taken)


def unloaded(server: Server) -> dict[str, str]:
    """By path, the option with which a server holds the part that answers there, for parts that this one has not."""
    options = {option.name: option for option in plugins.installed().options()}
    found = {} if server.chat is not None else dict.fromkeys(CONVERSATIONS, "-model FILE")
    return found | {
        path: f"-{part.option} {options[part.option].example}" if part.option in options else f"-{part.option}"
        for part in plugins.installed().parts()
        if part.option not in server.parts
        for path in part.paths
    }


class _OriginForm:
    """ASGI middleware for requests whose target is a whole URL, as http://host/path, which uvicorn gives as the path:
    such a request asks for the path at the host of the URL, whatever its Host header says (RFC 9112, section 3.2.2)."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        target = scope.get("raw_path") or b""
        if whole := re.fullmatch(rb"https?://([^/]*)(.*)", target, re.IGNORECASE):
            host, path = whole[1], whole[2] or b"/"
            headers = [(b"host", host), *((name, value) for name, value in scope["headers"] if name != b"host")]
            scope = {**scope, "raw_path": path, "path": unquote(path.decode("ascii")), "headers": headers}
        await self.app(scope, receive, send)


class _HeadAsGet:
    """ASGI middleware that answers HEAD with the headers of GET; the HTTP layer leaves the body out.

    Where an answer lists the methods of a path, HEAD stands beside GET.
    """

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}

        async def listing(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (name, _with_head(value) if name == b"allow" else value)
                    for name, value in message.get("headers", ())
                ]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, listing)


def _with_head(methods: bytes) -> bytes:
    found = set(methods.replace(b",", b" ").split())
    return b", ".join(sorted(found | {b"HEAD"} if b"GET" in found else found))


class Runner(uvicorn.Server):
    """uvicorn's server for an application and a bound socket.

    SIGINT and SIGTERM let answers under way finish for a while, during which `stopping` is called on threads; then
    `cut` ends those that are left, and `run` returns, so that what was loaded is released.  A second SIGINT does not
    wait.
    """

    def __init__(
        self,
        app: Any,
        bound: socket.socket,
        stopping: Sequence[Callable[[], None]] = (),
        cut: Callable[[], None] = lambda: None,
    ):
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE + REST,
            http=Connection,
            # asyncio takes so many connections at a time, and tries so often, each time, where there is no more room.
            backlog=1,
        )
        super().__init__(config)
        self.bound = bound
        self.stopping = stopping
        self.cut = cut

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        allow_many()
        asyncio.get_running_loop().set_exception_handler(Strain())
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.tasks:
            say(f"stopping: answers under way have {GRACE} seconds; interrupt again to stop at once")
        stopping = [asyncio.to_thread(each) for each in self.stopping]
        ending = asyncio.create_task(self.cut_later())
        try:
            await asyncio.gather(super().shutdown(sockets), *stopping)
            if self.force_exit:
                await self.hang_up()
        finally:
            ending.cancel()

    async def hang_up(self) -> None:
        """Close the connections that are left, so that their answers end as those of clients that are gone."""
        for each in list(self.server_state.connections):
            each.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=1)

    async def cut_later(self) -> None:
        await asyncio.sleep(GRACE)
        self.cut()
        for each in list(self.server_state.connections):
            if isinstance(each, Connection) and each.awaits_body:
                each.transport.abort()
        await asyncio.sleep(REST - 1)
        await self.hang_up()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run(sockets or [self.bound])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in earlier.items():
                signal.signal(each, handler)
