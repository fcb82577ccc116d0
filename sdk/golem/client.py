"""Talking to the server: posting turns, following them, and registering.

Requests go straight to the server; proxies that the environment names are for other hosts.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

from golem.errors import GolemError

__all__ = ["Client", "TurnEvent"]

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class TurnEvent:
    """One event of a turn: "log" for each tool call (line, name, args, result), then "done" (text) or "error"."""

    name: str
    data: dict[str, Any]


class Client:
    """A server at `url`, with its token.  Every method raises GolemError for a refusal or a failed connection."""

    def __init__(self, url: str, token: str = "", timeout: float = 30.0):
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout

    @classmethod
    def from_env(cls) -> Client:
        """The server that GOLEM_URL and GOLEM_TOKEN name, as a running extension has them."""
        return cls(os.environ.get("GOLEM_URL") or "http://127.0.0.1:8743", os.environ.get("GOLEM_TOKEN", ""))

    def health(self) -> bool:
        """Whether the server is there and knows the token."""
        return bool(self._json("GET", "/v1/health").get("ok"))

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the server answers.  Raises GolemError when it does not within `timeout` seconds."""
        until = time.monotonic() + timeout
        while True:
            try:
                if self.health():
                    return
                error = GolemError("the server is not ready")
            except GolemError as caught:
                error = caught
            if time.monotonic() >= until:
                raise GolemError(f"{self.url} did not answer within {timeout:g} s: {error}", error.status)
            time.sleep(0.4)

    def post_turn(self, conversation: str, channel: str, text: str) -> str:
        """Have a text of a conversation answered; returns the id of the turn at once."""
        path = f"/v1/conversations/{quote(conversation, safe='')}/turns"
        return str(self._json("POST", path, {"channel": channel, "text": text}).get("id"))

    def stream_turn(self, turn: str) -> Iterator[TurnEvent]:
        """The events of a turn from the first, as they come, up to "done" or "error"."""
        with self._open("GET", f"/v1/turns/{quote(turn, safe='')}", None, None) as response:
            name, data = "", []
            try:
                for raw in response:
                    line = raw.decode("utf-8").rstrip("\r\n")
                    if line:
                        field, _, value = line.partition(":")
                        value = value.removeprefix(" ")
                        if field == "event":
                            name = value
                        elif field == "data":
                            data.append(value)
                        continue
                    if data:
                        event = TurnEvent(name or "message", _object("\n".join(data)))
                        yield event
                        if event.name in ("done", "error"):
                            return
                    name, data = "", []
            except (OSError, HTTPException, UnicodeDecodeError) as error:
                raise GolemError(f"the stream of turn {turn} broke off: {error}") from None
        raise GolemError(f"the stream of turn {turn} ended without an answer")

    def send(self, conversation: str, channel: str, text: str) -> str:
        """Post a text and wait for the answer.  Raises GolemError for a turn that ends in an error."""
        for event in self.stream_turn(self.post_turn(conversation, channel, text)):
            if event.name == "done":
                return str(event.data.get("text", ""))
            if event.name == "error":
                raise GolemError(str(event.data.get("error", "the turn failed")))
        raise GolemError("the turn ended without an answer")

    def conversations(self, channel: str | None = None) -> list[dict[str, Any]]:
        """The conversations, or those of a channel; the latest first."""
        query = "" if channel is None else "?" + urlencode({"channel": channel})
        return list(self._json("GET", "/v1/conversations" + query).get("conversations") or [])

    def conversation(self, identity: str) -> dict[str, Any]:
        """One conversation with its messages."""
        return self._json("GET", f"/v1/conversations/{quote(identity, safe='')}")

    def extensions(self) -> list[dict[str, Any]]:
        """The extensions that are registered."""
        return list(self._json("GET", "/v1/extensions").get("extensions") or [])

    def register(
        self,
        name: str,
        callback_url: str,
        capabilities: Sequence[Mapping[str, Any]] | None = None,
        *,
        providers: Sequence[Mapping[str, Any]] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        channels: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Announce an extension, by kind, or as a list of capabilities that each have a "kind"."""
        body: dict[str, Any] = {"name": name, "callback_url": callback_url}
        kinds = {"capabilities": capabilities, "providers": providers, "tools": tools, "channels": channels}
        self._json("POST", "/v1/extensions/register", body | {key: list(each) for key, each in kinds.items() if each})

    def heartbeat(self, name: str) -> None:
        """Give a sign of life.  GolemError with status 404 asks to register again."""
        self._json("POST", "/v1/extensions/heartbeat", {"name": name})

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        with self._open(method, path, body, self.timeout) as response:
            try:
                return _object(response.read().decode("utf-8"))
            except (OSError, HTTPException, UnicodeDecodeError) as error:
                raise GolemError(f"{self.url}: {error}") from None

    def _open(self, method: str, path: str, body: Any, timeout: float | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, headers, method=method)
            return _opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise GolemError(_reason(error), error.code) from None
        except (OSError, HTTPException, ValueError) as error:  # ValueError: the URL is none
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise GolemError(f"{self.url} cannot be reached: {reason}") from None


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GolemError(f"expected a JSON object from the server, got {text[:60]!r}")
    return value


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        body = json.loads(error.read())
    except (OSError, ValueError, HTTPException):
        body = None
    told = body.get("error") if isinstance(body, dict) else None
    if isinstance(told, dict):
        told = told.get("message")
    return str(told or f"status {error.code}")
