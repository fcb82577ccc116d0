"""Zeroed memory outside Python's heap, on large pages where the system grants them."""

from __future__ import annotations

import mmap
import os

import numpy as np

from golem_core.errors import GolemError

LARGE_PAGE = 2 << 20


def physical() -> int | None:
    """Bytes of the machine's memory, None where the system doesn't tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def zeroed(size: int) -> np.ndarray:
    """A (size,) uint8 array of zeros, aligned to 64 bytes; its pages become real as they are written."""
    if size < LARGE_PAGE:
        room = np.zeros(size + 64, np.uint8)
        start = -room.ctypes.data % 64
        return room[start : start + size]
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        pages = mmap.mmap(-1, size + LARGE_PAGE, **private)  # shared memory would get no large pages
    except (OSError, OverflowError) as error:
        raise GolemError(f"the system gives no {size} bytes of memory: {error}") from None
    if hasattr(pages, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(pages, np.uint8)
    start = -room.ctypes.data % LARGE_PAGE
    return room[start : start + size]
