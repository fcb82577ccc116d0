"""A tokenizer's vocabulary as a file states it: texts, kinds, scores and the ids with a special meaning.

`Vocabulary.read` takes a file's metadata; the tokenizers take a `Vocabulary`.  Which tokens end a generation is
decided here, by declared id and by text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from golem_core.errors import BadFile
from golem_core.files import Metadata

# Kinds of tokens, the values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Texts of tokens that end a generation in the published vocabularies, whatever the file declares besides.
END_TEXTS = (
    "<eos>",
    "</s>",
    "[EOS]",
    "[e~[",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    # Marks of code completion, which have no other meaning in a conversation.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<reponame>",
    "<REPO>",
    "<|file_sep|>",
)

# Where all tokens of a row exist, the text before the colon is an ordinary token and ends nothing.
NOT_AN_END = (
    ("<|end|>", ("<|return|>", "<|call|>")),
    ("<|end|>", ("<|flush|>", "<|calls|>")),
    ("</s>", ("<|tool_response>",)),
)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token texts and kinds by id, and the ids that the file names.

    `texts`: one str per id. `kinds`: int8 array (n,). `scores`: float32 array (n,) or None. `bos`, `eos`, `unknown`:
    declared ids or None. `marks`: ids whose text marks an end. `ends`: ids that end a generation, by declaration or by
    text. `source` names the file in errors.
    """

    texts: Sequence[str]
    kinds: np.ndarray
    scores: np.ndarray | None
    bos: int | None
    eos: int | None
    unknown: int | None
    marks: frozenset[int]
    ends: frozenset[int]
    source: object = "the file"

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Text -> id, the last one where a text occurs twice."""
        return dict(zip(self.texts, range(len(self)), strict=True))

    @classmethod
    def read(cls, meta: Mapping[str, Any], defaults: Mapping[str, int] | None = None) -> Vocabulary:
        """Read the `tokenizer.ggml.*` keys of `meta`.

        `defaults` gives ids (by "bos", "eos", "unknown") that a format fixes where the file is silent.  Raises
        BadFile on missing tokens, values of another type, lists of unequal length, ids outside of the vocabulary and
        byte tokens that name no byte.
        """
        meta = Metadata.of(meta)
        texts = meta.texts("tokenizer.ggml.tokens", None)
        if not texts:
            raise BadFile(f"{meta.source}: there is no vocabulary: tokenizer.ggml.tokens is missing or empty")
        if (wrong := not_utf8(texts)) is not None:
            raise meta.bad(f"tokenizer.ggml.tokens[{wrong}]", texts[wrong], "which is not UTF-8")
        count = len(texts)
        stated = meta.numbers("tokenizer.ggml.token_type", int, None, low=0, high=BYTE)
        kinds = (
            np.full(count, NORMAL, np.int8) if stated is None else _array(meta, "token_type", stated, np.int8, count)
        )
        scores = meta.numbers("tokenizer.ggml.scores", float, None, low=-3e38, high=3e38)
        if scores is not None:
            scores = _array(meta, "scores", scores, np.float32, count)

        def declared(name: str) -> int | None:
            key = f"tokenizer.ggml.{name}_token_id"
            value = meta.number(key, int, None)
            if value is None:
                value = (defaults or {}).get(name)
                return value if value is not None and value < count else None
            if not 0 <= value < count:
                raise meta.bad(key, value, f"but the vocabulary has {count} tokens")
            return value

        for id in np.flatnonzero(kinds == BYTE).tolist():
            try:
                byte_value(texts[id])
            except BadFile as error:
                raise BadFile(f"{meta.source}: {error}") from None
        eos = declared("eos")
        named = {declared(name) for name in ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")} | {eos}
        marks = end_ids(texts)
        for id in marks:  # an end mark that a converter took for a word
            if kinds[id] in (NORMAL, UNUSED):
                kinds[id] = CONTROL
        # A vocabulary of tags has </s> among them, as the end of struck-out text.
        ends = {id for id in marks if texts[id] != "</s>" or kinds[id] == CONTROL}
        ends |= {id for id in named if id is not None}
        bos, unknown = declared("bos"), declared("unknown")
        return cls(texts, kinds, scores, bos, eos, unknown, frozenset(marks), frozenset(ends), meta.source)


def end_ids(texts: Sequence[str], marks: Iterable[str] = END_TEXTS) -> set[int]:
    """The ids of the tokens in `texts` that are written like one of `marks` and end a generation."""
    marks = set(marks)
    others = {other for text, row in NOT_AN_END if text in marks for other in row}
    found = (marks | others).intersection(texts)  # hundreds of thousands of texts: without a dict of them all
    ordinary = {text for text, row in NOT_AN_END if found.issuperset(row)}
    backwards = texts[::-1]  # of several with one text, the last counts
    return {len(texts) - 1 - backwards.index(text) for text in found & marks - ordinary}


def encoded(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """All texts in UTF-8, one behind the other (uint8), and the bytes of each (int64)."""
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    firsts = np.append(np.flatnonzero(data & 0xC0 != 0x80), len(data))  # where a character begins
    ends = firsts[np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))]
    return data, np.diff(ends, prepend=0)


def not_utf8(texts: Sequence[str]) -> int | None:
    """The index of the first text that has bytes which are not UTF-8 (surrogates), or None."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        ends = accumulate(map(len, texts))
        return next(index for index, end in enumerate(ends) if end > error.start)
    return None


def byte_value(text: str) -> bytes:
    """The byte of a token written `<0xNN>`; BadFile if it isn't written so."""
    found = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)
    if found is not None:
        return bytes.fromhex(found[1])
    raise BadFile(f"the byte token {text!r} is not written <0xNN>")


def _array(meta: Metadata, name: str, values: list[Any], dtype: type, count: int) -> np.ndarray:
    if len(values) != count:
        raise BadFile(f"{meta.source}: tokenizer.ggml.{name} has {len(values)} values for {count} tokens")
    return np.array(values, dtype=dtype)
