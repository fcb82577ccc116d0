"""Programs that the hub starts: each is the leader of a process group of its own, which ends with it, and at the latest
with this process, even if that is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from golem_core.hub import launch, reaper

__all__ = ["ProcessGroups"]

_PYTHON = (sys.executable, "-I", "-S")


class ProcessGroups:
    """Starts programs and waits for them.  A small process beside this one ends what is left when this one is gone.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._running: set[int] = set()

    def start(
        self, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program, whose first word is its path.  What it prints is to be read from its `stdout`."""
        pipe = self._pipe()
        process = subprocess.Popen(
            [*_PYTHON, launch.__file__, str(pipe), *command],
            pass_fds=(pipe,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env=env,
        )
        with self._lock:
            self._running.add(process.pid)
        return process

    def signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Signal the group of a program, unless `finish` has returned for it."""
        with self._lock:
            self._signal(process.pid, number)

    def ended(self, process: subprocess.Popen[bytes], *, wait: bool = False) -> bool:
        """Whether a program has ended by itself, or with `wait` True when it has; `finish` is still to be called."""
        if hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)
            return os.waitid(os.P_PID, process.pid, flags) is not None
        if wait:
            process.wait()
        return process.poll() is not None

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """End what is left of a program's group, and return the program's status."""
        with self._lock:
            self._signal(process.pid, signal.SIGKILL)
            self._running.discard(process.pid)
            self._tell(b"-%d\n" % process.pid)
            return process.wait()

    def close(self) -> None:
        """Have the process beside this one end; nothing may be started after that."""
        with self._lock:
            if self._reaper is not None and self._reaper.stdin is not None:
                self._reaper.stdin.close()
                self._reaper.wait()

    def _signal(self, group: int, number: signal.Signals) -> None:
        if group in self._running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def _pipe(self) -> int:
        with self._lock:
            if self._reaper is None:
                self._reaper = subprocess.Popen(
                    [*_PYTHON, reaper.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    bufsize=0,
                )
            assert self._reaper.stdin is not None
            return self._reaper.stdin.fileno()

    def _tell(self, line: bytes) -> None:
        assert self._reaper is not None and self._reaper.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            self._reaper.stdin.write(line)
