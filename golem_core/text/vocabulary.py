"""A tokenizer's vocabulary as a file states it: texts, kinds, scores and the ids with a special meaning.

`Vocabulary.read` takes a file's metadata; the tokenizers take a `Vocabulary`.  Which tokens end a generation is
decided here, by declared id and by text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from golem_core.errors import BadFile

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
    text.
    """

    texts: Sequence[str]
    kinds: np.ndarray
    scores: np.ndarray | None
    bos: int | None
    eos: int | None
    unknown: int | None
    marks: frozenset[int]
    ends: frozenset[int]

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
        BadFile on missing tokens, lists of unequal length and ids outside of the vocabulary.
        """
        texts = meta.get("tokenizer.ggml.tokens")
        if not texts:
            raise BadFile("the file has no vocabulary: tokenizer.ggml.tokens is missing or empty")
        count = len(texts)
        kinds = _array(meta, "token_type", np.int8, count)
        if kinds is None:
            kinds = np.full(count, NORMAL, np.int8)
        scores = _array(meta, "scores", np.float32, count)

        def declared(name: str) -> int | None:
            value = meta.get(f"tokenizer.ggml.{name}_token_id")
            if value is None:
                value = (defaults or {}).get(name)
                return value if value is not None and value < count else None
            if not 0 <= value < count:
                raise BadFile(f"tokenizer.ggml.{name}_token_id is {value}, but the vocabulary has {count} tokens")
            return int(value)

        eos = declared("eos")
        named = {declared(name) for name in ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")} | {eos}
        marks = end_ids(texts)
        kinds = np.array(kinds)
        for id in marks:  # an end mark that a converter took for a word
            if kinds[id] in (NORMAL, UNUSED):
                kinds[id] = CONTROL
        # A vocabulary of tags has </s> among them, as the end of struck-out text.
        ends = {id for id in marks if texts[id] != "</s>" or kinds[id] == CONTROL}
        ends |= {id for id in named if id is not None}
        return cls(texts, kinds, scores, declared("bos"), eos, declared("unknown"), frozenset(marks), frozenset(ends))


def end_ids(texts: Sequence[str], marks: Iterable[str] = END_TEXTS) -> set[int]:
    """The ids of the tokens in `texts` that are written like one of `marks` and end a generation."""
    marks = set(marks)
    others = {other for text, row in NOT_AN_END if text in marks for other in row}
    found = (marks | others).intersection(texts)  # hundreds of thousands of texts: without a dict of them all
    ordinary = {text for text, row in NOT_AN_END if found.issuperset(row)}
    backwards = texts[::-1]  # of several with one text, the last counts
    return {len(texts) - 1 - backwards.index(text) for text in found & marks - ordinary}


def _array(meta: Mapping[str, Any], name: str, dtype: type, count: int) -> np.ndarray | None:
    values = meta.get(f"tokenizer.ggml.{name}")
    if values is None:
        return None
    if len(values) != count:
        raise BadFile(f"tokenizer.ggml.{name} has {len(values)} values for {count} tokens")
    return np.asarray(values, dtype=dtype)
