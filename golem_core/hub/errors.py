"""The two ways in which the hub says no: to a caller with a status, and about an extension that did not answer."""

from __future__ import annotations

from golem_core.errors import GolemError

__all__ = ["CallbackFailed", "Refused"]


class Refused(GolemError):
    """A request to the hub that cannot be done, with the HTTP status that says so."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class CallbackFailed(GolemError):
    """An extension that was called gave an error or no usable answer; `code` is the extension's own word for it.

    `unheard` when it did not even get the call, or went away during it.
    """

    def __init__(self, message: str, code: str | None = None, *, unheard: bool = False):
        super().__init__(message)
        self.code = code
        self.unheard = unheard
