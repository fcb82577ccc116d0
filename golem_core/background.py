"""What loading a model does beside the work at hand, and after it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable

from golem_core.errors import BadFile, GolemError


def give_back() -> None:
    """Return to the system what loading has freed and the C library keeps, where it can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


THRESHOLDS = gc.get_threshold()
"""How often Python looks for garbage by itself."""


def collect_seldom() -> None:
    """Have Python look for garbage seldom: next to nothing that is imported and loaded is any, and looking takes a
    tenth of the time until a server is ready.

    A start makes a hundred thousand objects that would be looked at, and a large vocabulary half a million more for a
    while.
    """
    gc.set_threshold(1_000_000, *THRESHOLDS[1:])


def collect_as_usual() -> None:
    """End `collect_seldom`; what is there now is not looked at again."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def import_numpy() -> None:
    """Import numpy without threads for its matrix products, which here are few and small.

    OpenBLAS starts them at once, and they take the processor from whoever loads until they sleep.  The variable is not
    left behind for other programs; one that the user has set is heeded.
    """
    variable = "OPENBLAS_NUM_THREADS"
    if "numpy" in sys.modules or variable in os.environ:
        return
    os.environ[variable] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[variable]


def in_background(work: Callable[[], None], failure: str) -> Callable[[], None]:
    """Begin `work` on a thread.  What is returned waits for its end and raises its error: a GolemError as it is,
    another one as a BadFile that begins with `failure`."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the panic of a library in Rust is no Exception
            failed.append(error)

    thread = threading.Thread(target=run, name="golem-tokenizer", daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        for error in failed:
            if isinstance(error, GolemError):
                raise error
            raise BadFile(f"{failure}: {' '.join(str(error).split()) or type(error).__name__}") from error

    return wait
