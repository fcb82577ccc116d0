"""Reads safetensors files, and model directories made of config.json and one or several of them.

A path comes in; the metadata and the mapped tensors come out, as `Contents`.  The header is checked as strictly as
the format asks: every byte of the data belongs to exactly one tensor, and every size follows from type and shape.
Format: the safetensors project's README, section "Format".
"""

from __future__ import annotations

import json
import re
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from golem_core.errors import BadFile

from .mapped import Contents, MappedFile, is_file
from .metadata import Metadata
from .types import SAFETENSORS_TYPES
from .weights import Weight

MAX_HEADER_BYTES = 100_000_000  # The format's own limit.
MAX_JSON_BYTES = 32_000_000  # Of config.json and an index.
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**60
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
INDEX = "model.safetensors.index.json"


def read_directory(path: Path) -> Contents:
    """Reads config.json as the metadata, and the weights beside it.

    The weights are those that model.safetensors.index.json lists, or model.safetensors, or the only *.safetensors
    there is.  Raises BadFile naming the file and what is wrong with it or what was expected.
    """
    config_path = path / "config.json"
    if not is_file(config_path):
        raise BadFile(f"{path}: a directory without config.json; expected config.json and safetensors, or a GGUF file")
    config = _json_object(config_path)
    if is_file(path / INDEX):
        files, tensors = _read_sharded(path / INDEX)
    else:
        found = sorted(path.glob("*.safetensors"))
        whole = path / "model.safetensors"
        if whole not in found and len(found) != 1:
            raise BadFile(f"{path}: expected model.safetensors, {INDEX} or exactly one *.safetensors, not {len(found)}")
        file, tensors, _ = _read_file(whole if whole in found else found[0])
        files = (file,)
    return Contents(files, Metadata(config_path, config), tensors)


def read_json(path: str | PathLike[str]) -> Metadata:
    """The object in a JSON file of at most 32 MB.  Raises BadFile naming the file and what is wrong with it."""
    return Metadata(path, _json_object(Path(path)))


def read_safetensors(path: Path) -> Contents:
    """Reads one file.  The metadata is the header's `__metadata__`, text by text; {} if it has none."""
    file, tensors, metadata = _read_file(path)
    return Contents((file,), Metadata(path, metadata), tensors)


def _read_sharded(index: Path) -> tuple[tuple[MappedFile, ...], dict[str, Weight]]:
    places = _json_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise BadFile(f"{index}: weight_map is not an object of file names")
    shards: dict[str, tuple[MappedFile, dict[str, Weight], dict[str, Any]]] = {}
    tensors: dict[str, Weight] = {}
    try:
        for tensor, name in places.items():
            if name not in shards:
                # The index may only point at its own directory.
                if Path(name).name != name or "\\" in name or "\0" in name or ":" in name:
                    raise BadFile(f"{index}: {name!r} is not the name of a file beside it")
                shard = index.parent / name
                if not is_file(shard):
                    raise BadFile(f"{shard}: the file that {index.name} lists for {tensor!r} is missing")
                shards[name] = _read_file(shard)
            found = shards[name][1].get(tensor)
            if found is None:
                raise BadFile(f"{index.parent / name}: there is no tensor {tensor!r}, though {index.name} lists it")
            tensors[tensor] = found
    except BaseException:
        for file, _, _ in shards.values():
            file.close()
        raise
    return tuple(file for file, _, _ in shards.values()), tensors


def _read_file(path: Path) -> tuple[MappedFile, dict[str, Weight], dict[str, Any]]:
    file = MappedFile(path)
    try:
        return file, *_read_header(file)
    except BaseException:
        file.close()
        raise


def _read_header(file: MappedFile) -> tuple[dict[str, Weight], dict[str, Any]]:
    """-> tensors by name, and the texts of `__metadata__`."""
    path = file.path

    def fail(problem: str) -> NoReturn:
        raise BadFile(f"{path}: {problem}")

    if file.size < 8:
        fail(f"not a safetensors file: {file.size} bytes, at least 8 are needed")
    length = int.from_bytes(file.raw[:8], "little")
    if length > min(file.size - 8, MAX_HEADER_BYTES):
        fail(f"not a safetensors file, or cut off: a header of {length} bytes in a file of {file.size}")
    if file.raw[8:9] != b"{":
        fail("not a safetensors file: the header is not a JSON object")
    header = _parse(file.raw[8 : 8 + length], f"{path}: the header")

    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        fail("__metadata__ is not an object of texts")

    base, data_size = 8 + length, file.size - 8 - length
    entries = [(name, *_entry(path, name, entry)) for name, entry in header.items()]
    end = 0
    for name, _, _, begin, stop in sorted(entries, key=lambda entry: entry[3:]):
        if begin != end:
            kind = "overlaps the tensor before it" if begin < end else f"leaves {begin - end} bytes unused before it"
            fail(f"tensor {name!r}: its data, at offset {begin}, {kind}")
        end = stop
    if end != data_size:
        fail(f"the tensors take {end} bytes, but {data_size} bytes follow the header")
    whole = file.array()
    tensors = {name: Weight(name, kind, shape, whole[base + a : base + b]) for name, kind, shape, a, b in entries}
    return tensors, metadata


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Checks one tensor's entry by itself; -> type, shape, begin and end of the data."""

    def fail(problem: str) -> NoReturn:
        raise BadFile(f"{path}: tensor {name!r}: {problem}")

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        fail("its entry is not an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    kind = SAFETENSORS_TYPES.get(dtype) if isinstance(dtype, str) else None
    if kind is None:
        fail(f"there is no dtype {str(dtype)[:40]!r}")
    if not _sizes(shape) or len(shape) > MAX_DIMENSIONS:
        fail(f"its shape is not a list of at most {MAX_DIMENSIONS} sizes")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        fail("its data_offsets are not a begin and an end")
    if prod(size or 1 for size in shape) > MAX_ELEMENTS:
        fail(f"the shape {shape} is larger than any file")
    elements = prod(shape)
    if elements % kind.block or offsets[1] - offsets[0] != elements // kind.block * kind.nbytes:
        fail(f"{offsets[1] - offsets[0]} bytes of data are not what {kind.name} of the shape {shape} takes")
    return kind.name, tuple(shape) or (1,), offsets[0], offsets[1]


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= MAX_ELEMENTS for size in value)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise BadFile(f"{path}: larger than {MAX_JSON_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
    return _parse(data, str(path))


def _parse(data: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise BadFile(f"{what}: the key {twice!r} appears twice")
        return found

    try:
        value = json.loads(data.decode(), object_pairs_hook=unique)
        if SURROGATE.search(data):  # a pair is one character; half of one is none
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise BadFile(f"{what}: nested too deeply") from None
    except ValueError as error:  # Also what is not UTF-8, and numbers of thousands of digits.
        raise BadFile(f"{what}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadFile(f"{what}: not a JSON object")
    return value
