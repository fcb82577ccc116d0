"""Threads that stay awake between passes and run their programs together.

One team per number of threads serves every model of the process, one pass at a time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import cache

import numpy as np

from golem_core.cpu.library import Library, cache_folder

SPINS = 100_000
"""How often an idle thread looks for the next pass before it sleeps: a few milliseconds."""


def physical_cores() -> int:
    """Cores that this process may use, hyper-threads counted once where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        usable = os.sched_getaffinity(0)
        cores = set()
        for cpu in usable:
            try:
                with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as f:
                    cores.add(f.read().strip())
            except OSError:
                cores.add(str(cpu))
        return max(1, len(cores))
    return max(1, (os.cpu_count() or 1) // (1 if sys.platform == "darwin" else 2))


class Team:
    """`threads` threads, the caller of `run` being the first.  Programs are run one at a time, whoever calls."""

    def __init__(self, library: Library, threads: int):
        self.library, self.threads = library, threads
        self.enter = library.function("run_program", 5)
        self.work = library.function("worker", 6, returns=True)
        self.launch = library.function("launch", 3)
        self.memory = np.zeros(64, np.int64)
        self.control = (self.memory.ctypes.data + 63) & ~63
        self.counter = self.control + 128
        self.passes = self.memory[(self.control - self.memory.ctypes.data) // 8 :]
        self.asleep = 0
        self.wake = threading.Condition()
        self.one_at_a_time = threading.Lock()
        for i in range(1, threads):
            threading.Thread(target=self.serve, args=(i,), daemon=True, name=f"golem-cpu-{i}").start()

    def serve(self, thread: int) -> None:
        seen = 0
        while True:
            seen = self.work(self.control, seen, thread, self.threads, self.counter, SPINS)
            with self.wake:
                self.asleep += 1
                while self.passes[0] == seen:
                    self.wake.wait()
                self.asleep -= 1

    def run(self, program: np.ndarray) -> None:
        """Runs a program, an int64 array (rows, 3) of kernel addresses, argument blocks and barrier flags.

        The last row's flag must be set: nobody may leave a pass before everybody has taken part in it.
        """
        if not len(program):
            return
        assert program[-1, 2], "the last step of a program has no barrier"
        with self.one_at_a_time:
            address, rows = program.ctypes.data, len(program)
            if self.threads > 1:
                self.launch(self.control, address, rows)
                if self.asleep:
                    with self.wake:
                        self.wake.notify_all()
            self.enter(address, rows, 0, self.threads, self.counter)


@cache
def shared_library() -> Library:
    """The host's kernels, compiled or loaded once per process."""
    return Library(announce=announce, complain=complain)


@cache
def shared_team(threads: int) -> Team:
    return Team(shared_library(), threads)


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed or full standard error hinders no model
        print(line, file=sys.stderr, flush=True)


announced = False


def announce(count: int) -> None:
    """One line, at the first compilation of the process."""
    global announced
    if not announced:
        announced = True
        _say("compiling kernels for this processor; they are kept for the next start")


@cache
def complain_once(reason: str) -> None:
    place = cache_folder()
    _say(f"kernels can't be kept in {place} for the next start: {reason}")


def complain(error: OSError) -> None:
    """One line for each reason."""
    complain_once(error.strerror or str(error))
