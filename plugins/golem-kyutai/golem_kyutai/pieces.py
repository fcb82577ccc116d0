"""The text pieces: a sentencepiece model's list, read for decoding alone, and text put together out of their bytes.

Format: sentencepiece's `sentencepiece_model.proto`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from golem_core import BadFile

MOST_BYTES = 64 << 20
FIRST_TEXT = 4
"""Tokens below are no text: 0 begins a word, 1 and 2 the text, 3 is padding."""
NORMAL, CONTROL, BYTE = 1, 3, 6


@dataclass(frozen=True)
class Pieces:
    """The bytes of every token; no bytes for those that stand for no text."""

    texts: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def read(cls, path: Path) -> Pieces:
        """Raises BadFile naming the file and what is wrong with it."""
        try:
            if path.stat().st_size > MOST_BYTES:
                raise BadFile(f"{path}: larger than {MOST_BYTES} bytes")
            data = path.read_bytes()
        except OSError as error:
            raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
        try:
            texts = tuple(_piece(value) for field, value in _fields(data) if field == 1 and isinstance(value, bytes))
        except (ValueError, IndexError) as error:
            raise BadFile(f"{path}: not a sentencepiece model: {error}") from None
        if len(texts) <= FIRST_TEXT:
            raise BadFile(f"{path}: not a sentencepiece model: {len(texts)} pieces")
        return cls(texts)

    def bytes(self, token: int) -> bytes:
        """What a token writes; nothing for one that is no text, or that there is no piece of."""
        return self.texts[token] if FIRST_TEXT <= token < len(self.texts) else b""


class TextStream:
    """Puts text together token by token and gives out whole characters only."""

    def __init__(self, pieces: Pieces):
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The characters that are complete after this token."""
        return self._decoder.decode(self._pieces.bytes(token))

    def end(self) -> str:
        """What is left."""
        return self._decoder.decode(b"", final=True)


def _piece(data: bytes) -> bytes:
    text, kind = "", NORMAL
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif field == 3 and isinstance(value, int):
            kind = value
    if kind == BYTE:
        found = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)
        if found is None:
            raise ValueError(f"{text!r} is no byte")
        return bytes.fromhex(found[1])
    return b"" if kind == CONTROL else text.replace("▁", " ").encode()


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of every field of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise ValueError("it ends within a number" if at >= len(data) else "a number is too long")
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"a field of the unknown kind {kind}")
        size = varint() if kind == 2 else 8 if kind == 1 else 4
        if size > len(data) - at:
            raise ValueError("it ends within a field")
        yield tag >> 3, data[at : at + size]
        at += size
