"""Where a request's pictures and recordings come from: data URIs, plain base64, and files of the server's own.

Nothing is fetched from the network.  Which files may be read is said by the server's operator.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from golem_core.errors import BadRequest

Kind = Literal["image", "audio"]
MOST_BYTES = 64 << 20
_CODED = re.compile(r"[A-Za-z0-9+/\s]{40,}={0,2}\s*")
"""What is rather base64 than the name of a file."""
NAMES: dict[Kind, tuple[str, str]] = {"image": ("picture", "see"), "audio": ("recording", "hear")}


@dataclass(frozen=True)
class Medium:
    """The bytes of a picture or a recording, and where in the request they stood."""

    kind: Kind
    data: bytes
    where: str


@dataclass(frozen=True)
class Files:
    """The files of this machine that requests may name: those in `folder`, by their paths inside it; where it is None
    all that the server itself can read, by their paths."""

    folder: Path | None = None

    def read(self, source: str, where: str) -> bytes:
        """The bytes of the regular file that a path or a file: URI names.  Raises BadRequest naming `where`."""
        name = source
        if source[:5].lower() == "file:":
            name = unquote(source[5:])
            name = name[2:] if name.startswith("//") else name
        hint = "; before base64 stands data:image/png;base64," if _CODED.fullmatch(source) else ""
        if "\0" in name or not 0 < len(name) <= 4096:
            raise _bad(f"{where}: it is neither a data: URI nor the path of a file{hint}")
        if self.folder is not None and not _stays_inside(name):
            raise _bad(f"{where}: a file is named by its path inside the folder of -media-path, without '..'{hint}")
        root = (self.folder or Path()).resolve()
        try:
            path = (root / name).resolve(strict=True)
        except (OSError, RuntimeError, UnicodeError):
            place = "" if self.folder is None else " in the folder of -media-path"
            raise _bad(f"{where}: there is no such file{place}{hint}") from None
        if self.folder is not None and not path.is_relative_to(root):
            raise _bad(f"{where}: the file is not inside the folder of -media-path")
        return read_file(path, where)


def read_source(kind: Kind, source: str, where: str, files: Files | None) -> Medium:
    """What a request gives as a picture or a recording; `files` may be read for it, None being none.

    Raises BadRequest naming `where`.
    """
    start = source[:16].lower()
    if start.startswith(("http://", "https://")):
        raise _bad(f"{where}: golem fetches nothing from the network; send the bytes in a data: URI")
    if start.startswith("data:"):
        head, comma, body = source.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise _bad(f"{where}: a data: URI needs ';base64,' before its bytes")
        return Medium(kind, _decoded(body, where), where)
    if start.startswith("file:") or kind == "image":
        if files is None:
            why = "no file is read for a request that may come from another machine"
            raise _bad(f"{where}: send the bytes in a data: URI; {why}")
        return Medium(kind, files.read(source, where), where)
    try:
        return Medium(kind, _decoded(source, where), where)
    except BadRequest:
        if files is None or len(source) > 4096:
            raise
        try:
            return Medium(kind, files.read(source, where), where)
        except BadRequest as refusal:
            said = str(refusal).removeprefix(f"{where}: ")
            raise _bad(f"{where}: it is not base64, and {said}") from None


def read_base64(kind: Kind, source: str, where: str) -> Medium:
    """What ollama's requests give: base64 as it is, or in a data URI."""
    if source[:5].lower() == "data:":
        return read_source(kind, source, where, None)
    return Medium(kind, _decoded(source, where), where)


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _bad(f"{where}: it is not base64") from None


def _stays_inside(name: str) -> bool:
    """Whether a path, written as on any system, leads out of no folder by itself."""
    parts = name.replace("\\", "/").split("/")
    return not name.startswith(("/", "\\")) and ":" not in parts[0] and ".." not in parts


def read_file(path: Path, where: str) -> bytes:
    """The bytes of a regular file of a size that is taken.  Raises BadRequest naming `where`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise _bad(f"{where}: it is not a regular file")
            if found.st_size > MOST_BYTES:
                raise _bad(f"{where}: it has {found.st_size} bytes; {MOST_BYTES} at most are taken")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _bad(f"{where}: it can't be read: {error.strerror or error}") from None
    if data is None:  # as some files of /proc, which tell no size and would wait for what is to come
        raise _bad(f"{where}: there is nothing in it to read now")
    if len(data) > MOST_BYTES:
        raise _bad(f"{where}: it has more than {MOST_BYTES} bytes, which are the most that are taken")
    return data


def _bad(message: str) -> BadRequest:
    return BadRequest(message, param="messages")
