"""Reading request bodies: JSON whatever the content type says, into the endpoint's msgspec struct.

A body that cannot be read is a BadRequest that names the field at fault and what was found there.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from golem_core.errors import BadRequest
from golem_core.errors import shown as shown

__all__ = ["Number", "read_body", "shown", "whole"]

T = TypeVar("T")

MOST_PARTS = 1_000_000
"""Arrays, objects and their members in a body: more would hold up everybody for many seconds while it is read."""

Number = int | float | None
"""A JSON number or nothing: clients write whole numbers as 8.0 too."""


def read_body(body: bytes, kind: type[T]) -> tuple[T, dict[str, Any]]:
    """Decode `body` as a struct of type `kind`, and return it with the plain object that it was read from.

    Fields that the struct does not know are ignored; of repeated keys the last counts.
    """
    if sum(map(body.count, b"[{:")) > MOST_PARTS and (found := _parts(body)) > MOST_PARTS:
        raise BadRequest(
            f"the body is not JSON for this endpoint: it has {found} arrays, objects and members; {MOST_PARTS} at most "
            "are read"
        )
    try:
        plain = msgspec.json.decode(body)
        body.decode()  # the decoder does not look inside the strings that it skips
    except RecursionError:
        raise BadRequest("the body is not JSON for this endpoint: it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {_instead(body) or error}") from None
    if not isinstance(plain, dict):
        raise BadRequest(f"the body is not JSON for this endpoint: expected an object, got {shown(plain)}")
    try:
        return msgspec.convert(plain, kind), plain
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        path = path.strip("`").removeprefix("$").removeprefix(".")
        value = _value_at(plain, path)
        expected = _in_words(reason.partition(", got ")[0])
        where = path or "body"
        raise BadRequest(f"{where}: {expected}, got {shown(value)}", param=re.split(r"[.\[]", where)[0]) from None


_BEGINNINGS = {
    b"\x1f\x8b": "it is compressed by gzip",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd",
    b"\xef\xbb\xbf": "it begins with a byte order mark",
    b"\xff\xfe": "it is UTF-16 or UTF-32, and UTF-8 is read",
    b"\xfe\xff": "it is UTF-16, and UTF-8 is read",
}


def _instead(body: bytes) -> str | None:
    """What a body is in place of JSON, where that is plain."""
    if not body.strip():
        return "it is empty"
    return next((what for begin, what in _BEGINNINGS.items() if body.startswith(begin)), None)


def _parts(body: bytes) -> int:
    """How many of [, { and : stand outside of the texts of a JSON body."""
    import numpy as np

    characters = np.frombuffer(body.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    inside = np.cumsum(characters == ord('"'), dtype=np.uint8) & 1
    opening = (characters == ord("[")) | (characters == ord("{")) | (characters == ord(":"))
    return int(np.count_nonzero(opening & (inside == 0)))


_WORDS = {
    "array": "an array", "bool": "true or false", "float": "a number", "int": "a whole number", "object": "an object",
    "str": "a text",
}  # fmt: skip


def _in_words(reason: str) -> str:
    """What a validation expected, with JSON's kinds in place of Python's types."""
    before, _, types = reason.partition("`")
    before = before.replace("Expected", "expected")
    types, _, behind = types.partition("`")
    kinds = [kind for kind in types.split(" | ") if kind not in ("null", "")]
    if "float" in kinds:
        kinds = [kind for kind in kinds if kind != "int"]
    return before + " or ".join(_WORDS.get(kind, kind) for kind in kinds) + behind


def whole(value: Number, field: str, most: int = (1 << 63) - 1) -> int | None:
    """`value` as a whole number of at least -2⁶³ and at most `most`, or BadRequest naming `field`."""
    if value is None:
        return None
    if not isinstance(value, int) and not (math.isfinite(value) and value == int(value)):
        raise BadRequest(f"{field}: expected a whole number, got {shown(value)}", param=field)
    if not -(1 << 63) <= value <= most:
        raise BadRequest(f"{field}: expected a number from {-(1 << 63)} to {most}, got {shown(value)}", param=field)
    return int(value)


def _value_at(value: Any, path: str) -> Any:
    for name, index in re.findall(r"([^.\[\]]+)|\[([0-9.]*)\]", path):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and index.isdigit() and int(index) < len(value):
            value = value[int(index)]
        else:
            break
    return value
