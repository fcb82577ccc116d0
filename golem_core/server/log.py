"""One line on standard error for each request: what was asked, how it ended, and where the time went.

Handlers leave what they know in the request's `Entry`; the middleware measures and prints.
"""

from __future__ import annotations

import contextlib
import re
import select
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golem_core.engine import Generation

__all__ = ["Entry", "RequestLog", "duration", "entry", "note_refusal", "note_request", "say", "say_defect"]

_KEY = "golem.entry"


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


PATIENCE = 0.25
"""Seconds that a line waits for whoever reads them; the lines after it do not wait until somebody reads again."""

_lost = 0
_PIECE = 1000  # characters that fit where there is any room


def say(line: str) -> None:
    """Print one line on standard error at once.  It is lost where that is closed or full, or nobody reads it, as in a
    terminal that is stopped: nothing else waits for that.

    Control characters are written as escapes: models, clients and extensions have a part in what lines say, and a
    terminal does what they ask for.
    """
    global _lost
    with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed in this process
        if not _room(0 if _lost else PATIENCE):
            _lost += 1
            return
        text = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", line) + "\n"
        if _lost:
            text, _lost = f"({_lost} lines are missing here, which nobody read)\n{text}", 0
        for at in range(0, len(text), _PIECE):
            if at and not _room(PATIENCE):
                return
            sys.stderr.write(text[at : at + _PIECE])
            sys.stderr.flush()


def say_defect(error: BaseException) -> None:
    """Print the traceback of an error that nobody raised on purpose."""
    say("".join(traceback.format_exception(error)).rstrip())


def _room(within: float) -> bool:
    """Whether standard error takes a piece of text, which may have to be waited for."""
    try:
        return bool(select.select([], [sys.stderr], [], within)[1])
    except (OSError, ValueError, TypeError):  # no file that can be asked, as in tests and on Windows
        return True


def duration(seconds: float) -> str:
    """Write a duration as Go does ("37ms", "51.226s", "1m2.5s"), to the millisecond; shorter ones in microseconds."""
    micro = round(seconds * 1e6)
    if micro < 1000:
        return f"{micro}µs" if micro else "0s"
    milli = round(seconds * 1e3)
    if milli < 1000:
        return f"{milli}ms"
    minutes, rest = divmod(milli, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = (f"{hours}h" if hours else "") + f"{minutes}m" + text
    return text


@dataclass
class Entry:
    """What a handler has to say about its request: notes in order, its answers, and why it was refused if it was.

    One that is `routine`, as signs of life are, has a line only if it was refused.
    """

    notes: list[str] = field(default_factory=list)
    answers: list[Generation] = field(default_factory=list)
    refusal: str | None = None
    routine: bool = False

    def generation(self, generation: Generation) -> None:
        """Note the facts of an answer: its slot, its waiting, and both halves of its time."""
        self.answers.append(generation)
        if generation.slot is None:
            self.notes.append("cancelled while queued")
            return
        waited = f", queued {duration(generation.queued)}" if generation.waited else ""
        self.notes.append(f"slot {generation.slot}{waited}")
        read = f"{generation.fed} prompt in {duration(generation.prompt_seconds)}"
        drawn = f"{generation.drawn} drawn in {duration(generation.draw_seconds)}"
        read += f" ({_rate(generation.fed, generation.prompt_seconds):.1f}/s)"
        drawn += f" ({_rate(generation.drawn, generation.draw_seconds):.2f}/s)"
        if generation.guessed:
            drawn += f", {generation.confirmed} of {generation.guessed} guessed"
        self.notes.append(f"{read}, {drawn}, {generation.finish_reason or 'failed'}")


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def entry(scope: Any) -> Entry:
    """The log entry of the request with this ASGI scope."""
    return scope.setdefault(_KEY, Entry())


def note_request(request: Any, text: str) -> None:
    """Adds what a handler has to say to the log line of its request."""
    entry(request.scope).notes.append(text)


def note_refusal(request: Any, message: str) -> None:
    """Ends the log line of a request with why a stream that had begun could not go on."""
    entry(request.scope).refusal = message


class RequestLog:
    """ASGI middleware that prints the line of every request when it is over, and hands its entry to `count`."""

    def __init__(self, app: Any, count: Callable[[Entry], None] = lambda entry: None):
        self.app = app
        self.count = count

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        kept = entry(scope)
        status, size = 499, 0

        async def counted(message: Any) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted)
        finally:
            self.count(kept)
            if status >= 400 or not kept.routine:
                path = scope.get("raw_path") or scope["path"].encode()
                line = f"{scope['method']} {path.decode('ascii', 'backslashreplace')} {status} {size} bytes"
                line = " — ".join([f"{line} in {duration(time.perf_counter() - start)}", *kept.notes])
                say(line + (f": {' '.join(kept.refusal.split())}" if kept.refusal else ""))
