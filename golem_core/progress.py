"""A progress bar on the terminal for work that turns out to take over a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

PATIENCE = 1.0
"""Seconds before there is a bar at all."""


class LoadProgress:
    """Called with (done, total) bytes; draws on stderr, if that is a terminal.  Use as a context manager."""

    def __init__(self, title: str):
        self.title = title
        self.start = time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None:
            if time.monotonic() - self.start < PATIENCE or not sys.stderr.isatty():
                return
            self.bar = self.open(total)
        self.bar.update(self.task, completed=done)

    def open(self, total: int) -> Any:
        """Show the bar, of `total` bytes, and return it: a `rich.progress.Progress`."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self.task = bar.add_task(self.title, total=total)
        bar.start()
        return bar

    def __enter__(self) -> LoadProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
