"""Stop strings: where an answer's text ends, and which of its text may leave already.

Text comes in as it is drawn, in pieces of any size; what might be the beginning of a stop string is held back until
it is known not to be one.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopMatcher:
    """Cuts a stream of text before the first stop string in it.

    The result does not depend on how the text was split: the emitted pieces join to the text before the stop string
    that is complete first (of several complete at once, the one that begins first).  Empty stop strings are ignored.
    """

    def __init__(self, stops: Iterable[str]):
        wanted = {stop for stop in stops if stop}
        # A stop string with another inside, other than at its end, is never the first to be complete.
        self.stops = tuple(sorted(stop for stop in wanted if not any(other in stop[:-1] for other in wanted)))
        self.stopped = False
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Take the next piece of text: (what may be sent now, whether a stop string has been met).

        After a stop nothing more comes out.
        """
        if self.stopped:
            return "", True
        if not self.stops:
            return text, False
        text = self._held + text
        found = [at for at in map(text.find, self.stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)], True
        keep = min(self._beginning(text, stop) for stop in self.stops)
        self._held = text[keep:]
        return text[:keep], False

    def flush(self) -> str:
        """End the stream: what was held back was no stop string and is handed out."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _beginning(text: str, stop: str) -> int:
        """Where the longest end of `text` begins that `stop` begins with; len(text) if there is none."""
        at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
        while at >= 0 and not stop.startswith(text[at:]):
            at = text.find(stop[0], at + 1)
        return at if at >= 0 else len(text)
