"""Builders of small weight files: GGUF byte by byte, GGUF through gguf-py's writer, and safetensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest


class GgufBytes:
    """Puts a GGUF file together out of parts that may be wrong."""

    UINT32, STRING, ARRAY = 4, 8, 9

    @staticmethod
    def u32(number: int) -> bytes:
        return struct.pack("<I", number)

    @staticmethod
    def u64(number: int) -> bytes:
        return struct.pack("<Q", number)

    @classmethod
    def text(cls, text: str | bytes, length: int | None = None) -> bytes:
        data = text if isinstance(text, bytes) else text.encode()
        return cls.u64(len(data) if length is None else length) + data

    @classmethod
    def key(cls, name: str | bytes, kind: int, value: bytes) -> bytes:
        return cls.text(name) + cls.u32(kind) + value

    @classmethod
    def array(cls, kind: int, count: int, elements: bytes) -> bytes:
        return cls.u32(kind) + cls.u64(count) + elements

    @classmethod
    def tensor(cls, name: str | bytes, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
        return cls.text(name) + cls.u32(len(dims)) + b"".join(map(cls.u64, dims)) + cls.u32(kind) + cls.u64(offset)

    @classmethod
    def file(
        cls,
        keys: list[bytes],
        tensors: list[bytes],
        data: bytes = b"",
        *,
        magic: bytes = b"GGUF",
        version: bytes | None = None,
        key_count: int | None = None,
        tensor_count: int | None = None,
        alignment: int = 32,
    ) -> bytes:
        """A file whose architecture is "tiny"."""
        keys = [cls.key("general.architecture", cls.STRING, cls.text("tiny")), *keys]
        header = magic + (cls.u32(3) if version is None else version)
        header += cls.u64(len(tensors) if tensor_count is None else tensor_count)
        header += cls.u64(len(keys) if key_count is None else key_count)
        header += b"".join(keys) + b"".join(tensors)
        return header + bytes(-len(header) % alignment) + data


@pytest.fixture(scope="session")
def build() -> type[GgufBytes]:
    return GgufBytes


@pytest.fixture(scope="session")
def write_gguf() -> Callable[..., Path]:
    """write(path, tensors, fill) writes a GGUF file with gguf-py; `fill` gets the writer to add keys."""

    def write(path: Path, tensors: dict[str, Any], fill: Callable[[gguf.GGUFWriter], None] | None = None) -> Path:
        writer = gguf.GGUFWriter(path, "tiny")
        if fill is not None:
            fill(writer)
        for name, tensor in tensors.items():
            data, kind = tensor if isinstance(tensor, tuple) else (tensor, None)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture(scope="session")
def safetensors_bytes() -> Callable[..., bytes]:
    """pack({name: (dtype, shape, bytes)}) -> a safetensors file; `header` changes the header's object first."""

    def pack(
        tensors: dict[str, tuple[str, list[int], bytes]], header: Callable[[dict[str, Any]], Any] | None = None
    ) -> bytes:
        entries: dict[str, Any] = {}
        data = b""
        for name, (dtype, shape, content) in tensors.items():
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(entries if header is None else header(entries)).encode()
        return struct.pack("<Q", len(text)) + text + data

    return pack


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
