"""The threads that draw: one for all, because threads that compete for the interpreter draw slower together than one
alone; only when it is stuck do others help."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

STUCK = 0.002
"""Seconds without a token after which the drawing thread needs help."""
_HELPERS = 3


class Drawers:
    """Does pieces of work in the order they are given, on one thread and, when that is stuck, on up to `others` more.

    Without others there is no thread at all: whoever is alone does the work himself.
    """

    def __init__(self, others: int):
        self._given: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last_done = 0.0  # when the first thread was last seen not to be stuck
        self._help = threading.Semaphore(0)
        self._closed = False
        self._threads: list[threading.Thread] = []
        if others:
            self._threads.append(threading.Thread(target=self._do_all, name="golem-draw", daemon=True))
            for _ in range(min(others, _HELPERS)):
                self._threads.append(threading.Thread(target=self._do_some, name="golem-draw-help", daemon=True))
        for thread in self._threads:
            thread.start()

    def put(self, work: Callable[[], None]) -> None:
        self._given.put(work)

    def expect(self) -> None:
        """Work comes now: a thread that had none wasn't stuck."""
        if self._given.empty():
            self._last_done = time.perf_counter()

    def call_for_help(self) -> None:
        """Let one more thread work if there is work and none has been done for a while."""
        if not self._given.empty() and time.perf_counter() - self._last_done >= STUCK:
            self._help.release()

    def close(self) -> None:
        """Wait until what was given is done, and end the threads."""
        self._closed = True
        if self._threads:
            self._given.put(None)
            self._help.release(_HELPERS)
        for thread in self._threads:
            thread.join()

    def _do_all(self) -> None:
        while (work := self._given.get()) is not None:
            work()
            self._last_done = time.perf_counter()

    def _do_some(self) -> None:
        while self._help.acquire() and not self._closed:
            try:
                while (work := self._given.get_nowait()) is not None:
                    work()
                self._given.put(None)  # the end is not meant for helpers
            except queue.Empty:
                continue
