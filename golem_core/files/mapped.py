"""A file mapped into memory for reading, and what the readers hand to `model.py`.

The map is closed when nothing looks into it any more: a weight that was taken out of a file stays readable after
`close()`, and the memory is given back with the last of them.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golem_core.errors import BadFile

if TYPE_CHECKING:
    from .metadata import Metadata
    from .weights import Weight


def is_file(path: Path) -> bool:
    """Whether there is a regular file of that name; False also for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


class MappedFile:
    """The bytes of one regular file, read-only.  Raises BadFile if it can't be opened or is empty."""

    def __init__(self, path: Path):
        self.path = path
        self._raw: mmap.mmap | None = None
        try:
            # Opening a pipe would wait for a writer, so anything but a regular file is turned away first.
            if not path.is_file():
                raise BadFile(f"{path}: there is no such file" if not path.exists() else f"{path}: not a regular file")
            with path.open("rb") as file:
                self._raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise BadFile(f"{path}: the file is empty") from None
        except OSError as error:
            raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
        self.size = len(self._raw)

    @property
    def raw(self) -> mmap.mmap:
        """The map itself; slicing it copies.  Raises BadFile after `close()`."""
        if self._raw is None:
            raise BadFile(f"{self.path}: the file is closed")
        return self._raw

    def array(self) -> np.ndarray:
        """The whole file as a read-only (size,) uint8 array; its slices are views that keep the map open."""
        return np.frombuffer(self.raw, np.uint8)

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with suppress(BufferError):  # Somebody still holds a view; the map goes with the last one.
                raw.close()


def mapped_pages(array: np.ndarray) -> tuple[int, int]:
    """Address and bytes of the whole pages of a mapped file under `array`; 0 bytes where the system can't be told
    that they are not needed soon."""
    root: object = array
    while isinstance(root, np.ndarray) and root.base is not None:
        root = root.base
    if isinstance(root, memoryview):
        root = root.obj
    if not (isinstance(root, mmap.mmap) and hasattr(root, "madvise") and hasattr(mmap, "MADV_DONTNEED")):
        return 0, 0
    address = array.ctypes.data
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    return first, max(0, (address + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first)


def release_pages(array: np.ndarray) -> None:
    """Tells the system that the mapped pages under `array` are not needed soon; reading them again stays right."""
    first, size = mapped_pages(array)
    if size:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


@dataclass(frozen=True, eq=False)
class Contents:
    """What a reader found: the mapped files, the metadata, and the tensors by their names in the file."""

    files: tuple[MappedFile, ...]
    metadata: Metadata
    tensors: dict[str, Weight]

    def close(self) -> None:
        self.tensors.clear()
        for file in self.files:
            file.close()
