"""Strings as a GGUF file lays out arrays of them: each behind its length, eight bytes.

Each length says where the next one is, so in general they can only be walked along, one by one.  A vocabulary has
hundreds of thousands, nearly always shorter than 256 bytes and without zero bytes: then the lengths are found all at
once, as a byte and seven zeros, and proved by each leading to the next.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Any

import numpy as np

_LENGTH = struct.Struct("<Q")
_WINDOW = 1 << 17
"""Bytes that are searched at once; what is made of them stays in the processor's caches."""
_USUAL = 32
"""Bytes of a string and its length, guessed, so that short arrays are not searched for beyond their end."""
_MARK = b"\xff"
"""A byte that no UTF-8 has."""
_MARKED = _MARK.decode("utf-8", "surrogateescape")


def skip(raw: Any, at: int, count: int) -> int:
    """Where `count` strings in the buffer `raw` end that begin at byte `at`; behind its end if they go beyond it."""
    found = _lengths(raw, at, count)
    if len(found):
        at = int(found[-1]) + 8 + raw[int(found[-1])]
    read = _LENGTH.unpack_from
    try:
        for _ in repeat(None, count - len(found)):
            at += 8 + read(raw, at)[0]
    except (struct.error, IndexError, OverflowError):
        return len(raw) + 1
    return at


def decode(raw: Any, at: int, count: int) -> tuple[list[str], int]:
    """The `count` strings at byte `at` of the buffer `raw`, which `skip` has found whole, and where they end.

    Bytes that are not UTF-8 become surrogates, as "surrogateescape" makes them: vocabularies hold tokens that are
    pieces of characters.
    """
    found = _lengths(raw, at, count)
    strings: list[str] = []
    if len(found):
        end = int(found[-1]) + 8 + raw[int(found[-1])]
        data = np.frombuffer(raw, np.uint8, end - at, at).copy()
        stays = np.ones(len(data), bool)
        for byte in range(7):
            stays[found - at + byte] = False
        data[found - at + 7] = _MARK[0]
        strings = data[stays].tobytes().decode("utf-8", "surrogateescape").split(_MARKED)[1:]
        if len(strings) == len(found):
            at = end
        else:  # a string has that byte itself
            strings = []
    read = _LENGTH.unpack_from
    for _ in repeat(None, count - len(strings)):
        start = at + 8
        at = start + read(raw, at)[0]
        strings.append(raw[start:at].decode("utf-8", "surrogateescape"))
    return strings, at


def _lengths(raw: Any, at: int, count: int) -> np.ndarray:
    """Where the lengths of the first of `count` strings lie (int64), as far as each is less than 256 and is alone in
    looking like one."""
    found: list[np.ndarray] = []
    missing = count
    while missing:
        size = min(_WINDOW, missing * _USUAL, len(raw) - at)
        if size < 8:
            break
        data = np.frombuffer(raw, np.uint8, size, at)
        zero = data == 0
        two = zero[1:-1] & zero[2:]
        four = two[:-2] & two[2:]
        starts = np.flatnonzero(four[:-3] & four[3:])
        if not len(starts) or starts[0] != 0:
            break
        following = starts + 8 + data[starts]
        wrong = np.flatnonzero(starts[1:] != following[:-1])
        regular = min(missing, int(wrong[0]) + 1 if len(wrong) else len(starts))
        if following[regular - 1] > len(raw) - at:
            regular -= 1
        if not regular:
            break
        found.append(starts[:regular] + at)
        missing -= regular
        at += int(following[regular - 1])
        if len(wrong) and regular == wrong[0] + 1:
            break
    return np.concatenate(found) if found else np.empty(0, np.int64)
