"""Cutting special tokens out of raw text, before any segmenting.

The rule: the longest special text first, at each of its places from left to right, then the next longest in what is
left.  In practice one pass from left to right gives the same, and the pass notices where it would not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class SpecialCutter:
    """Splits text at special tokens: `cut` returns plain fragments (str) and token ids (int) in order.

    Cost grows with the text and with the special texts that share their first two characters with a place in it, not
    with their number: vocabularies have thousands.
    """

    def __init__(self, ids: Mapping[str, int]):
        self.ids = {text: id for text, id in ids.items() if text}
        lengths: dict[str, set[int]] = {}
        seconds: dict[str, set[str]] = {}
        for text in self.ids:
            lengths.setdefault(text[0], set()).add(len(text))
            seconds.setdefault(text[0], set()).add(text[1:2])
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._longest = max(map(len, self.ids), default=0)
        starts = []
        for first, following in sorted(seconds.items()):
            head = re.escape(first)
            if "" in following:
                starts.append(head)
            else:
                starts.append(f"{head}(?=[{''.join(map(re.escape, sorted(following)))}])")
        self._start = re.compile("|".join(starts)) if starts else None

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
            if length < self._longest and self._longer_inside(text, start, length):
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
        for length in self._lengths[text[start]]:
            if length <= floor:
                break
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
