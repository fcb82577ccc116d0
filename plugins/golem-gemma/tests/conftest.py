"""The tiny models of `fixtures/`, each with what transformers computes, and the ways to run a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golem_gemma import gemma3, gemma4

from golem_core import Columns, Graph, ModelFile, Reference, Value, open_model
from golem_core.cpu.device import CpuDevice

FIXTURES = Path(__file__).parent / "fixtures"
MODELS = ["gemma3", "gemma3-linear-rope", "gemma4-e2b", "gemma4-12b", "gemma4-26b"]


@dataclass
class Model:
    """A tiny model: its file, its config, the functions of its architecture, and the expected values."""

    name: str
    file: ModelFile
    config: Any
    family: Any
    expected: dict[str, np.ndarray]

    @property
    def tokens(self) -> np.ndarray:
        return self.expected["tokens"]

    def graph(self) -> Graph:
        return self.family.build(self.config, self.file.weights)

    def waypoints(self) -> Graph:
        """A graph whose outputs are the embedding, "block 0", "block 1", ..., and the logits, of every column."""
        g = Graph()
        states: list[Value] = self.family.hidden_states(g, self.config, self.file.weights)
        g.output("embedding", states[0])
        for i, state in enumerate(states[1:]):
            g.output(f"block {i}", state)
        g.output("logits", self.family.head(g, self.config, self.file.weights, states[-1]))
        return g


def read(name: str) -> Model:
    file = open_model(FIXTURES / f"{name}.gguf")
    vocabulary = len(file.metadata["tokenizer.ggml.tokens"])
    expected = dict(np.load(FIXTURES / f"{name}.npz"))
    if file.architecture == "gemma3":
        return Model(name, file, gemma3.Gemma3Config.read(file, vocabulary), gemma3, expected)
    return Model(name, file, gemma4.Gemma4Config.read(file, vocabulary), gemma4, expected)


@pytest.fixture(params=MODELS)
def model(request):
    return read(request.param)


@pytest.fixture
def load():
    """load(name) -> the Model of that fixture."""
    return read


Compile = Callable[..., Any]


@pytest.fixture(scope="session")
def cpu():
    """The CPU as a device that keeps keys and values in full precision, to be compared with float32."""
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


@pytest.fixture(params=["reference", "cpu", "cpu without fusions"])
def compile(request, cpu) -> Compile:
    """compile(graph, slots=, context=, width=) -> something whose run(columns) gives the outputs."""

    def make(graph: Graph, slots: int = 1, context: int = 64, width: int = 32) -> Any:
        if request.param == "reference":
            return Reference(graph, slots=slots, context=context)
        fuse = request.param == "cpu"
        return cpu.compile(graph, slots=slots, context=context, width=width, scored=width, fuse=fuse)

    return make


@pytest.fixture
def columns():
    """columns(tokens, start=, slot=, scored=): one conversation's tokens from position `start` on, all scored."""

    def make(tokens, start: int = 0, slot: int = 0, scored=None) -> Columns:
        n = len(tokens)
        return Columns(tokens, start + np.arange(n), np.full(n, slot), np.arange(n) if scored is None else scored)

    return make
