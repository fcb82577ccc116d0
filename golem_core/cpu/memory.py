"""Zeroed memory outside Python's heap, on large pages where the system grants them."""

from __future__ import annotations

import mmap

import numpy as np

LARGE_PAGE = 2 << 20


def zeroed(size: int) -> np.ndarray:
    """A (size,) uint8 array of zeros, aligned to 64 bytes; its pages become real as they are written."""
    if size < LARGE_PAGE:
        room = np.zeros(size + 64, np.uint8)
        start = -room.ctypes.data % 64
        return room[start : start + size]
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    pages = mmap.mmap(-1, size + LARGE_PAGE, **private)  # shared memory would get no large pages
    if hasattr(pages, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(pages, np.uint8)
    start = -room.ctypes.data % LARGE_PAGE
    return room[start : start + size]
