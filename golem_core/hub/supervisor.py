"""Running the installed extensions: each is a child process, started again when it ends, and ended with the server.

A child is the leader of a process group of its own, which is ended as a whole; what it prints goes to standard
error under its name.  An extension whose folder is removed is ended, and so is one that hangs: that had registered
and whose registration has lapsed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from golem_core.errors import GolemError
from golem_core.hub.config import Home
from golem_core.hub.environment import binaries, make_environment
from golem_core.hub.groups import ProcessGroups
from golem_core.hub.manifest import Manifest, installed
from golem_core.hub.registry import Registry

__all__ = ["Backoff", "Supervisor", "environment_of"]

GRACE = 5.0
"""Seconds between asking a process to end and ending it."""


class Backoff:
    """How long to wait before an extension is started again: 1 s, doubling to 30 s, from 1 s after a long run."""

    FIRST, LONGEST, LONG_RUN = 1.0, 30.0, 60.0

    def __init__(self) -> None:
        self._next = self.FIRST

    def after(self, ran: float) -> float:
        """The seconds to wait after a run of `ran` seconds."""
        if ran > self.LONG_RUN:
            self._next = self.FIRST
        delay, self._next = self._next, min(self._next * 2, self.LONGEST)
        return delay


def environment_of(
    folder: Path, url: str, token: str, own: Mapping[str, str], parent: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables of a child: the parent's, the extension's own, and where the hub is."""
    venv = folder / ".venv"
    made = dict(parent) | {
        "PATH": os.pathsep.join([str(binaries(venv)), *filter(None, [parent.get("PATH")])]),
        "VIRTUAL_ENV": str(venv),
        "PYTHONUNBUFFERED": "1",
    }
    for name in ("PYTHONHOME", "PYTHONPATH", "GOLEM_URL", "GOLEM_TOKEN"):
        made.pop(name, None)
    made |= {name: value for name, value in own.items() if value.strip()}
    return made | {"GOLEM_URL": url} | ({"GOLEM_TOKEN": token} if token else {})


class Supervisor:
    """Keeps the extensions of a folder running, as programs of `groups`; `wait` stands in for waiting in tests."""

    def __init__(
        self,
        home: Home,
        registry: Registry,
        token: str,
        say: Callable[[str], None],
        groups: ProcessGroups,
        *,
        grace: float = GRACE,
        wait: Callable[[float], object] | None = None,
    ):
        self._home = home
        self._registry = registry
        self._token = token
        self._say = say
        self._groups = groups
        self._grace = grace
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._keepers: list[threading.Thread] = []

    def start(self, url: str) -> None:
        """Start every installed extension; one that cannot be started is said, and the others go on."""
        found = installed(self._home.extensions, self._say)
        for folder, manifest in found:
            name = f"extension {manifest.name}"
            keeper = threading.Thread(target=self._keep, args=(folder, manifest, url), name=name, daemon=True)
            self._keepers.append(keeper)
            keeper.start()
        if found:
            threading.Thread(target=self._watch, name="extension folders", daemon=True).start()

    def stop(self) -> None:
        """End every extension: asked first, and made to after the grace."""
        self._stopping.set()
        self._signal_all(signal.SIGTERM)
        until = time.monotonic() + self._grace
        for keeper in self._keepers:
            keeper.join(max(0.0, until - time.monotonic()))
        self._signal_all(signal.SIGKILL)
        for keeper in self._keepers:
            keeper.join(self._grace)

    def _keep(self, folder: Path, manifest: Manifest, url: str) -> None:
        """Run one extension until the server stops or it is removed."""
        name, backoff = manifest.name, Backoff()
        while not self._stopping.is_set() and folder.exists():
            began = time.monotonic()
            try:
                status = self._run(folder, manifest, url)
            except (GolemError, OSError) as error:
                ended = f"could not be started: {error}"
            else:
                ended = f"ended with status {status}"
            self._registry.drop(name)
            if self._stopping.is_set() or not folder.exists():
                break
            delay = backoff.after(time.monotonic() - began)
            self._say(f"[{name}] {ended}")
            self._say(f"[{name}] starting again in {delay:g} s")
            self._wait(delay)

    def _run(self, folder: Path, manifest: Manifest, url: str) -> int:
        """Run one extension once, and return its status.  Nothing of its group is left when this returns."""
        venv = folder / ".venv"
        if not binaries(venv).is_dir():
            self._say(f"[{manifest.name}] repairing its environment")
            make_environment(folder, self._say)
        own = self._home.config().environment(manifest.name)
        variables = environment_of(folder, url, self._token, own, os.environ)
        command = manifest.command(binaries(venv))
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = self._groups.start(command, cwd=folder, env=variables)
            self._running[manifest.name] = process
        assert process.stdout is not None
        threading.Thread(target=self._relay, args=(manifest.name, process.stdout), daemon=True).start()
        self._groups.ended(process, wait=True)
        with self._lock:
            del self._running[manifest.name]
        return self._groups.finish(process)

    def _relay(self, name: str, output: IO[bytes]) -> None:
        with output:
            while line := output.readline(1 << 16):
                self._say(f"[{name}] {line.decode('utf-8', 'replace').rstrip()}")

    def _watch(self) -> None:
        """End extensions whose folder is gone, and those that registered and give no sign of life any more."""
        heard: dict[str, int] = {}  # the process that had registered under a name
        ended: set[int] = set()
        while not self._stopping.wait(1.0):
            live = {record.name for record in self._registry.live()}
            removed = []
            with self._lock:
                for name, process in self._running.items():
                    if name in live:
                        heard[name] = process.pid
                    if process.pid in ended:
                        continue
                    if not (self._home.extensions / name).exists():
                        self._say(f"[{name}] was removed")
                        self._groups.signal(process, signal.SIGTERM)
                        removed.append((name, process))
                    elif name not in live and heard.get(name) == process.pid:
                        self._say(f"[{name}] gives no sign of life; it is ended")
                        self._groups.signal(process, signal.SIGKILL)
                    else:
                        continue
                    ended.add(process.pid)
            for name, process in removed:
                threading.Timer(self._grace, self._kill, (name, process)).start()

    def _kill(self, name: str, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if self._running.get(name) is process:
                self._groups.signal(process, signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            for process in self._running.values():
                self._groups.signal(process, number)
