"""Run by `ProcessGroups` as a program of its own: tell the reaper of this process, and become another program.

`python launch.py PIPE COMMAND...`; PIPE is the number of the file descriptor that the reaper reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main(pipe: int, command: list[str]) -> None:
    """Replace this process by `command`."""
    with contextlib.suppress(OSError):  # without a reaper, it is the server alone that ends this process
        os.write(pipe, b"+%d\n" % os.getpid())
    os.close(pipe)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execve(command[0], command, os.environ)
    except OSError as error:
        sys.exit(f"{command[0]}: cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
