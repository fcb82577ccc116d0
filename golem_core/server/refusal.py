"""What a client is told: a status with a message, and the envelopes that families of endpoints put it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Envelope", "Refusal", "ollama_envelope", "openai_envelope"]

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


@dataclass(frozen=True)
class Refusal:
    """A status with what is said about it; `details` are further fields of the error object."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A message may quote what a client sent, lone surrogates among it, which no answer and no log can carry.
        object.__setattr__(self, "message", self.message.encode(errors="backslashreplace").decode())

    @property
    def type(self) -> str:
        """The word that OpenAI's clients know this status by."""
        return _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")


Envelope = Callable[[Refusal], Mapping[str, Any]]


def openai_envelope(refusal: Refusal) -> Mapping[str, Any]:
    """The error object of OpenAI's API."""
    body = {"message": refusal.message, "type": refusal.type, "param": refusal.param, "code": refusal.code}
    return {"error": {**body, **refusal.details}}


def ollama_envelope(refusal: Refusal) -> Mapping[str, Any]:
    """The error object of ollama's API."""
    return {"error": refusal.message}
