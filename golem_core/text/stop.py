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

    This is the automaton of Aho and Corasick (Communications of the ACM 18, 1975): making it takes time by the length
    of all stop strings together, and a character of text takes the same time however many there are.
    """

    def __init__(self, stops: Iterable[str]):
        self.stopped = False
        self._held = ""
        # A state is a beginning of a stop string, 0 the empty one: the longest that the text so far ends with.
        # By state: its length, and the length of the longest stop string that it ends with, 0 for none.
        self._state = 0
        self._length, self._complete = [0], [0]
        self._next: dict[tuple[int, str], int] = {}
        edges: list[tuple[int, str, int]] = []
        for stop in set(stops):
            state = 0
            for letter in stop:
                before, state = state, self._next.get((state, letter), 0)
                if not state:
                    state = self._next[before, letter] = len(self._length)
                    self._length.append(self._length[before] + 1)
                    self._complete.append(0)
                    edges.append((before, letter, state))
            self._complete[state] = len(stop)
        # By state: the longest other state that it ends with.  Those are shorter, so shorter states come first.
        self._shorter = [0] * len(self._length)
        for before, letter, state in sorted(edges, key=lambda edge: self._length[edge[2]]):
            if before:
                shorter = self._shorter[state] = self._after(self._shorter[before], letter)
                self._complete[state] = self._complete[state] or self._complete[shorter]

    def push(self, text: str) -> tuple[str, bool]:
        """Take the next piece of text: (what may be sent now, whether a stop string has been met).

        After a stop nothing more comes out.
        """
        if self.stopped:
            return "", True
        if not self._next:
            return text, False
        begin = len(self._held)
        text = self._held + text
        state = self._state
        for end in range(begin, len(text)):
            state = self._after(state, text[end])
            if self._complete[state]:
                self.stopped, self._held = True, ""
                return text[: end + 1 - self._complete[state]], True
        self._state = state
        keep = len(text) - self._length[state]
        self._held = text[keep:]
        return text[:keep], False

    def flush(self) -> str:
        """End the stream: what was held back was no stop string and is handed out."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _after(self, state: int, letter: str) -> int:
        """The state that follows `state` when `letter` comes."""
        following = self._next.get((state, letter))
        while following is None and state:
            state = self._shorter[state]
            following = self._next.get((state, letter))
        return following or 0
