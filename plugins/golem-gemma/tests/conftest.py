"""The tiny models of `fixtures/`, each with what transformers computes, and the ways to run a graph."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golem_gemma import gemma3, gemma4

from golem_core import Graph, ModelFile, Value, open_model

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from families.passes import columns, compile, cpu  # noqa: F401 - fixtures

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
