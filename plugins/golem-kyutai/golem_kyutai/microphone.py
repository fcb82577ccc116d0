"""Sound from the microphone, by whichever of the usual programs is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from golem_core import GolemError

AT_ONCE = 0.08
"""Seconds that are handed on together."""


def recorders(rate: int) -> dict[str, list[str]]:
    """Name -> arguments of the programs that write mono samples of 16 bits to standard output, the first the best."""
    source = {"darwin": ["-f", "avfoundation", "-i", ":0"]}.get(sys.platform, ["-f", "pulse", "-i", "default"])
    return {
        "pw-record": ["--rate", str(rate), "--channels", "1", "--format", "s16", "-"],
        "arecord": ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", str(rate)],
        "ffmpeg": ["-nostdin", "-loglevel", "error", *source, "-f", "s16le", "-ac", "1", "-ar", str(rate), "-"],
    }


def recorder(rate: int, name: str | None = None) -> list[str]:
    """The command to record with.  Raises GolemError naming the programs of which none is installed."""
    known = recorders(rate)
    for each in known if name is None else [name]:
        found = shutil.which(each)
        if found is not None:
            return [found, *known[each]]
    raise GolemError(f"nothing to record with: none of {', '.join(known if name is None else [name])} is installed")


class Microphone:
    """What a recording program hears; iterating gives pieces of mono samples, float32, until it ends or is told to."""

    def __init__(self, command: list[str], rate: int):
        self._name, self._size = command[0], 2 * max(1, round(rate * AT_ONCE))
        # In a session of its own: an interrupt from the keyboard reaches who listens, and that tells the program.
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.stopped = False

    def stop(self) -> None:
        """Ends the program; what it has recorded is still given."""
        self.stopped = True
        if self._process.poll() is None:
            self._process.terminate()

    def __enter__(self) -> Microphone:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[np.ndarray]:
        """Raises GolemError with what the program says if it fails."""
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        with process:
            try:
                while len(raw := process.stdout.read(self._size)) > 1:
                    yield np.frombuffer(raw[: len(raw) & -2], "<i2") / np.float32(1 << 15)
                said = process.stderr.read().decode(errors="replace").strip()
                if process.wait() != 0 and not self.stopped:
                    raise GolemError(f"{self._name} ended with {process.returncode}" + (f": {said}" if said else ""))
            finally:
                self.stop()
