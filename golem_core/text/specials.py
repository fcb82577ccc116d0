"""Cutting special tokens out of raw text, before any segmenting.

The rule: the longest special text first, at each of its places from left to right, then the next longest in what is
left.  In practice one pass from left to right gives the same, and the pass notices where it would not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class SpecialCutter:
    """Splits text at special tokens: `cut` returns plain fragments (str) and token ids (int) in order.

    Cost grows with the text, not with the number of special texts: vocabularies have thousands.
    """

    def __init__(self, ids: Mapping[str, int]):
        self.ids = {text: id for text, id in ids.items() if text}
        self._longest = max(map(len, self.ids), default=0)
        # By a head of 1, 2, 4, 8 ... characters: the lengths, below the next power, of special texts that begin so.
        # A head that is not there ends the search for longer ones.
        self._levels: list[tuple[int, dict[str, list[int]]]] = []
        size = 1
        while size <= self._longest:
            lengths: dict[str, set[int]] = {}
            for text in self.ids:
                if len(text) >= size:
                    found = lengths.setdefault(text[:size], set())
                    if len(text) < 2 * size:
                        found.add(len(text))
            self._levels.append((size, {head: sorted(found, reverse=True) for head, found in lengths.items()}))
            size *= 2
        self._start = self._places(sorted({text[:2] for text in self.ids})) if self.ids else None

    @staticmethod
    def _places(heads: list[str]) -> re.Pattern[str]:
        """Finds characters with which a special text may begin: the second one is looked at, too."""
        seconds: dict[str, str] = {}
        for head in heads:
            seconds[head[0]] = seconds.get(head[0], "") + head[1:]
        alone = {head for head in heads if len(head) == 1}
        follow = [
            f"(?<={re.escape(first)})" + ("" if first in alone else f"(?=[{re.escape(following)}])")
            for first, following in seconds.items()
        ]
        return re.compile(f"[{re.escape(''.join(seconds))}](?:{'|'.join(follow)})")

    def cut(self, text: str) -> list[str | int]:
        if self._start is None:
            return [text] if text else []
        parts: list[str | int] = []
        done = position = 0
        while found := self._start.search(text, position):
            start = found.start()
            length = self._match(text, start, 0)
            if not length:
                position = start + 1
                continue
            if 1 < length < self._longest and self._longer_inside(text, start, length):
                return self._cut_longest_first(text)
            if start > done:
                parts.append(text[done:start])
            done = position = start + length
            parts.append(self.ids[text[start:done]])
        if done < len(text):
            parts.append(text[done:])
        return parts

    def _match(self, text: str, start: int, floor: int) -> int:
        """Length of the longest special text at `start` that is longer than `floor`, or 0."""
        candidates = []
        for size, lengths in self._levels:
            found = lengths.get(text[start : start + size])
            if found is None:
                break
            candidates.append(found)
        for found in reversed(candidates):
            for length in found:
                if length <= floor:
                    return 0
                if text[start : start + length] in self.ids:
                    return length
        return 0

    def _longer_inside(self, text: str, start: int, length: int) -> bool:
        """Whether a longer special text begins within the match at `start`, and so should have been cut first."""
        assert self._start is not None
        inner = self._start.finditer(text, start + 1, start + length + 1)
        return any(at.start() < start + length and self._match(text, at.start(), length) for at in inner)

    def _cut_longest_first(self, text: str) -> list[str | int]:
        parts: list[str | int] = [text]
        for special in sorted((s for s in self.ids if s in text), key=lambda s: -len(s.encode())):
            again: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    again.append(part)
                    continue
                for index, piece in enumerate(part.split(special)):
                    if index:
                        again.append(self.ids[special])
                    if piece:
                        again.append(piece)
            parts = again
        return parts
