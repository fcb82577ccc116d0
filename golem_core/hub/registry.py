"""Who is there: the extensions that have registered and are still heard from.

A registration is checked whole before it replaces an earlier one of the same name, and lapses `TTL` seconds after
the last sign of life.  Nothing here does I/O; time comes from the clock that the registry is given.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from golem_core.hub.errors import Refused

__all__ = ["BUILTIN_TOOLS", "LOCAL", "TTL", "Registration", "Registry", "check_callback_url"]

TTL = 30.0
"""Seconds that a registration lives after a register or a heartbeat."""

RETURN = 60.0
"""Seconds in which a provider that went away may come back."""

LOCAL = "golem"
"""The provider id of the server's own models."""

BUILTIN_TOOLS = frozenset({"read", "write", "edit", "shell", "skill"})

_HOSTS = ("127.0.0.1", "localhost", "::1")
_BAD_URL = "callback_url must be http://127.0.0.1, localhost, or [::1]"


@dataclass(frozen=True)
class Registration:
    """What one extension has announced.

    `providers`, `tools` and `channels` are what the hub acts on; `others` are capabilities of kinds that it only
    lists.  `generation` tells registrations of the same name apart.
    """

    name: str
    callback_url: str
    generation: int
    providers: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    channels: tuple[Mapping[str, Any], ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()

    def listed(self) -> dict[str, Any]:
        """The registration as GET /v1/extensions shows it: as capabilities, and as an array for each kind."""
        kinds = {"provider": self.providers, "tool": self.tools, "channel": self.channels}
        capabilities = [{"kind": kind, **each} for kind, entries in kinds.items() for each in entries]
        shown: dict[str, Any] = {
            "name": self.name,
            "callback_url": self.callback_url,
            "capabilities": [*capabilities, *(dict(each) for each in self.others)],
        }
        return shown | {f"{kind}s": [dict(each) for each in entries] for kind, entries in kinds.items() if entries}


def check_callback_url(text: str) -> str:
    """`text` without a trailing slash, if it is an http URL of this machine that hides nothing; Refused otherwise."""
    if any(character <= " " or character in "?#@\\" or character > "~" for character in text):
        raise Refused(400, _BAD_URL)
    try:
        parts = urlsplit(text)
        usable = parts.scheme == "http" and parts.hostname in _HOSTS and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Refused(400, _BAD_URL)
    return text.rstrip("/")


class Registry:
    """The live registrations.  Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, tuple[Registration, float]] = {}
        self._generation = 0
        self._ended: dict[str, float] = {}  # providers that are gone, and since when

    def register(self, body: Any) -> Registration:
        """Take a registration as it came over the wire.  Refused leaves an earlier one of that name as it was."""
        asked = _read(body)
        with self._lock:
            others = [record for record in self._live() if record.name != asked.name]
            _check_tools(asked.tools, {tool["name"] for each in others for tool in each.tools})
            taken = {LOCAL} | {provider["id"] for each in others for provider in each.providers}
            if any(not _text(channel, "id").strip() for channel in asked.channels):
                raise Refused(400, "channel id is required")
            _check_ids("provider", asked.providers, taken)
            _check_ids("channel", asked.channels, {channel["id"] for each in others for channel in each.channels})
            self._generation += 1
            record = Registration(**{**vars(asked), "generation": self._generation})
            self._records[record.name] = (record, self._clock() + TTL)
        return record

    def heartbeat(self, body: Any) -> None:
        """Take a sign of life.  Refused (404) when nothing live has that name."""
        name = _name(_object(body))
        with self._lock:
            for record in self._live():
                if record.name == name:
                    self._records[name] = (record, self._clock() + TTL)
                    return
        raise Refused(404, "extension not found")

    def drop(self, name: str, generation: int | None = None) -> None:
        """Forget `name`; with a generation, only a registration that is not newer than it."""
        with self._lock:
            found = self._records.get(name)
            if found and (generation is None or found[0].generation <= generation):
                del self._records[name]
                self._ended |= {provider["id"]: self._clock() for provider in found[0].providers}

    def returning(self, provider: str) -> bool:
        """Whether a provider went away a short while ago, so that its process may be started again."""
        return self._clock() < self._ended.get(provider, float("-inf")) + RETURN

    @property
    def generation(self) -> int:
        """The generation of the newest registration of all."""
        return self._generation

    def live(self) -> list[Registration]:
        """The live registrations by name."""
        with self._lock:
            return sorted(self._live(), key=lambda record: record.name)

    def provider(self, identity: str) -> tuple[Registration, Mapping[str, Any]] | None:
        """The extension that provides `identity`, with what it says about it."""
        for record in self.live():
            for provider in record.providers:
                if provider["id"] == identity:
                    return record, provider
        return None

    def tools(self) -> dict[str, tuple[Registration, Mapping[str, Any]]]:
        """Every tool of a live extension, by its name."""
        return {tool["name"]: (record, tool) for record in self.live() for tool in record.tools}

    def _live(self) -> list[Registration]:
        now = self._clock()
        for name, (record, deadline) in list(self._records.items()):
            if now >= deadline:
                del self._records[name]
                self._ended |= {provider["id"]: now for provider in record.providers}
        return [record for record, _ in self._records.values()]


def _read(body: Any) -> Registration:
    """A registration as the body of a request has it, in either form; conflicts with others are not looked at."""
    body = _object(body)
    name = _name(body)
    url = check_callback_url(_text(body, "callback_url"))
    providers, others = [], []
    for each in _objects(body, "capabilities"):
        kind = _text(each, "kind")
        if not kind.strip():
            raise Refused(400, "capability kind is required")
        if kind == "provider":
            providers.append({key: value for key, value in each.items() if key != "kind"})
        else:
            others.append(each)
    providers += _objects(body, "providers")
    for each in providers:
        if not _text(each, "id").strip():
            raise Refused(400, "provider id is required")
        if not any([_flag(each, "chat"), _flag(each, "structured"), _flag(each, "embed")]):
            raise Refused(400, "provider must advertise chat or embed")
    tools = list(_objects(body, "tools"))
    for each in tools:
        if not _text(each, "name").strip():
            raise Refused(400, "tool name is required")
        _text(each, "description")
        if each.get("parameters") is None:
            raise Refused(400, "tool parameters are required")
        if not isinstance(each["parameters"], dict):
            raise Refused(400, "tool parameters must be an object")
    channels = list(_objects(body, "channels"))
    return Registration(name, url, 0, tuple(providers), tuple(tools), tuple(channels), tuple(others))


def _check_tools(tools: Iterable[Mapping[str, Any]], taken: set[str]) -> None:
    for name in (tool["name"] for tool in tools):
        if name in BUILTIN_TOOLS:
            raise Refused(409, f"tool {_quoted(name)} conflicts with a builtin")
        if name in taken:
            raise Refused(409, f"tool {_quoted(name)} is already registered")
        taken.add(name)


def _check_ids(kind: str, entries: Iterable[Mapping[str, Any]], taken: set[str]) -> None:
    for identity in (each["id"] for each in entries):
        if identity in taken:
            raise Refused(409, f"{kind} {_quoted(identity)} already registered")
        taken.add(identity)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Refused(400, "invalid json")
    return body


def _name(body: dict[str, Any]) -> str:
    name = _text(body, "name").strip()
    if not name:
        raise Refused(400, "name is required")
    return name


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refused(400, "invalid json")
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if value is not None and not isinstance(value, bool):
        raise Refused(400, "invalid json")
    return bool(value)


def _objects(body: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    value = body.get(key)
    if value is None:
        return
    if not isinstance(value, list):
        raise Refused(400, "invalid json")
    for each in value:
        yield _object(each)
