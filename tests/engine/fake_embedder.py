"""An embedding model on a device that counts: a text's vector tells its tokens, and every pass is written down."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from golem_core.embedder import LoadedEmbedder
from golem_core.engine import Embedder
from golem_core.engine.embedding import EmbeddingEngine
from golem_core.graph import Columns

DIMENSIONS = 4
VOCABULARY = 0x110000
END = 2
POISON = 666


def vector(ids: Any) -> np.ndarray:
    """What the fake model gives for a text: its length, its first and last token, and the sum of them."""
    return np.array([len(ids), ids[0], ids[-1], sum(ids)], np.float32)


class FakePass:
    rings = ()
    saved_bytes = 0

    def __init__(self, device: FakeDevice, width: int):
        self.device, self.width = device, width

    def run(self, columns: Columns) -> dict[str, np.ndarray]:
        assert len(columns) <= self.width
        edges = np.flatnonzero(np.diff(columns.slot)) + 1
        texts = [part.tolist() for part in np.split(columns.token, edges)]
        for part in np.split(columns.position, edges):
            assert part.tolist() == list(range(len(part)))
        self.device.passes.append(texts)
        self.device.running.set()
        assert self.device.go.wait(10)
        time.sleep(self.device.delay)
        if any(POISON in text for text in texts):
            raise RuntimeError("no")
        return {"embedding": np.array([vector(text) for text in texts])}


class FakeDevice:
    """Records the texts of each pass; a pass waits until `go` is set, takes `delay` seconds, and fails by POISON."""

    name = "fake"

    def __init__(self) -> None:
        self.passes: list[list[list[int]]] = []
        self.go = threading.Event()
        self.go.set()
        self.running = threading.Event()
        self.delay = 0.0
        self.most: int | None = None

    def compile(self, graph: Any, *, width: int, **sizes: Any) -> FakePass:
        return FakePass(self, min(width, self.most or width))

    def close(self) -> None:
        pass


class FakeTokenizer:
    """Characters, with a 0 before and a 2 behind them."""

    add_eos = True
    vocab_size = VOCABULARY

    def encode(self, text: str, *, add_special: bool = False, limit: int | None = None, **how: Any) -> list[int]:
        assert add_special
        return [0, *map(ord, text[: None if limit is None else limit + 1]), END]

    def prepare(self) -> None:
        pass


def fake_embedder(
    limit: int = 16, width: int | None = 40, matryoshka: bool = True
) -> tuple[LoadedEmbedder, FakeDevice]:
    device = FakeDevice()
    file: Any = SimpleNamespace(
        metadata={"general.file_type": 1, "fake.block_count": 1},
        weights={},
        architecture="fake",
        path=Path(__file__),
        close=lambda: None,
    )
    tokenizer: Any = FakeTokenizer()
    model = Embedder(
        name="fake-embedder",
        architecture="fake",
        vocab_size=VOCABULARY,
        dimensions=DIMENSIONS,
        limit=limit,
        build=lambda: SimpleNamespace(),  # type: ignore[arg-type,return-value]
        tokenizer=tokenizer,
        file=file,
        matryoshka=matryoshka,
    )
    return LoadedEmbedder(model, EmbeddingEngine(model, device, width=width), device), device
