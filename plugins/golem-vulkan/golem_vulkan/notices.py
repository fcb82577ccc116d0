"""Lines on standard error for whoever waits, each once in a process: networks that come and go would repeat them."""

from __future__ import annotations

import contextlib
import sys

_said: set[str] = set()


def say_once(line: str, about: str | None = None) -> None:
    """Print `line`, unless there was one about the same: `about`, or the line itself."""
    about = line if about is None else about
    if about not in _said:
        _said.add(about)
        with contextlib.suppress(OSError, ValueError):  # a closed or full standard error hinders no model
            print(line, file=sys.stderr, flush=True)
