"""The content of a message: a text, or parts with pictures and recordings among them, as templates read it.

`read_content` is for every way in; what stands for a medium is read by the function that it is given.  `of_caller` is
that of the Python API, whose callers hand over bytes, paths and pictures.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from golem_core.errors import BadRequest, shown
from golem_core.media.sources import Kind, Medium, read_file, read_source

MOST_PARTS = 10_000
PARTS: dict[str, tuple[Kind, str]] = {"image_url": ("image", "url"), "input_audio": ("audio", "data")}
"""By the type of a part: what it is, and the key of its source where it has an object."""
OF_CALLERS: dict[str, tuple[Kind, str]] = {**PARTS, "image": ("image", "url"), "audio": ("audio", "data")}

_SOURCES: dict[Kind, str] = {
    "image": "bytes, a path, a data: URI or an image of Pillow's",
    "audio": "bytes, a path or a data: URI",
}

Content = str | list[dict[str, Any]]


def read_content(
    content: Sequence[Any],
    where: str,
    read: Callable[[Kind, Any, str], Medium],
    types: Mapping[str, tuple[Kind, str]] = PARTS,
) -> tuple[Content, list[Medium]]:
    """What a template is given for an array of parts, and the media among them: pictures, then recordings.

    Where there are media, the template gets a part for each, and then the texts as one.  `read(kind, source, where)`
    makes a medium of what stands at `where`.  Raises BadRequest naming the part.
    """
    if len(content) > MOST_PARTS:
        raise _bad(f"{where}: {len(content)} parts; {MOST_PARTS} at most are taken")
    parts = [_part(part, f"{where}[{index}]", read, types) for index, part in enumerate(content)]
    text = "\n".join(part for part in parts if isinstance(part, str))
    found = sorted((part for part in parts if isinstance(part, Medium)), key=lambda each: each.kind == "audio")
    if not found:
        return text, []
    return [*({"type": each.kind} for each in found), {"type": "text", "text": text}], found


def _part(
    part: Any, where: str, read: Callable[[Kind, Any, str], Medium], types: Mapping[str, tuple[Kind, str]]
) -> str | Medium:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        if isinstance(part.get("text"), str):
            return part["text"]
        raise _bad(f"{where}.text: expected a text, got {shown(part.get('text'))}")
    if not isinstance(kind, str) or kind not in types:
        known = ", ".join(("text", *types))
        raise _bad(f"{where}.type: {shown(kind)} is not a part that can be read ({known})")
    name, key = types[kind]
    source = part.get(kind)
    if isinstance(source, dict):
        source = source.get(key)
    if source is None:
        expected = f'an object with "{key}"' if types is PARTS or kind in PARTS else _SOURCES[name]
        raise _bad(f"{where}.{kind}: expected {expected}, got {shown(part.get(kind))}")
    return read(name, source, f"{where}.{kind}")


def read_messages(
    messages: Sequence[Mapping[str, Any]], read: Callable[[Kind, Any, str], Medium]
) -> tuple[list[dict[str, Any]], list[Medium]]:
    """The messages of a Python program, with their media; what has none stays as it is.

    Raises BadRequest naming what is no message, no content or no part.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise _bad(f'messages: expected a list of dicts with "role" and "content", got {shown(messages)}')
    made, media = [], []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise _bad(f'{where}: expected a dict with "role" and "content", got {shown(message)}')
        content = message.get("content")
        if isinstance(content, list | tuple):
            content, found = read_content(content, f"{where}.content", read, OF_CALLERS)
            if found:
                media += found
                message = {**message, "content": content}
        elif content is not None and not isinstance(content, str):
            raise _bad(f"{where}.content: expected a text or a list of parts, got {shown(content)}")
        made.append(dict(message))
    return made, media


def of_caller(kind: Kind, source: Any, where: str) -> Medium:
    """What a caller in this process hands over: bytes, a path, a data: URI, base64 of a recording, a Pillow image."""
    match source:
        case Medium():
            return source
        case bytes() | bytearray() | memoryview():
            return Medium(kind, bytes(source), where)
        case os.PathLike():
            return Medium(kind, read_file(Path(source), where), where)
        case str() if source[:5].lower() in ("data:", "http:", "https"):
            return read_source(kind, source, where, None)
        case str() if where.endswith(".input_audio") and source[:5].lower() != "file:":
            return read_source(kind, source, where, None)
        case str():
            path = unquote(source[5:].removeprefix("//")) if source[:5].lower() == "file:" else source
            return Medium(kind, read_file(Path(path), where), where)
        case _ if kind == "image" and hasattr(source, "save") and hasattr(source, "mode"):
            out = io.BytesIO()
            source.save(out, "PNG")
            return Medium(kind, out.getvalue(), where)
    raise _bad(f"{where}: expected {_SOURCES[kind]}, got a value of type {type(source).__name__}")


def _bad(message: str) -> BadRequest:
    return BadRequest(message, param="messages")
