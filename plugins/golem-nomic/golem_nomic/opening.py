"""From an open file to a model that gives vectors: its facts, tensors and tokenizer."""

from __future__ import annotations

from functools import partial

from golem_core import Embedder, ModelFile, check_tensors, tokenizer_from_metadata
from golem_nomic.model import NomicConfig, build


def open_nomic(file: ModelFile) -> Embedder:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = NomicConfig.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors())
    return Embedder(
        name=file.name,
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        dimensions=cfg.width,
        limit=cfg.context,
        build=partial(build, cfg, file.weights),
        tokenizer=tokenizer,
        file=file,
        matryoshka=True,
    )
