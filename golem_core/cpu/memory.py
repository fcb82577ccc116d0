"""Zeroed memory outside Python's heap, on large pages where the system grants them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from golem_core.errors import GolemError

LARGE_PAGE = 2 << 20


CGROUPS = Path("/sys/fs/cgroup")


def usable(own: Path = Path("/proc/self/cgroup"), mounted: Path = CGROUPS) -> int | None:
    """Bytes of memory that this process may have: the machine's, or less where a control group has a limit.

    None where the system doesn't tell.  `own` lists the process's groups and `mounted` is where groups are found.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return min([machine, *group_limits(own, mounted)])


def group_limits(own: Path, mounted: Path) -> Iterator[int]:
    """The limits on memory of a process's control groups and of those around them, both versions of the interface.

    See Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, path = line.split(":", 2)
        if number == "0" and not kinds:
            roots, name = [mounted, mounted / "unified"], "memory.max"
        elif "memory" in kinds.split(","):
            roots, name = [mounted / "memory"], "memory.limit_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in [root / each for root in roots for each in (inner, *inner.parents)]:
            try:
                text = (folder / name).read_text().strip()
            except OSError:  # inside a container, groups around its own are not to be seen
                continue
            if text.isdigit():  # and not "max"
                yield int(text)


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


def together(sizes: Sequence[int]) -> list[np.ndarray]:
    """`zeroed` of each size, all in one piece of memory: small ones are on large pages, too.  It is given back when
    none is left."""
    starts = list(accumulate((-(-size // 64) * 64 for size in sizes), initial=0))
    room = zeroed(starts[-1])
    return [room[start : start + size] for start, size in zip(starts, sizes, strict=False)]
