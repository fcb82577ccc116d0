"""Ranked merges, by the `tokenizers` library: over bytes inside words, and over characters inside lines.

`ByteLevelTokenizer` is `tokenizer.ggml.model` "gpt2": a splitter cuts words, their bytes are written as printable
characters and merged.  `CharacterTokenizer` is "gemma4": blanks become U+2581 and whole lines are merged.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import repeat
from typing import Any

from golem_core.errors import BadFile
from golem_core.files import Metadata
from golem_core.text.pretokenizers import Splitter, splitter
from golem_core.text.tokenizer import Tokenizer
from golem_core.text.vocabulary import Vocabulary, not_utf8

SPACE = "▁"  # U+2581
_NO_TOKEN = "\ue000\ue000"  # two characters, so that no character is it
_LONGEST_RUN = 256  # newlines
_LONG = 4096  # characters from which on a text is given to the library as a batch, which lets other threads run
_HUGE = 1 << 20  # characters from which on texts wait for each other: the library takes 300 bytes for a token


class RankedMergeTokenizer(Tokenizer):
    """Joins the adjacent pair that stands first in a list of merges, leftmost first, until no pair is in it.

    `merges`: lines `left right`; one blank, not at the start, parts them.
    """

    def __init__(self, vocabulary: Vocabulary, merges: list[str], *, add_bos: bool, add_eos: bool):
        super().__init__(vocabulary, add_bos=add_bos, add_eos=add_eos)
        self._merges = merges
        self._room = threading.Lock()

    def _encode(self, text: str, after_special: bool, limit: int | None = None) -> list[int]:
        if len(text) < _LONG:
            found = self._segmenter.encode(text, add_special_tokens=False)
        else:
            with self._room if len(text) >= _HUGE else nullcontext():
                (found,) = self._segmenter.encode_batch_fast([text], add_special_tokens=False)
        return self._known(found.ids)

    def _encode_many(self, fragments: Sequence[tuple[str, bool]]) -> Iterable[list[int]]:
        texts = [text for text, _ in fragments]
        return (self._known(each.ids) for each in self._segmenter.encode_batch_fast(texts, add_special_tokens=False))

    def _known(self, ids: list[int]) -> list[int]:
        """Without what stands for bytes that have no token: these yield none."""
        return [id for id in ids if id != self.vocab_size] if self.vocab_size in ids else ids

    def _model(self, alphabet: list[str], **options: bool) -> Any:
        """The library's model over `vocabulary` and `merges`; `alphabet`: what stands for the 256 bytes.

        If a byte has no token, it becomes an id behind the vocabulary, so that its neighbours don't merge across it.
        """
        from tokenizers.models import BPE

        ids = self.vocabulary.ids
        unknown = {}
        if not all(text in ids for text in alphabet):
            ids = ids | {_NO_TOKEN: self.vocab_size}
            unknown = {"unk_token": _NO_TOKEN, "fuse_unk": False}
        collecting = gc.isenabled()
        gc.disable()  # half a million fresh pairs would have it search them over and over
        try:
            return BPE(ids, self._pairs(), **unknown, **options)
        except BadFile:
            raise
        except Exception as error:  # the library raises nothing narrower
            words = " ".join(str(error).split())
            message = f"{self.vocabulary.source}: the vocabulary and its merges don't go together: {words}"
            raise BadFile(message) from error
        finally:
            if collecting:
                gc.enable()

    def _pairs(self) -> list[tuple[str, str]]:
        pairs = [(left, right) for left, _, right in map(str.partition, self._merges, repeat(" "))]
        if all(map(all, pairs)):
            return pairs
        return [self._pair(rank, line) for rank, line in enumerate(self._merges)]

    def _pair(self, rank: int, line: str) -> tuple[str, str]:
        at = line.find(" ", 1)
        if at < 0 or not line[at + 1 :]:
            raise BadFile(f"{self.vocabulary.source}: merge {rank} of the vocabulary is no pair: {line!r}")
        return line[:at], line[at + 1 :]


class ByteLevelTokenizer(RankedMergeTokenizer):
    def __init__(self, vocabulary: Vocabulary, merges: list[str], splitter: Splitter, *, add_bos: bool, add_eos: bool):
        super().__init__(vocabulary, merges, add_bos=add_bos, add_eos=add_eos)
        self._splitter = splitter

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> ByteLevelTokenizer:
        meta = Metadata.of(meta)
        cut = splitter(meta.text("tokenizer.ggml.pre", "default"))
        return cls(
            Vocabulary.read(meta),
            _merges(meta),
            cut,
            add_bos=meta.flag("tokenizer.ggml.add_bos_token", cut.add_bos),
            add_eos=meta.flag("tokenizer.ggml.add_eos_token", False),
        )

    def _build(self) -> Any:
        import tokenizers
        from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

        alphabet = [chr(code) for code in _byte_alphabet()]
        segmenter = tokenizers.Tokenizer(self._model(alphabet, ignore_merges=self._splitter.whole_words))
        steps = [Split(tokenizers.Regex(pattern), "isolated") for pattern in self._splitter.patterns]
        segmenter.pre_tokenizer = Sequence([*steps, ByteLevel(add_prefix_space=False, use_regex=False)])
        return segmenter

    def _bytes(self, text: str) -> bytes:
        try:
            return text.translate(_TO_BYTE).encode("latin-1")
        except UnicodeEncodeError:  # a filler name that isn't written in the alphabet of bytes
            return text.encode()


class CharacterTokenizer(RankedMergeTokenizer):
    """Merges over the characters of a line, blanks written as U+2581; a run of newlines that is a token is taken whole.

    Characters that are no token become one `<0xNN>` token per byte.
    """

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> CharacterTokenizer:
        meta = Metadata.of(meta)
        return cls(
            Vocabulary.read(meta),
            _merges(meta),
            add_bos=True,  # whatever the file says: some say false by mistake
            add_eos=meta.flag("tokenizer.ggml.add_eos_token", False),
        )

    def _encode(self, text: str, after_special: bool, limit: int | None = None) -> list[int]:
        if not self._runs:
            return super()._encode(text, after_special)
        ids: list[int] = []
        for part in _NEWLINES.split(text):
            if part in self._runs:
                ids.append(self._runs[part])
            elif part:
                ids += super()._encode(part, after_special)
        return ids

    def _encode_many(self, fragments: Sequence[tuple[str, bool]]) -> Iterable[list[int]]:
        return Tokenizer._encode_many(self, fragments) if self._runs else super()._encode_many(fragments)

    @cached_property
    def _runs(self) -> dict[str, int]:
        """Runs of newlines that are a token and that merging would not make that token."""
        runs = ["\n" * length for length in range(1, _LONGEST_RUN)]
        known = {run: self.vocabulary.ids[run] for run in runs if run in self.vocabulary.ids}
        merged = super()._encode
        return {run: id for run, id in known.items() if merged(run, False) != [id]}

    def _build(self) -> Any:
        import tokenizers
        from tokenizers.normalizers import Replace
        from tokenizers.pre_tokenizers import Split

        segmenter = tokenizers.Tokenizer(self._model([f"<0x{byte:02X}>" for byte in range(256)], byte_fallback=True))
        segmenter.normalizer = Replace(" ", SPACE)
        segmenter.pre_tokenizer = Split(tokenizers.Regex("[^\n]+|\n+"), "isolated")
        return segmenter

    def _bytes(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode()


_NEWLINES = re.compile("(\n+)")


def _merges(meta: Metadata) -> list[str]:
    merges = meta.texts("tokenizer.ggml.merges", None)
    if merges is None:
        raise BadFile(f"{meta.source}: a vocabulary of ranked merges needs tokenizer.ggml.merges")
    if (wrong := not_utf8(merges)) is not None:
        raise meta.bad(f"tokenizer.ggml.merges[{wrong}]", merges[wrong], "which is not UTF-8")
    return merges


def _byte_alphabet() -> dict[int, int]:
    """Code point of a byte's printable character -> byte: itself where printable, else U+0100 and up in order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: byte for byte in plain} | {0x100 + index: byte for index, byte in enumerate(others)}


# Latin-1 characters outside of the alphabet are sent away, so that the translation has only bytes of it.
_TO_BYTE = {code: 0xFFFD for code in range(256)} | _byte_alphabet()
