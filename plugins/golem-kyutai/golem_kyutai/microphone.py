"""Sound from the microphone, by whichever of the usual programs is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def recorder(name: str | None = None) -> str:
    """The path of a program to record with: of `name`, or of the best that is installed.

    Raises GolemError naming the programs of which none is installed.
    """
    names = list(recorders(0)) if name is None else [name]
    for each in names:
        if (found := shutil.which(each)) is not None:
            return found
    raise GolemError(f"nothing to record with: none of {', '.join(names)} is installed")


def recording(program: str, rate: int) -> list[str]:
    """The command that records with the program at that path.

    pw-record writes bare samples to standard output, but for the versions that have a switch for that.
    """
    name = Path(program).name
    raw = ["--raw"] if name == "pw-record" and "--raw" in _help(program) else []
    return [program, *raw, *recorders(rate)[name]]


def _help(program: str) -> str:
    try:
        found = subprocess.run([program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise GolemError(f"{program}: cannot be asked for its options: {error}") from None
    return (found.stdout + found.stderr).decode(errors="replace")


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
