"""The small HTTP server that an extension is called back at: loopback only, and only with the server's token."""

from __future__ import annotations

import hmac
import json
import sys
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from golem.errors import UnsupportedFormat
from golem.messages import JSONSchema, Message, ToolDef
from golem.provider import Provider, abilities
from golem.tools import Tool

__all__ = ["CallbackServer"]

BODY_LIMIT = 64 << 20


class Refused(Exception):
    """A call that cannot be answered, with its status."""

    def __init__(self, status: int, message: str, code: str = ""):
        super().__init__(message)
        self.status = status
        self.code = code


class CallbackServer(ThreadingHTTPServer):
    """Answers for a provider and for tools, at a port of 127.0.0.1 that the system chooses."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, token: str, provider: Provider | None, tools: Mapping[str, Tool]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.provider = provider
        self.tools = tools

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hung up is no event; anything else is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def answer(self, path: str, body: Any) -> dict[str, Any]:
        """What a call is answered.  Raises Refused."""
        if path.startswith("/v1/tools/"):
            tool = self.tools.get(unquote(path.removeprefix("/v1/tools/")))
            if tool is None:
                raise Refused(404, "not found")
            return {"result": tool(_object(body))}
        words = {"/v1/chat": "chat", "/v1/chat/structured": "structured", "/v1/embed": "embed"}
        if self.provider is None or words.get(path) not in abilities(self.provider):
            raise Refused(404, "not found")
        body = _object(body)
        model = str(body.get("model") or "")
        if path == "/v1/embed":
            texts = body.get("texts")
            if not isinstance(texts, list):
                raise Refused(400, "texts must be a list")
            return {"vectors": self.provider.embed(model, texts)}
        messages = [Message.from_dict(_object(each)) for each in body.get("messages") or []]
        if path == "/v1/chat":
            tools = [ToolDef.from_dict(_object(each)) for each in body.get("tools") or []]
            return self.provider.chat(model, messages, tools or None).to_dict()
        schema = JSONSchema.from_dict(_object(body.get("schema") or {}))
        return {"data": self.provider.chat_structured(model, messages, schema)}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "invalid JSON")
    return value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CallbackServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        try:
            status, answer = 200, self.server.answer(self.path, self._read())
        except Refused as error:
            status, answer = error.status, _error(str(error), error.code)
        except UnsupportedFormat as error:
            status, answer = 400, _error(str(error), "unsupported_format")
        except Exception as error:
            traceback.print_exc()
            status, answer = 500, _error(str(error) or type(error).__name__)
        self._send(status, answer)

    def do_GET(self) -> None:
        self._send(404, _error("not found"))

    def _read(self) -> Any:
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if not 0 <= length <= BODY_LIMIT:
            self.close_connection = True
            raise Refused(400, "invalid JSON")
        body = self.rfile.read(length)
        given = self.headers.get("Authorization", "").encode("latin-1")
        if self.server.token and not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            raise Refused(401, "unauthorized")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(400, "invalid JSON") from None

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        try:
            body = json.dumps(answer).encode()
        except (TypeError, ValueError) as error:
            status, body = 500, json.dumps(_error(f"the answer is not JSON: {error}")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged; the server logs its turns."""


def _error(message: str, code: str = "") -> dict[str, Any]:
    return {"error": ({"code": code} if code else {}) | {"message": message}}
