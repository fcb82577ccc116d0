"""Calling an extension back: one JSON request over loopback HTTP, and what its answer means.

No proxy, no redirect, a limit on the answer's size, and a limit on the time of the whole call, however slowly
the answer comes.  Calls may be made from any thread; `close` ends those under way.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from golem_core.hub.errors import CallbackFailed
from golem_core.hub.reading import read_json
from golem_core.hub.registry import Registration

__all__ = ["ANSWER_LIMIT", "TIMEOUT", "Callbacks"]

TIMEOUT = 120.0
ANSWER_LIMIT = 16 << 20

_HOSTS = {"localhost": ("127.0.0.1", "::1"), "::1": ("::1",)}
"""The addresses of a callback's host, asked of nobody, so that a call cannot leave this machine."""


class Callbacks:
    """Requests to extensions, each with the hub's token."""

    def __init__(self, token: str, timeout: float = TIMEOUT):
        self.token = token
        self.timeout = timeout
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    def post(self, extension: Registration, path: tuple[str, ...], body: Any) -> dict[str, Any]:
        """POST `body` as JSON and return the object that comes back.

        `path` is segments, which are quoted.  Raises CallbackFailed, naming the extension, for an error object
        whatever the status, for any status but 200, and for no answer within the time.
        """
        place = urlsplit(extension.callback_url)
        target = "/".join([place.path, *(quote(segment, safe="") for segment in path)])
        hosts = _HOSTS.get(place.hostname or "", ("127.0.0.1",))
        status, content, cut = self._exchange(
            extension.name, hosts, place.port or 80, target, msgspec.json.encode(body)
        )
        try:
            answer = read_json(content)
        except ValueError:
            answer = None
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            message = error.get("message") or error.get("code") or "an error without a message"
            code = error.get("code")
            raise CallbackFailed(f"{extension.name}: {message}", code if isinstance(code, str) else None)
        if error:
            raise CallbackFailed(f"{extension.name}: {error}")
        if status != 200:
            raise CallbackFailed(f"{extension.name}: unexpected status {status}")
        if not isinstance(answer, dict):
            raise CallbackFailed(f"{extension.name}: the answer is not a JSON object", unheard=cut and answer is None)
        return answer

    def close(self) -> None:
        """End the calls under way; later ones fail."""
        with self._lock:
            self._closed = True
            for each in self._open:
                _shut(each)

    def _exchange(
        self, name: str, hosts: Sequence[str], port: int, target: str, body: bytes
    ) -> tuple[int, bytes, bool]:
        """Status and body, and whether nothing but the connection's end says that the body is whole."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        late = threading.Event()
        connection = timer = None
        try:
            connection = _connected(hosts, port, self.timeout)
            opened = connection.sock
            self._enter(opened)
            timer = threading.Timer(self.timeout, lambda: (late.set(), _shut(opened)))
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
                content = answer.read(ANSWER_LIMIT + 1)
                if answer.length and len(content) <= ANSWER_LIMIT:
                    raise ConnectionError("the answer was cut off")
            finally:
                self._leave(opened)
        except (OSError, http.client.HTTPException) as error:
            unheard = not (late.is_set() or self._closed or isinstance(error, TimeoutError))
            raise CallbackFailed(f"{name}: {self._why(error, late)}", unheard=unheard) from None
        finally:
            if timer is not None:
                timer.cancel()
            if connection is not None:
                connection.close()
        if late.is_set():
            raise CallbackFailed(f"{name}: no answer within {self.timeout:g} s")
        if len(content) > ANSWER_LIMIT:
            raise CallbackFailed(f"{name}: the answer is larger than {ANSWER_LIMIT} bytes")
        return answer.status, content, answer.length is None and not answer.chunked

    def _why(self, error: Exception, late: threading.Event) -> str:
        if self._closed:
            return "the server is stopping"
        if late.is_set() or isinstance(error, TimeoutError):
            return f"no answer within {self.timeout:g} s"
        if isinstance(error, ConnectionRefusedError):
            return "nothing listens at its callback_url"
        return f"the connection failed: {error or type(error).__name__}"

    def _enter(self, opened: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError("the server is stopping")
            self._open.add(opened)

    def _leave(self, opened: socket.socket) -> None:
        with self._lock:
            self._open.discard(opened)


def _connected(hosts: Sequence[str], port: int, timeout: float) -> http.client.HTTPConnection:
    """A connection to the first of `hosts` that has a listener at `port`; OSError of the last one if none has."""
    *others, last = hosts
    for host in others:
        with contextlib.suppress(ConnectionRefusedError):
            return _connected([host], port, timeout)
    connection = http.client.HTTPConnection(last, port, timeout=timeout)
    connection.connect()
    return connection


def _shut(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
