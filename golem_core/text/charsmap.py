"""The character map of sentencepiece's normalizer: which texts become which others before a text is segmented.

The map is stored as a double-array trie over the UTF-8 bytes of the texts, with the replacements behind it
(sentencepiece's `normalizer.cc`).  Hundreds of thousands of texts may be in it, so only the single characters become
a table; what is longer is looked up in the trie.
"""

from __future__ import annotations

import re

import numpy as np

from golem_core.errors import BadFile

_LABEL = 0x800000FF
_SIZES = [1] * 0x80 + [0] * 0x42 + [2] * 0x1E + [3] * 0x10 + [4] * 0x5 + [0] * 0xB  # bytes of a character by the first


class CharsMap:
    """Replaces texts by others, at each place the longest text that the map has; `CharsMap(blob)(text)`.

    `blob` is the value of `tokenizer.ggml.precompiled_charsmap`.  Raises BadFile, naming `source`, for one that is no
    such map or whose texts are not UTF-8.
    """

    def __init__(self, blob: bytes, source: object = "the file"):
        self._source = source
        self._units, self._replacements = self._parts(blob)
        # A unit's index is the base from which it is reached, xor its label.
        children: dict[int, list[int]] = {}
        for index, unit in enumerate(self._units):
            if 0 < unit & _LABEL < 256:
                children.setdefault(index ^ unit & _LABEL, []).append(index)
        self._single, ends = {}, []
        for letter, node, leaf in self._letters(children, self._root):
            ends.append(node)
            if leaf:
                self._single[ord(letter)] = self._replacement(node)
        following: set[str] = set()
        seen: set[int] = set()
        while ends:  # branches are shared, so each is looked at once
            node = ends.pop()
            if node not in seen:
                seen.add(node)
                for letter, end, _ in self._letters(children, node):
                    following.add(letter)
                    ends.append(end)
        # A text of several characters can only be where a character has such ones behind it.
        several = re.escape("".join(sorted(following)))
        self._places = re.compile(f"(.[{several}]+)", re.DOTALL) if following else None

    def __call__(self, text: str) -> str:
        if self._places is None:
            return text.translate(self._single)
        parts = self._places.split(text)
        parts[::2] = [part.translate(self._single) for part in parts[::2]]
        parts[1::2] = map(self._replace, parts[1::2])
        return "".join(parts)

    def _replace(self, text: str) -> str:
        data = text.encode()
        out: list[str] = []
        at = 0
        while at < len(data):
            end, node = self._longest(data, at)
            if end:
                out.append(self._replacement(node))
            else:
                end = at + _SIZES[data[at]]
                out.append(data[at:end].decode())
            at = end
        return "".join(out)

    def _longest(self, data: bytes, at: int) -> tuple[int, int]:
        """Where the longest text ends that begins at `at`, 0 for none, and its node."""
        units, node, end, found = self._units, self._root, 0, 0
        for index in range(at, len(data)):
            node ^= data[index]
            if not data[index] or node >= len(units) or units[node] & _LABEL != data[index]:
                break
            leaf = units[node] >> 8 & 1
            node ^= _base(units[node])
            if leaf:
                end, found = index + 1, node
        return end, found

    def _parts(self, blob: bytes) -> tuple[list[int], bytes]:
        if not blob:
            return [0], b""
        size = int.from_bytes(blob[:4], "little")
        if size < 4 or size % 4 or 4 + size > len(blob):
            raise self._bad(f"its trie of {size} bytes does not fit into {len(blob)}")
        return np.frombuffer(blob, "<u4", size // 4, 4).tolist(), blob[4 + size :]

    @property
    def _root(self) -> int:
        return _base(self._units[0])

    def _letters(self, children: dict[int, list[int]], node: int) -> list[tuple[str, int, bool]]:
        """The characters that lead on from a node: each with the node it leads to, and whether a text ends there."""
        found = []
        begun = [(b"", node)]
        while begun:
            bytes_, node = begun.pop()
            for index in children.get(node, ()):
                unit = self._units[index]
                longer, leaf, to = bytes_ + bytes([unit & 0xFF]), bool(unit >> 8 & 1), index ^ _base(unit)
                if len(longer) < _SIZES[longer[0]] and not leaf:
                    begun.append((longer, to))
                    continue
                if leaf:
                    self._replacement(to)
                try:
                    found.append((longer.decode(), to, leaf))
                except UnicodeDecodeError:
                    raise self._bad(f"{longer!r} is not UTF-8") from None
        return found

    def _replacement(self, node: int) -> str:
        """What the text that ends at `node` becomes."""
        if node >= len(self._units):
            raise self._bad(f"a replacement's place, {node}, lies behind its {len(self._units)} units")
        at = self._units[node] & 0x7FFFFFFF
        end = self._replacements.find(b"\0", at)
        if end < 0:
            raise self._bad(f"a replacement at {at} lies behind the {len(self._replacements)} bytes of them")
        try:
            return self._replacements[at:end].decode()
        except UnicodeDecodeError:
            raise self._bad(f"{self._replacements[at:end]!r} is not UTF-8") from None

    def _bad(self, reason: str) -> BadFile:
        return BadFile(f"{self._source}: tokenizer.ggml.precompiled_charsmap is no character map: {reason}")


def _base(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)
