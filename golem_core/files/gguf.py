"""Reads GGUF files, versions 2 and 3, whole or split into parts.

A path comes in; the metadata and the mapped tensors come out, as `Contents`.  One pass over the header notes where
everything lies and checks each count, length and offset against the file before it is used; arrays and texts are
decoded when asked for.  Format: ggml, docs/gguf.md.
"""

from __future__ import annotations

import re
import struct
from functools import partial
from itertools import repeat
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from golem_core.errors import BadFile

from . import strings
from .mapped import Contents, MappedFile, is_file
from .metadata import Deferred, Metadata
from .types import GGUF_TYPES
from .weights import Weight

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_KEY_BYTES = 65535
MAX_DIMENSIONS = 4
MAX_NESTING = 4
MAX_ELEMENTS = 2**63 - 1

BOOL, STRING, ARRAY = 7, 8, 9
# Metadata value type -> numpy type of its fixed-size values.
SCALARS = {
    number: np.dtype(code)
    for number, code in {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        BOOL: "?",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }.items()
}
# The fewest bytes that one element of an array of each type can take.
_LEAST_BYTES = {number: kind.itemsize for number, kind in SCALARS.items()} | {STRING: 8, ARRAY: 12}

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


def read_gguf(path: Path) -> Contents:
    """Reads a file, and if it is a part of a split, the other parts beside it.

    Metadata is the first part's.  Raises BadFile naming the file and what is wrong with it.
    """
    given = _read_file(path)
    try:
        count = given.metadata.get("split.count", 1)
        name = _SPLIT_NAME.fullmatch(path.name)
        if name is None:
            if count not in (0, 1):
                raise BadFile(
                    f"{path}: split.count makes it one of {count!r} parts, but its name does not say which: "
                    "expected NAME-00001-of-0000N.gguf"
                )
            return given
        if int(name["count"]) <= 1 and count in (0, 1):
            return given
    except BaseException:
        given.close()
        raise
    return _read_split(path, name, given)


def peek(path: Path, key: str) -> Any:
    """One value of a file's metadata, read no further than to it; None if it isn't there.  Raises BadFile."""
    file = MappedFile(path)
    try:
        return Metadata(path, _Header(file, until=key).values).get(key)
    finally:
        file.close()


def _read_split(path: Path, name: re.Match[str], given: Contents) -> Contents:
    count, given_number = int(name["count"]), int(name["number"])
    opened = [given]
    try:
        if not 1 <= given_number <= count:
            raise BadFile(f"{path}: its name says part {given_number} of {count}")
        paths = [
            path.with_name(f"{name['stem']}-{number:05d}-of-{name['count']}.gguf") for number in range(1, count + 1)
        ]
        for number, part in enumerate(paths, 1):
            if number != given_number and not is_file(part):
                raise BadFile(f"{part}: part {number} of the {count} that {path.name} belongs to is missing")
        parts = []
        for number, part in enumerate(paths, 1):
            if number == given_number:
                parts.append(given)
            else:
                parts.append(_read_file(part))
                opened.append(parts[-1])
            for key, expected in (("split.count", count), ("split.no", number - 1)):
                if (found := parts[-1].metadata.required(key)) != expected or isinstance(found, bool):
                    raise BadFile(f"{part}: {key} is {found!r}, but its name makes it {expected}")
        tensors: dict[str, Weight] = {}
        for part_path, part in zip(paths, parts, strict=True):
            if twice := tensors.keys() & part.tensors.keys():
                raise BadFile(f"{part_path}: the tensor {min(twice)!r} is in an earlier part too")
            tensors |= part.tensors
        for part_path, part in zip(paths, parts, strict=True):
            if (total := part.metadata.get("split.tensors.count", len(tensors))) != len(tensors):
                raise BadFile(
                    f"{part_path}: split.tensors.count is {total!r}, but the parts hold {len(tensors)} tensors"
                )
    except BaseException:
        for contents in opened:
            contents.close()
        raise
    return Contents(tuple(file for part in parts for file in part.files), parts[0].metadata, tensors)


def _read_file(path: Path) -> Contents:
    file = MappedFile(path)
    try:
        header = _Header(file)
        return Contents((file,), Metadata(path, header.values), header.tensors)
    except BaseException:
        file.close()
        raise


class _Header:
    """One pass over the header: `values` by key, `tensors` by name.  Every read is checked against the file's end.

    It ends behind the key `until`, where the file has that.
    """

    def __init__(self, file: MappedFile, until: str | None = None):
        self.file = file
        self.raw = file.raw
        self.size = file.size
        self.at = 0
        self.what = "the header"  # What is being read, for errors.
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, Weight] = {}

        if self.raw[:4] != MAGIC:
            raise BadFile(f"{file.path}: not a GGUF file: it begins with {self.raw[:4]!r}, not {MAGIC!r}")
        self.at = 4
        version = self.u32()
        if version not in VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                self.fail("it is big-endian, and only little-endian files are read")
            self.fail(f"GGUF version {version}, and only versions {' and '.join(map(str, VERSIONS))} are read")
        tensor_count, key_count = self.u64(), self.u64()
        # A tensor's entry takes at least 24 bytes and a key's 13, so these bounds keep the loops within the file.
        self.check_count(tensor_count, 24, "tensors")
        self.check_count(key_count, 13, "keys")
        for index in range(key_count):
            self.read_key(index)
            if until in self.values:
                return
        self.read_tensors(tensor_count)

    def fail(self, problem: str) -> NoReturn:
        raise BadFile(f"{self.file.path}: {self.what}: {problem}")

    def check_count(self, count: int, each: int, noun: str) -> None:
        if count > (self.size - self.at) // each:
            self.fail(f"{count} {noun} do not fit into the rest of the file")

    def take(self, count: int) -> int:
        """Moves over `count` bytes; -> where they begin."""
        at = self.at
        if count > self.size - at:
            self.fail(f"the file ends at byte {self.size}, {count} bytes were to follow byte {at}")
        self.at = at + count
        return at

    def u32(self) -> int:
        return _U32.unpack_from(self.raw, self.take(4))[0]

    def u64(self) -> int:
        return _U64.unpack_from(self.raw, self.take(8))[0]

    def name(self, seen: dict[str, Any]) -> str:
        """A key or a tensor's name: UTF-8, and not `seen` before."""
        length = self.u64()
        if not 0 < length <= MAX_KEY_BYTES:
            self.fail(f"a name of {length} bytes; 1 to {MAX_KEY_BYTES} are allowed")
        at = self.take(length)
        try:
            name = self.raw[at : self.at].decode()
        except UnicodeDecodeError:
            self.fail(f"the name {self.raw[at : self.at][:80]!r} is not UTF-8")
        if name in seen:
            self.fail(f"the name {name!r} appears twice")
        return name

    def read_key(self, index: int) -> None:
        self.what = f"key {index}"
        key = self.name(self.values)
        self.what = f"key {key!r}"
        kind = self.u32()
        if kind == STRING:
            length = self.u64()
            self.values[key] = Deferred(partial(_text, self.file, key, self.take(length), length))
        elif kind == ARRAY:
            inner, count, at = self.skip_array(1)
            # texts are slow to decode; numbers are not, and as Python objects they take ten times their room
            self.values[key] = Deferred(partial(_array, self.file, inner, count, at), keep=inner in (STRING, ARRAY))
        elif kind in SCALARS:
            self.values[key] = self.scalars(kind, 1)[0].item()
        else:
            self.fail(f"there is no value type {kind}")

    def scalars(self, kind: int, count: int) -> np.ndarray:
        at = self.take(count * SCALARS[kind].itemsize)
        if kind == BOOL and (largest := max(self.raw[at : self.at], default=0)) > 1:
            self.fail(f"a bool is 0 or 1, this one is {largest}")
        return np.frombuffer(self.raw, SCALARS[kind], count, at)

    def skip_array(self, depth: int) -> tuple[int, int, int]:
        """Moves over an array, checking it; -> type and number of its elements, and where they begin."""
        kind, count = self.u32(), self.u64()
        if kind not in _LEAST_BYTES:
            self.fail(f"there is no value type {kind}")
        self.check_count(count, _LEAST_BYTES[kind], "elements")
        at = self.at
        if kind == STRING:
            self.skip_strings(count)
        elif kind == ARRAY:
            if depth == MAX_NESTING:
                self.fail(f"arrays more than {MAX_NESTING} deep")
            for _ in repeat(None, count):
                self.skip_array(depth + 1)
        elif kind == BOOL:
            self.scalars(kind, count)
        else:
            self.take(count * SCALARS[kind].itemsize)
        return kind, count, at

    def skip_strings(self, count: int) -> None:
        at = strings.skip(self.raw, self.at, count)
        if at > self.size:
            self.fail(f"an array of {count} strings runs past the end of the file")
        self.at = at

    def alignment(self) -> int:
        self.what = "key 'general.alignment'"
        alignment = self.values.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
            self.fail("the alignment is not a power of two of 8 or more")
        return alignment

    def read_tensors(self, count: int) -> None:
        alignment = self.alignment()
        entries: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for index in range(count):
            self.what = f"tensor {index}"
            name = self.name(entries)
            self.what = f"tensor {name!r}"
            entries[name] = self.tensor_entry(alignment)

        base = -(-self.at // alignment) * alignment
        whole = self.file.array()
        end, before = 0, ""
        for name, (_, _, offset, nbytes) in sorted(entries.items(), key=lambda entry: entry[1][2]):
            self.what = f"tensor {name!r}"
            if offset < end:
                self.fail(f"its data, at offset {offset}, overlaps that of tensor {before!r}")
            end, before = offset + nbytes, name
            if base + end > self.size:
                self.fail(f"its data ends at byte {base + end}, but the file at byte {self.size}")
        for name, (kind, shape, offset, nbytes) in entries.items():
            self.tensors[name] = Weight(name, kind, shape, whole[base + offset : base + offset + nbytes])

    def tensor_entry(self, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
        """-> type, shape, offset from the start of the data, bytes."""
        dimensions = self.u32()
        if dimensions > MAX_DIMENSIONS:
            self.fail(f"{dimensions} dimensions; at most {MAX_DIMENSIONS} are allowed")
        # The file lists the fastest dimension first; a tensor without dimensions is one number.
        shape = tuple(self.u64() for _ in range(dimensions))[::-1] or (1,)
        number, offset = self.u32(), self.u64()
        elements = prod(shape)
        if not 0 < elements <= MAX_ELEMENTS:
            self.fail(f"the shape {shape} is empty or larger than any file")
        if number not in GGUF_TYPES:
            self.fail(f"there is no tensor type {number}")
        kind = GGUF_TYPES[number]
        if shape[-1] % kind.block:
            self.fail(f"rows of {shape[-1]} elements do not divide into {kind.name}'s blocks of {kind.block}")
        if offset % alignment:
            self.fail(f"its offset {offset} is not a multiple of the alignment {alignment}")
        return kind.name, shape, offset, elements // kind.block * kind.nbytes


def _text(file: MappedFile, key: str, at: int, length: int) -> str:
    try:
        return file.raw[at : at + length].decode()
    except UnicodeDecodeError as error:
        raise BadFile(f"{file.path}: key {key!r}: the text is not UTF-8 at byte {error.start}") from None


def _array(file: MappedFile, kind: int, count: int, at: int) -> list[Any]:
    """Decodes an array whose place in the file `_Header` has checked."""
    return _elements(file, kind, count, at)[0]


def _elements(file: MappedFile, kind: int, count: int, at: int) -> tuple[list[Any], int]:
    """-> the elements, and where they end."""
    raw = file.raw
    if kind == STRING:
        return strings.decode(raw, at, count)
    if kind == ARRAY:
        arrays = []
        for _ in repeat(None, count):
            inner, length = _U32.unpack_from(raw, at)[0], _U64.unpack_from(raw, at + 4)[0]
            elements, at = _elements(file, inner, length, at + 12)
            arrays.append(elements)
        return arrays, at
    return np.frombuffer(raw, SCALARS[kind], count, at).tolist(), at + count * SCALARS[kind].itemsize
