"""Measuring on a machine that others use too: wait for a quiet moment, and measure again what was disturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TOLERANCE = 0.1
"""Processors that others may keep busy during a measurement."""

GRAIN = 0.03
"""Seconds of processor time that the system's coarse counters may be wrong by."""

LOOK = 0.2
"""Seconds for which the machine is watched before a measurement."""


class Quiet:
    """Repeats measurements until nobody else used the processors meanwhile, waiting `patience` seconds in all.

    Once the patience is used up, each measurement is made once, and those that others disturbed are counted in
    `disturbed`.  With a patience of None nothing is watched.
    """

    def __init__(self, patience: float | None):
        if patience is not None and not Path("/proc/stat").exists():
            raise SystemExit("--quiet needs /proc, which this system does not have")
        self._left = patience
        self.disturbed = 0

    def measure(self, act: Callable[[], T], processes: Callable[[], Iterable[int]] = tuple) -> T:
        """What `act` returns; `processes` are those, besides this one, whose work belongs to the measurement."""
        if self._left is None:
            return act()
        while True:
            self._wait()
            result, others, wall = _watched(act, processes)
            if _quiet(others, wall):
                return result
            self._left -= wall
            if self._left <= 0:
                self.disturbed += 1
                return result

    def _wait(self) -> None:
        assert self._left is not None
        while self._left > 0:
            _, others, wall = _watched(lambda: time.sleep(LOOK), tuple)
            if _quiet(others, wall):
                return
            self._left -= wall


def _quiet(others: float, wall: float) -> bool:
    return others <= max(TOLERANCE * wall, GRAIN)


def _watched(act: Callable[[], T], processes: Callable[[], Iterable[int]]) -> tuple[T, float, float]:
    """The result of `act`, the processor time that others used meanwhile, and the seconds that it took."""
    before, own, start = _busy(), _own(processes()), time.perf_counter()
    result = act()
    wall = time.perf_counter() - start
    others = (_busy() - before) - (_own(processes()) - own)
    return result, others, wall


def _busy() -> float:
    """Seconds for which the machine's processors have been busy, all together."""
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for disks


def _own(processes: Iterable[int]) -> float:
    """Seconds of processor time of this process, its ended children and `processes`."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + sum(map(_used, processes))


def _used(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended, and is counted among the children
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
