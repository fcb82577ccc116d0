"""The errors that golem raises on purpose.

Each names the offending thing and, where there is one, the cure.  The server maps them to an HTTP
envelope and the command line to one line; anything else that escapes is a defect.
"""

from __future__ import annotations

from math import isfinite
from typing import Any


class GolemError(Exception):
    """Base of every error that golem raises on purpose."""


class BadFile(GolemError):
    """A weights file cannot be read: truncated, contradictory, or not of the format it claims."""


class Unsupported(GolemError):
    """Something well-formed that nothing installed here can do: an architecture, an op, a weight type."""


class Unavailable(GolemError):
    """Something that was there is not any more, or not now: the server is stopping."""


class BadRequest(GolemError):
    """A request that cannot be answered as it stands.

    `param` is the request field at fault, `code` a machine-readable reason, `details` extra fields for
    the error body (counts, limits).
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, **details: object):
        super().__init__(message)
        self.param = param
        self.code = code
        self.details = details


def shown(value: Any) -> str:
    """A value as a refusal quotes it: its JSON, cut when it is long."""
    import msgspec

    if isinstance(value, float) and not isfinite(value):
        return str(value)  # JSON has no such numbers
    try:
        text = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, OverflowError, RecursionError, UnicodeEncodeError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
