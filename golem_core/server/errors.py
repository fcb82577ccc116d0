"""What a client is told when something goes wrong: exceptions become a status, and a status an envelope.

Each family of endpoints has an envelope of its own: OpenAI's object under /v1, one text under /api, and
whatever a plugin declares for its paths in `server.envelopes`.  Errors that the framework raises (unknown path,
wrong method, body too large) leave in the same envelopes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException, InternalServerException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from golem_core.errors import BadRequest, GolemError, Unavailable
from golem_core.server.disconnect import ClientGone
from golem_core.server.log import entry, say_defect
from golem_core.server.refusal import Envelope, Refusal, ollama_envelope, openai_envelope

if TYPE_CHECKING:
    from litestar import Litestar, Request

GONE = "client disconnected prematurely"
"""What the framework says where a body ends with its connection."""

__all__ = ["Envelope", "Refusal", "envelope_of", "ollama_envelope", "openai_envelope", "refusal_of", "respond"]


def refusal_of(error: Exception) -> Refusal:
    """The refusal that an exception stands for.  An exception that nobody raised on purpose is printed."""
    if isinstance(error, BadRequest):
        return Refusal(400, _line(error), error.param, error.code, error.details)
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail, headers=dict(error.headers or {}))
    # What fails here fails again when it is asked again; clients would otherwise retry every 5xx.
    once = {"x-should-retry": "false"}
    if isinstance(error, Unavailable):
        return Refusal(503, str(error))
    if isinstance(error, GolemError):
        return Refusal(500, _line(error), headers=once)
    say_defect(error)
    return Refusal(500, f"internal error: {type(error).__name__}", headers=once)


def _line(error: Exception) -> str:
    """What an error says, in one line; a chat template may say anything."""
    return re.sub(r"\s*[\r\n]\s*", " ", str(error).strip())


def envelope_of(envelopes: Mapping[str, Envelope], path: str) -> Envelope:
    """The envelope of the longest prefix of `path`; OpenAI's where none is declared."""
    path = _routed(path)
    prefix = max((each for each in envelopes if path == each or path.startswith(each + "/")), key=len, default=None)
    return openai_envelope if prefix is None else envelopes[prefix]


def _routed(path: str) -> str:
    """A path as the router reads it."""
    return re.sub("/+", "/", path).rstrip("/") or "/"


def respond(envelopes: Mapping[str, Envelope], path: str, refusal: Refusal) -> Response[bytes]:
    """The response that tells a client about `refusal` in the envelope of the longest prefix of `path`."""
    body = msgspec.json.encode(envelope_of(envelopes, path)(refusal))
    return Response(body, status_code=refusal.status, media_type="application/json", headers=dict(refusal.headers))


def handler(envelopes: Mapping[str, Envelope], unloaded: Mapping[str, str]) -> Callable[[Request, Exception], Response]:
    """The one exception handler of the application.  `unloaded` says by path how the server is started with what
    answers there."""

    def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientGone) or (isinstance(error, InternalServerException) and error.detail == GONE):
            return Response(b"", status_code=499)  # nobody reads it; the log does
        refusal = refusal_of(error)
        path = request.scope["path"]
        if refusal.status == 404 and isinstance(error, HTTPException) and error.detail == "Not Found":
            how = unloaded.get(_routed(path))
            start = "" if how is None else f": nothing is loaded that answers there; start with {how}"
            refusal = Refusal(404, f"there is no {request.method} {path} here{start}")
        elif refusal.status == 405:
            allowed = ", ".join(_methods(request.app, path))
            message = f"{request.method} is not a method of {path}; it takes {allowed}"
            refusal = Refusal(405, message, headers={"allow": allowed})
        elif isinstance(error, RequestEntityTooLarge):
            refusal = Refusal(413, f"the request's body is larger than {request.app.request_max_body_size} bytes")
        entry(request.scope).refusal = refusal.message
        return respond(envelopes, path, refusal)

    return handle


def _methods(app: Litestar, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    found: set[str] = set()
    for route in app.routes:
        components = route.path_components
        if len(components) == len(parts) and all(
            not isinstance(component, str) or component == part
            for component, part in zip(components, parts, strict=True)
        ):
            found |= set(getattr(route, "methods", ()))
    return sorted(found | {"HEAD"} if "GET" in found else found)
