"""The facts of a file's vocabulary that the architectures of this package share."""

from __future__ import annotations

import numpy as np

from golem_core import BadFile, ModelFile, Tokenizer


def vocabulary(file: ModelFile, tokenizer: Tokenizer) -> int:
    """Rows of the token table: at least as many as there are tokens."""
    table = file.weights.token_embd
    if table.shape[0] < tokenizer.vocab_size:
        raise BadFile(f"{file.path}: {table.name} has {table.shape[0]} rows for {tokenizer.vocab_size} tokens")
    return table.shape[0]


UNUSED = 5
"""The value of tokenizer.ggml.token_type for ids that stand for nothing."""


def suppressed(file: ModelFile, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids that are never drawn: rows of the token table without a token, fillers, and those that the file names."""
    kinds = np.asarray(file.metadata.numbers("tokenizer.ggml.token_type", int, ()))
    ids = set(np.flatnonzero(kinds == UNUSED).tolist()) - set(tokenizer.eog)
    rows = file.weights.token_embd.shape[0]
    ids |= set(file.metadata.numbers("tokenizer.ggml.suppress_tokens", int, (), low=0, high=rows - 1))
    return tuple(sorted(ids | set(range(tokenizer.vocab_size, rows))))
