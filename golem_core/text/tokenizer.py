"""Text to token ids and back, by the vocabulary that a file carries.

`tokenizer_from_metadata` picks the kind of tokenizer by `tokenizer.ggml.model`.  What all kinds share lives here:
special tokens are cut out of the raw text first, a kind's own `_encode` segments the rest, and every token has bytes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from golem_core.errors import BadFile, BadRequest, Unsupported
from golem_core.files import Metadata
from golem_core.text.specials import SpecialCutter
from golem_core.text.utf8 import LONE, SURROGATE, Utf8Assembler
from golem_core.text.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    byte_value,
    encoded,
    end_ids,
)

_LONGEST_CHARACTER = 4  # bytes
_BATCH = 256
"""Texts that a library is handed at once; of more, its results don't stay in the processor's caches."""
_OTHERS = re.compile("[\ud801-\udfff]")


class Tokenizer:
    """A vocabulary with its way of segmenting.  Safe to use from several threads.

    `vocab_size`: number of ids. `bos`, `eos`: declared ids or None. `eog`: ids that end a generation. `add_bos`,
    `add_eos`: whether `encode(..., add_special=True)` puts them around a text.
    """

    def __init__(self, vocabulary: Vocabulary, *, add_bos: bool, add_eos: bool):
        for wanted, name, id in ((add_bos, "bos", vocabulary.bos), (add_eos, "eos", vocabulary.eos)):
            if wanted and id is None:
                raise BadFile(f"{vocabulary.source}: it asks for a {name} token around texts and names none")
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self.bos = vocabulary.bos
        self.eos = vocabulary.eos
        self.eog = vocabulary.ends
        self.add_bos = add_bos
        self.add_eos = add_eos
        self._built: Any = None
        self._building = threading.Lock()

    def encode(
        self,
        text: str,
        *,
        add_special: bool = False,
        parse_special: bool = False,
        limit: int | None = None,
        drop_lone: bool = False,
    ) -> list[int]:
        """The ids of `text`.

        `add_special`: with BOS and EOS as the file says.  `parse_special`: the texts of control and unknown tokens
        stand for these tokens; user-defined tokens are found in either case.  Lone surrogates count as U+FFFD.
        `limit`: only the first so many ids matter, so that of a longer text any number above that may be returned.
        `drop_lone`: the surrogate `LONE` is no character, and only parts what would be a special token.
        """
        if not text.isascii():
            text = (_OTHERS if drop_lone else SURROGATE).sub("\ufffd", text)
        ids: list[int] = []
        if add_special and self.add_bos:
            ids.append(self.bos)  # type: ignore[arg-type]
        after_special = True
        for part in self._cut(text, parse_special):
            if limit is not None and len(ids) > limit:
                break
            if isinstance(part, int):
                ids.append(part)
                after_special = True
            else:
                ids += self._encode(part.replace(LONE, "") if drop_lone else part, after_special, limit)
                after_special = False
        if add_special and self.add_eos:
            ids.append(self.eos)  # type: ignore[arg-type]
        return ids

    def encode_many(self, texts: Sequence[str], *, parse_special: bool = False) -> Iterator[list[int]]:
        """What `encode(text, parse_special=...)` gives for each text, in less time where they are many and short."""
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            cut = [self._cut(t if t.isascii() else SURROGATE.sub("\ufffd", t), parse_special) for t in batch]
            fragments = [
                (part, at == 0 or isinstance(parts[at - 1], int))
                for parts in cut
                for at, part in enumerate(parts)
                if isinstance(part, str)
            ]
            segmented = iter(self._encode_many(fragments) if fragments else ())
            for parts in cut:
                if len(parts) == 1 and isinstance(parts[0], str):
                    yield next(segmented)
                    continue
                yield [id for part in parts for id in ((part,) if isinstance(part, int) else next(segmented))]

    def at_least(self, text: str) -> int:
        """A number of ids that `encode(text)` does not go below, known without segmenting: from the longest token.

        Bytes without a token of their own don't count: they may leave no id behind.
        """
        text = text.replace("▁", " ")  # U+2581 is how some vocabularies write a blank, so its tokens count as those
        data = SURROGATE.sub("\ufffd", text).encode()
        lacking, longest = self._bounds
        return -(-len(data.translate(None, lacking)) // longest)

    @cached_property
    def _bounds(self) -> tuple[bytes, int]:
        """The bytes that have no token of their own (byte tokens only count if all of them are there), and the most
        bytes of text that one id stands for."""
        kinds, texts = self.vocabulary.kinds, self.vocabulary.texts
        _, sizes = encoded(texts)
        short = np.flatnonzero((sizes <= _LONGEST_CHARACTER) & (kinds == NORMAL)).tolist()
        pieces = (self.piece(id) for id in short if len(texts[id]) == 1)
        found = {piece for piece in pieces if len(piece) == 1}
        if np.count_nonzero(kinds == BYTE) >= 256:
            found |= {self.piece(id) for id in np.flatnonzero(kinds == BYTE).tolist()}
        longest = 1
        for id in np.argsort(-sizes, kind="stable").tolist():
            if sizes[id] <= longest:  # a token never stands for more bytes than it is written with
                break
            longest = max(longest, len(self.piece(id)) if kinds[id] in (NORMAL, BYTE) else int(sizes[id]))
        return bytes(byte for byte in range(256) if bytes([byte]) not in found), longest

    def piece(self, id: int, *, special: bool = False) -> bytes:
        """The bytes that token `id` stands for; control and unknown tokens are b"" unless `special`."""
        text = self.vocabulary.texts[id]
        kind = self.vocabulary.kinds[id]
        if kind == NORMAL:
            return self._bytes(text)
        if kind == USER_DEFINED or (special and kind in (CONTROL, UNKNOWN)):
            return text.encode()
        return byte_value(text) if kind == BYTE else b""

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of `ids`: U+FFFD for bytes that are not UTF-8, nothing for an incomplete character at the end."""
        return Utf8Assembler().push(b"".join(self.piece(id, special=special) for id in ids))

    def token_id(self, text: str) -> int | None:
        """The id of the token written `text` in the file, or None."""
        return self.vocabulary.ids.get(text)

    def token_text(self, id: int) -> str:
        """Token `id` as the file writes it (with its marks for blanks and bytes)."""
        return self.vocabulary.texts[id]

    def add_eog(self, texts: Iterable[str]) -> None:
        """Count the tokens with these texts, where the vocabulary has them, as ends of a generation."""
        self.eog |= end_ids(self.vocabulary.texts, texts)

    def prepare(self) -> None:
        """Build now what the first `encode` and `at_least` would build; worth a thread of its own while weights load.

        Raises BadFile for a vocabulary that nothing can be segmented by.
        """
        with suppress(BadRequest):  # a vocabulary without this letter
            self.encode("a", parse_special=True)
        self.at_least("")

    def _cut(self, text: str, parse_special: bool) -> list[str | int]:
        """`text` as fragments to segment and ids of special tokens."""
        return (self._every_special if parse_special else self._user_defined).cut(text)

    def _encode(self, text: str, after_special: bool, limit: int | None = None) -> list[int]:
        """Segment a fragment without special tokens; `after_special`: it begins the text or follows such a token.

        It may end after more than `limit` ids.
        """
        raise NotImplementedError

    def _encode_many(self, fragments: Sequence[tuple[str, bool]]) -> Iterable[list[int]]:
        """`_encode` of each of several fragments (one at least), which come with their `after_special`."""
        return (self._encode(text, after_special) for text, after_special in fragments)

    def _bytes(self, text: str) -> bytes:
        """What a normal token's text stands for."""
        raise NotImplementedError

    def _build(self) -> Any:
        """Make the library object that segments; called once, when it is first needed."""
        raise NotImplementedError

    @property
    def _segmenter(self) -> Any:
        if self._built is None:
            with self._building:
                if self._built is None:
                    self._built = self._build()
        return self._built

    @cached_property
    def _user_defined(self) -> SpecialCutter:
        special = self._special(USER_DEFINED)
        # Text must not end a turn unless it is asked to be parsed, however a file defines its end marks.
        return SpecialCutter({text: id for text, id in special.items() if id not in self.vocabulary.marks})

    @cached_property
    def _every_special(self) -> SpecialCutter:
        return SpecialCutter(self._special(UNKNOWN, CONTROL, USER_DEFINED))

    def _special(self, *kinds: int) -> dict[str, int]:
        found = np.flatnonzero(np.isin(self.vocabulary.kinds, kinds))
        return {self.vocabulary.texts[id]: id for id in found.tolist()}


def tokenizer_from_metadata(meta: Mapping[str, Any], *, extra_eog: Iterable[str] = ()) -> Tokenizer:
    """The tokenizer that a file's `tokenizer.ggml.*` keys describe.

    `extra_eog`: texts of further tokens that end a generation.  Raises Unsupported for a model or pre-tokenizer that
    is not known here, BadFile for a vocabulary that contradicts itself.
    """
    meta = Metadata.of(meta)
    model = meta.text("tokenizer.ggml.model", None)
    if model is None:
        raise BadFile(f"{meta.source}: there is no tokenizer: tokenizer.ggml.model is missing")
    if model == "llama":
        from golem_core.text.spm import ScoredMergeTokenizer as kind
    elif model == "gpt2":
        from golem_core.text.bpe import ByteLevelTokenizer as kind
    elif model == "gemma4":
        from golem_core.text.bpe import CharacterTokenizer as kind
    elif model == "t5":
        from golem_core.text.unigram import UnigramTokenizer as kind
    else:
        known = "llama, gpt2, gemma4, t5"
        raise Unsupported(
            f"{meta.source}: tokenizer.ggml.model {model!r}: this tokenizer is not known here ({known} are)"
        )
    tokenizer = kind.from_metadata(meta)
    if extra_eog:
        tokenizer.add_eog(extra_eog)
    return tokenizer
