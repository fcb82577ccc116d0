"""What can go wrong between an extension and its server."""

from __future__ import annotations

__all__ = ["GolemError", "UnsupportedFormat"]


class GolemError(Exception):
    """The server refused something, could not be reached, or ended a turn with an error.

    `status` is the HTTP status, where there was one.
    """

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status


class UnsupportedFormat(Exception):
    """Raised by a provider whose model does not give structured answers; the server asks in plain chat then."""
