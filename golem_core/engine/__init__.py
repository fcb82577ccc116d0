"""Holding conversations: slots, continuous batching, prefix reuse, and answers as streams of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golem_core.engine.embedding import Embedded, EmbeddingEngine
    from golem_core.engine.engine import Engine
    from golem_core.engine.request import FinishReason, Generation, GenerationRequest, Token
    from golem_core.engine.roles import Architecture, ChatModel, Embedder, SamplingDefaults
    from golem_core.engine.sorted_answer import SortedAnswer, WholeAnswer, constraint, opens_thought
else:
    from golem_core.lazy import exporter

    __getattr__ = exporter(
        __name__,
        {
            "golem_core.engine.embedding": "Embedded EmbeddingEngine",
            "golem_core.engine.engine": "Engine",
            "golem_core.engine.request": "FinishReason Generation GenerationRequest Token",
            "golem_core.engine.roles": "Architecture ChatModel Embedder SamplingDefaults",
            "golem_core.engine.sorted_answer": "SortedAnswer WholeAnswer constraint opens_thought",
        },
    )

__all__ = [
    "Architecture",
    "ChatModel",
    "Embedded",
    "Embedder",
    "EmbeddingEngine",
    "Engine",
    "FinishReason",
    "Generation",
    "GenerationRequest",
    "SamplingDefaults",
    "SortedAnswer",
    "Token",
    "WholeAnswer",
    "constraint",
    "opens_thought",
]
