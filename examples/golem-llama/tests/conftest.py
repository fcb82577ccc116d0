"""The tiny models of `fixtures/`, each with what transformers computes, and the ways to run a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golem_llama.model import LlamaConfig, build, hidden_states

from golem_core import Columns, Graph, ModelFile, Reference, open_model
from golem_core.cpu.device import CpuDevice

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class Model:
    file: ModelFile
    config: LlamaConfig
    expected: dict[str, np.ndarray]

    @property
    def tokens(self) -> np.ndarray:
        return self.expected["tokens"]

    def graph(self) -> Graph:
        return build(self.config, self.file.weights)

    def waypoints(self) -> Graph:
        """A graph whose outputs are the embedding and the result of each block, of every column."""
        g = Graph()
        embedding, *blocks = hidden_states(g, self.config, self.file.weights)
        g.output("embedding", embedding)
        for i, block in enumerate(blocks):
            g.output(f"block {i}", block)
        return g


@pytest.fixture(params=["tied", "rope-freqs", "biases", "experts"])
def model(request):
    file = open_model(FIXTURES / f"{request.param}.gguf")
    config = LlamaConfig.read(file, len(file.metadata["tokenizer.ggml.tokens"]))
    return Model(file, config, dict(np.load(FIXTURES / f"{request.param}.npz")))


@pytest.fixture(scope="session")
def cpu():
    """The CPU as a device that keeps keys and values in full precision, to be compared with float32."""
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


@pytest.fixture(params=["reference", "cpu", "cpu without fusions"])
def compile(request, cpu) -> Callable[..., Any]:
    """compile(graph, slots=, context=) -> something whose run(columns) gives the outputs."""

    def make(graph: Graph, slots: int = 1, context: int = 64) -> Any:
        if request.param == "reference":
            return Reference(graph, slots=slots, context=context)
        fuse = request.param == "cpu"
        return cpu.compile(graph, slots=slots, context=context, width=32, scored=32, fuse=fuse)

    return make


@pytest.fixture
def columns():
    """columns(tokens, start=, slot=, scored=): one conversation's tokens from position `start` on, all scored."""

    def make(tokens, start: int = 0, slot: int = 0, scored=None) -> Columns:
        n = len(tokens)
        return Columns(tokens, start + np.arange(n), np.full(n, slot), np.arange(n) if scored is None else scored)

    return make
