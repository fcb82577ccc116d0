"""GET /openapi.json: what this server answers, written down for programs.

Handlers say with `described` which structs they read and write; the document is made of these and of the docstrings
when somebody asks for it first.  A handler that says nothing, a plugin's perhaps, is listed by its path.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, get
from msgspec import Meta

from golem_core.server import errors

if TYPE_CHECKING:
    from golem_core.server.app import Server

__all__ = ["described", "handlers"]

_KEY = "golem.described"


@dataclass(frozen=True)
class _Described:
    body: Any
    answer: Any
    stream: tuple[str, Any] | None
    query: Mapping[str, tuple[Any, str]] = field(default_factory=dict)


class OpenAIErrorBody(msgspec.Struct):
    """Why a request was refused."""

    message: Annotated[str, Meta(description="What is wrong; names the field and the value.")]
    type: Annotated[str, Meta(description='The kind of error, such as "invalid_request_error".')]
    param: Annotated[str | None, Meta(description="The field at fault, if it is one.")]
    code: Annotated[str | None, Meta(description='A word for programs, such as "context_length_exceeded".')]


class OpenAIError(msgspec.Struct):
    """The envelope of errors under /v1."""

    error: Annotated[OpenAIErrorBody, Meta(description="The error.")]


class OllamaError(msgspec.Struct):
    """The envelope of errors under /api."""

    error: Annotated[str, Meta(description="What is wrong; names the field and the value.")]


_ENVELOPES: dict[Any, Any] = {errors.openai_envelope: OpenAIError, errors.ollama_envelope: OllamaError}


def described(
    *,
    body: Any = None,
    answer: Any = str,
    stream: tuple[str, Any] | None = None,
    query: Mapping[str, tuple[Any, str]] | None = None,
) -> dict[str, Any]:
    """Keywords for a route decorator: the struct of the body, and what comes back.

    `answer` is a struct, or str for plain text; `stream` a media type and the struct of one piece; `query` the type
    and the meaning of each parameter.
    """
    return {"opt": {_KEY: _Described(body, answer, stream, query or {})}}


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need nothing to be loaded."""
    made: list[bytes] = []

    @get("/openapi.json", sync_to_thread=True, **described(answer=dict[str, Any]))
    def openapi(request: Request) -> Response[bytes]:
        """This document."""
        if not made:
            made.append(msgspec.json.encode(_document(server, request.app)))
        return Response(made[0], media_type="application/json")

    return [openapi]


def _document(server: Server, app: Any) -> dict[str, Any]:
    from golem_core.plugins import version

    found = [
        (route.path_format, method, handler)
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        for method in sorted(handler.http_methods)
        if method not in ("HEAD", "OPTIONS")
    ]
    types: list[Any] = [OpenAIError, OllamaError]
    for _, _, handler in found:
        about = handler.opt.get(_KEY)
        if about is not None:
            streamed = about.stream[1] if about.stream else None
            parameters = [kind for kind, _ in about.query.values()]
            types += [each for each in (about.body, about.answer, streamed, *parameters) if each is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for path, method, handler in found:
        paths.setdefault(path, {})[method.lower()] = _operation(server, path, method, handler, schema)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "golem", "version": version(), "description": f"What this server answers for {server.name}."},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components},
    }
    if server.options["api-key"]:
        schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
        schemes["header"] = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
        document["components"]["securitySchemes"] = schemes
        document["security"] = [{"bearer": []}, {"header": []}]
    return document


def _operation(server: Server, path: str, method: str, handler: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    about: _Described | None = handler.opt.get(_KEY)
    text = inspect.cleandoc(handler.fn.__doc__ or "")
    summary, _, rest = text.partition("\n\n")
    operation: dict[str, Any] = {"operationId": f"{method.lower()} {path}", "summary": " ".join(summary.split())}
    if rest:
        operation["description"] = rest
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{([^}:]+)", path)
    ]
    answers: dict[str, Any] = {}
    if about is not None:
        for name, (kind, meaning) in about.query.items():
            found = {"name": name, "in": "query", "required": False, "description": meaning}
            parameters.append(found | {"schema": schema[repr(kind)]})
        if about.body is not None:
            content = {"application/json": {"schema": schema[repr(about.body)]}}
            operation["requestBody"] = {"required": True, "content": content}
        media = "text/plain" if about.answer is str else "application/json"
        answers = {media: {"schema": schema[repr(about.answer)]}}
        if about.stream is not None:
            answers[about.stream[0]] = {"schema": schema[repr(about.stream[1])]}
    if parameters:
        operation["parameters"] = parameters
    refused = _ENVELOPES.get(errors.envelope_of(server.envelopes, path))
    error = {"type": "object"} if refused is None else schema[repr(refused)]
    operation["responses"] = {
        "200": {"description": "The answer.", "content": answers},
        "default": {"description": "Why not.", "content": {"application/json": {"schema": error}}},
    }
    return operation
