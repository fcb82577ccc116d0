"""Run by `ProcessGroups` as a program of its own: end the process groups that are left when the server is gone.

It reads lines, "+NUMBER" for a group that there is and "-NUMBER" for one that has ended.  Its input ends when nobody
can write to it any more, which the kernel sees to, however the server ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE = 5.0


def main() -> None:
    """Read until the end of the input, then end what is left: asked first, and made to after the grace."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    left: set[int] = set()
    for line in sys.stdin.buffer:
        (left.add if line.startswith(b"+") else left.discard)(int(line[1:]))
    signalled(left, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while signalled(left, 0) and time.monotonic() < until:
        time.sleep(0.05)
    signalled(left, signal.SIGKILL)


def signalled(groups: set[int], number: int) -> bool:
    """Signal process groups; whether any of them is there."""
    found = False
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            found = True
    return found


if __name__ == "__main__":
    main()
