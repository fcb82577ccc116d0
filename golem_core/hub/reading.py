"""JSON that others wrote, read so that every text in it can be stored and sent on."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["read_json", "whole_text"]

_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.  Half of a surrogate pair, which is no character, becomes U+FFFD.

    Raises ValueError for what is no JSON in UTF-8, and for what is nested too deeply.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text)
        return whole_text(value) if _HALF.search(text) else value
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def whole_text(value: Any) -> Any:
    """A JSON value whose texts have U+FFFD in place of halves of surrogate pairs."""
    written = json.dumps(value, ensure_ascii=False)
    return json.loads(written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
