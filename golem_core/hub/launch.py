"""Run by the supervisor as a program of its own: have the kernel end this process when the server dies, and become
the extension.  `python launch.py PARENT COMMAND...`; where the kernel has no such thing, it only becomes the extension.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process by `command`."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            sys.exit("the server is gone")  # it died before the kernel knew
    os.execve(command[0], command, os.environ)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
