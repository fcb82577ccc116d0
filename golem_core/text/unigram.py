"""Unigram segmentation: `tokenizer.ggml.model` "t5", the vocabularies of T5 and XLM-RoBERTa.

A text is rewritten by the file's character map, its blanks become U+2581, and of all ways to cut it into pieces the
one with the highest sum of scores is taken (arXiv:1804.10959; the rules: sentencepiece's `unigram_model.cc` and
`normalizer.cc`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from itertools import groupby
from math import inf
from typing import Any

import numpy as np

from golem_core.errors import BadFile
from golem_core.files import Metadata
from golem_core.text.charsmap import CharsMap
from golem_core.text.tokenizer import Tokenizer
from golem_core.text.vocabulary import NORMAL, UNUSED, USER_DEFINED, Vocabulary

SPACE = "▁"  # U+2581, how these vocabularies write a blank
UNKNOWN_PENALTY = np.float32(10)
"""How far below the lowest score of a piece that of an unknown character lies."""

_WINDOW = 4096  # characters that are segmented at once
_CACHED = 1 << 16  # words whose pieces are remembered
_CACHED_LENGTH = 24  # characters of a word that is worth remembering
_BLANKS = " \t\n\v\f\r"


class UnigramTokenizer(Tokenizer):
    """Takes the cut with the highest sum of scores; neighbouring characters that no piece covers are one unknown."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        add_bos: bool,
        add_eos: bool,
        add_space_prefix: bool = True,
        remove_extra_whitespaces: bool = False,
        charsmap: bytes = b"",
    ):
        super().__init__(vocabulary, add_bos=add_bos, add_eos=add_eos)
        if vocabulary.scores is None:
            raise BadFile(f"{vocabulary.source}: a unigram vocabulary needs tokenizer.ggml.scores")
        if vocabulary.unknown is None:
            raise BadFile(f"{vocabulary.source}: a unigram vocabulary needs tokenizer.ggml.unknown_token_id")
        self.add_space_prefix = add_space_prefix
        self.remove_extra_whitespaces = remove_extra_whitespaces
        self._charsmap = charsmap

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> UnigramTokenizer:
        meta = Metadata.of(meta)
        # Some files state the map's bytes as signed numbers.
        charsmap = meta.numbers("tokenizer.ggml.precompiled_charsmap", int, [], low=-128, high=255)
        return cls(
            Vocabulary.read(meta, {"eos": 1, "unknown": 2}),
            add_bos=meta.flag("tokenizer.ggml.add_bos_token", False),
            add_eos=meta.flag("tokenizer.ggml.add_eos_token", True),
            add_space_prefix=meta.flag("tokenizer.ggml.add_space_prefix", True),
            remove_extra_whitespaces=meta.flag("tokenizer.ggml.remove_extra_whitespaces", False),
            charsmap=np.array(charsmap, np.int16).astype(np.uint8).tobytes(),
        )

    def at_least(self, text: str) -> int:
        """0: blanks and unknown characters may vanish in any number, so nothing is known without segmenting."""
        return 0

    def _cut(self, text: str, parse_special: bool) -> list[str | int]:
        """As for others, but the blanks before <mask> belong to it."""
        parts = super()._cut(text, parse_special)
        mask = self.token_id("<mask>") if parse_special else None
        for at, part in enumerate(parts[1:]):
            before = parts[at]
            if part == mask and mask is not None and isinstance(before, str):
                parts[at] = before.rstrip(_BLANKS)
        return parts

    def _encode(self, text: str, after_special: bool, limit: int | None = None) -> list[int]:
        return self._segmenter.segment(self.normalize(text), limit)

    def _bytes(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode()

    def normalize(self, text: str) -> str:
        """What of `text` is segmented: replaced by the character map, with U+2581 for blanks."""
        text = self._segmenter.charsmap(text)
        if self.remove_extra_whitespaces:
            return "".join([SPACE + word for word in text.split(" ") if word])
        bare = text.lstrip(" ")
        if bare and self.add_space_prefix:
            bare = " " + bare
            text = " " * (len(text) - len(bare) + 1) + bare
        return text.replace(" ", SPACE)

    def _build(self) -> _Segmenter:
        return _Segmenter(self.vocabulary, CharsMap(self._charsmap, self.vocabulary.source))


class _Segmenter:
    """The pieces by text, with their scores."""

    def __init__(self, vocabulary: Vocabulary, charsmap: CharsMap):
        assert vocabulary.scores is not None and vocabulary.unknown is not None
        self.charsmap = charsmap
        kinds, texts = vocabulary.kinds, vocabulary.texts
        scores = vocabulary.scores.astype(np.float64)
        scores[kinds == USER_DEFINED] = 0
        usable = np.isin(kinds, (NORMAL, USER_DEFINED, UNUSED))
        usable[[id for id in vocabulary.marks if kinds[id] == USER_DEFINED]] = False  # text must not end a turn
        ids = np.flatnonzero(usable).tolist()
        self.pieces = dict(zip([texts[id] for id in ids], zip(scores[ids].tolist(), ids, strict=True), strict=True))
        self.pieces.pop("", None)
        self.unknown = vocabulary.unknown
        normal = vocabulary.scores[kinds == NORMAL]
        self.unknown_score = float((normal.min() if len(normal) else np.float32(0)) - UNKNOWN_PENALTY)
        lengths: dict[str, set[int]] = {}
        for text in self.pieces:
            lengths.setdefault(text[0], set()).add(len(text))
        self.lengths = {first: sorted(found) for first, found in lengths.items()}
        self.longest = max((found[-1] for found in self.lengths.values()), default=1)
        # Where U+2581 only begins pieces, no piece goes over the border of a word: words are segmented one by one.
        self.by_word = SPACE in self.pieces and not any(SPACE in text[1:] for text in self.pieces)
        self.cache: dict[str, list[int]] = {}

    def segment(self, text: str, limit: int | None) -> list[int]:
        """The ids of the best cut; only its beginning, longer than `limit`, if that is given and the whole is too."""
        ids: list[int] = []
        if self.by_word:
            first, *words = text.split(SPACE)
            ids += self.word(first, limit)
            for word in words:
                if limit is not None and len(ids) > limit:
                    break
                ids += self.word(SPACE + word, limit)
        else:
            ids = self.cut(text, limit)
        if ids.count(self.unknown) < 2:
            return ids
        return [id for id, run in groupby(ids) for id in ([id] if id == self.unknown else run)]

    def word(self, text: str, limit: int | None) -> list[int]:
        found = self.cache.get(text)
        if found is None:
            found = self.cut(text, limit)
            if len(text) <= _CACHED_LENGTH:
                if len(self.cache) >= _CACHED:
                    self.cache = {}
                self.cache[text] = found
        return found

    def cut(self, text: str, limit: int | None) -> list[int]:
        """The ids of the best cut, with one unknown for each character that no piece covers.

        A long text is cut window by window: what is certain is where all best cuts that lead to the end of a window
        come from.
        """
        ids: list[int] = []
        at, window = 0, _WINDOW
        while at < len(text) and (limit is None or len(ids) <= limit):
            part = text[at : at + window]
            origins, found = self.best(part)
            end = len(part)
            if at + end < len(text):
                ends = list(range(max(0, end - self.longest + 1), end + 1))
                while len(ends) > 1:  # the last of them is reached from one before it
                    origin = origins[ends.pop()]
                    if origin not in ends:
                        insort(ends, origin)
                end = ends[0]
                if end == 0:
                    window *= 2
                    continue
            at += end
            backwards: list[int] = []
            while end:
                backwards.append(found[end])
                end = origins[end]
            if self.unknown in backwards:  # a run over the border of windows is one
                backwards = [id for id, run in groupby(backwards) for id in ([id] if id == self.unknown else run)]
            ids += reversed(backwards)
        return ids

    def best(self, text: str) -> tuple[list[int], list[int]]:
        """For every end: where the last piece of the best cut up to there begins, and its id."""
        count = len(text)
        pieces, lengths, unknown_score = self.pieces, self.lengths, self.unknown_score
        scores = [0.0] + [-inf] * count
        origins, found = [0] * (count + 1), [self.unknown] * (count + 1)
        for start, first in enumerate(text):
            base, alone = scores[start], False
            for length in lengths.get(first, ()):
                end = start + length
                if end > count:
                    break
                piece = pieces.get(text[start:end])
                if piece is not None:
                    alone = alone or length == 1
                    score = base + piece[0]
                    if score > scores[end]:
                        scores[end], origins[end], found[end] = score, start, piece[1]
            if not alone and base + unknown_score > scores[start + 1]:
                scores[start + 1], origins[start + 1] = base + unknown_score, start
                found[start + 1] = self.unknown
        return origins, found
