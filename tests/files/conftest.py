"""Builders of small weight files (GGUF byte by byte, GGUF through gguf-py's writer, safetensors) and a fuzzer."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import struct
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from golem_core.errors import GolemError, Unsupported


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


class Fuzz:
    """Damages files at random and counts what the reader makes of them.

    Runs until `seconds` have passed or, without GOLEM_FUZZ_SECONDS in the environment, `count` files were read.
    Reading everything in a file must end, soon and in little memory, in success or in an error that golem raises on
    purpose.
    """

    SLOW_SECONDS = 5.0  # For files of a few kB that take milliseconds; leaves room for a busy machine.
    MAX_BYTES = 4 << 20

    def __init__(self, folder: Path, count: int):
        self.folder = folder
        self.count = count
        self.seconds = float(os.environ.get("GOLEM_FUZZ_SECONDS", "0"))

    def run(self, damage: Callable[[random.Random], dict[str, bytes]], read: Callable[[Path], None]) -> Counter[str]:
        """`damage` gives the files of a case by name; `read` gets the path of the first."""
        return self.run_all((damage(random.Random(seed)) for seed in self.seeds()), read)

    def seeds(self) -> Iterator[int]:
        end = time.monotonic() + self.seconds
        return itertools.takewhile(
            lambda seed: time.monotonic() < end if self.seconds else seed < self.count, itertools.count()
        )

    def run_all(self, cases: Iterable[dict[str, bytes]], read: Callable[[Path], None]) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        tracemalloc.start()
        try:
            for seed, files in enumerate(cases):
                self.read_one(seed, files, read, outcomes)
        finally:
            tracemalloc.stop()
        return outcomes

    def read_one(
        self, seed: int, files: dict[str, bytes], read: Callable[[Path], None], outcomes: Counter[str]
    ) -> None:
        # Every case has a folder of its own: no file is ever changed while an earlier case may still have it mapped.
        folder = self.folder / str(seed)
        folder.mkdir()
        paths = [folder / name for name in files]
        for path, data in zip(paths, files.values(), strict=True):
            path.write_bytes(data)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        started = time.monotonic()
        try:
            read(paths[0])
        except GolemError as error:
            assert str(folder) in str(error) or isinstance(error, Unsupported), f"seed {seed}: {error} names no file"
            outcomes[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        else:
            outcomes["read"] += 1
        assert time.monotonic() - started < self.SLOW_SECONDS, f"seed {seed} took too long"
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak < self.MAX_BYTES, f"seed {seed} took {peak} bytes"
        shutil.rmtree(folder)

    NUMBERS = (0, 1, 2, 7, 8, 9, 31, 32, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**62, 2**63 - 1, 2**63)
    NUMBERS += (2**64 - 32, 2**64 - 1)

    @classmethod
    def damaged(cls, whole: bytes, random: random.Random) -> bytes:
        """One to four of: bits flipped, bytes replaced, a number of 4 or 8 bytes replaced or moved by a little, a
        piece copied, inserted or removed, the end cut off."""
        data = bytearray(whole)
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            if not data:
                break
            at = random.randrange(len(data))
            width = random.choice((4, 8))
            piece = data[at : at + random.choice((1, 4, 8, 24, 100))]
            to = random.randrange(len(data))
            match random.randrange(8):
                case 0:
                    data[at] ^= 1 << random.randrange(8)
                case 1:
                    data[at] = random.randrange(256)
                case 2:
                    data[at : at + width] = (random.choice(cls.NUMBERS) % 256**width).to_bytes(width, "little")
                case 3:
                    number = int.from_bytes(data[at : at + width], "little") + random.choice((-32, -8, -1, 1, 8, 32))
                    data[at : at + width] = (number % 256**width).to_bytes(width, "little")
                case 4:
                    data[to : to + len(piece)] = piece
                case 5:
                    data[to:to] = piece
                case 6:
                    del data[at : at + len(piece)]
                case 7:
                    del data[at:]
        return bytes(data)


@pytest.fixture
def fuzz(tmp_path) -> Callable[[int], Fuzz]:
    return lambda count: Fuzz(tmp_path, count)
