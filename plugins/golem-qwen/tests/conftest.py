"""The tiny models of `fixtures/`, each with what transformers computes, and the ways to run a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from golem_qwen import qwen3, qwen35
from golem_qwen.rotation import Products

from golem_core import Columns, Graph, ModelFile, Reference, Value, open_model
from golem_core.cpu.device import CpuDevice

FIXTURES = Path(__file__).parent / "fixtures"
MODELS = ["qwen3-tied", "qwen3-untied", "qwen35-tied", "qwen35-untied"]


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
        products = (Products(g, self.config.rotation),) if self.family is qwen35 else ()
        states: list[Value] = self.family.hidden_states(g, *products, self.config, self.file.weights)
        g.output("embedding", states[0])
        for i, state in enumerate(states[1:]):
            g.output(f"block {i}", state)
        g.output("logits", self.family.head(g, *products, self.config, self.file.weights, states[-1]))
        return g


def read(name: str) -> Model:
    file = open_model(FIXTURES / f"{name}.gguf")
    vocabulary = len(file.metadata["tokenizer.ggml.tokens"])
    expected = dict(np.load(FIXTURES / f"{name}.npz"))
    if file.architecture == "qwen3":
        return Model(name, file, qwen3.Qwen3Config.read(file, vocabulary), qwen3, expected)
    return Model(name, file, qwen35.Qwen35Config.read(file, vocabulary), qwen35, expected)


@pytest.fixture(params=MODELS)
def model(request):
    return read(request.param)


@pytest.fixture
def load():
    """load(name) -> the Model of that fixture."""
    return read


@pytest.fixture
def altered(tmp_path):
    """altered(name, keys=, facts=, tensors=) -> the file of that fixture with other values, None for what is left out.

    `keys` are the architecture's own, `facts` any.
    """

    def make(name: str, *, keys=(), facts=(), tensors=()) -> ModelFile:
        with open_model(FIXTURES / f"{name}.gguf") as source:
            arrays = {key: weight.dequantize() for key, weight in source.weights.items()} | dict(tensors)
            own = {f"{source.architecture}.{key}": value for key, value in dict(keys).items()}
            all_facts = dict(source.metadata) | own | dict(facts)
            writer = GGUFWriter(tmp_path / "altered.gguf", source.architecture)
        del all_facts["general.architecture"]
        for key, value in all_facts.items():
            if value is None:
                continue
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add.get(type(value), writer.add_array)(key, value)
        for key, array in arrays.items():
            if array is not None:
                writer.add_tensor(key, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return open_model(tmp_path / "altered.gguf")

    return make


Compile = Callable[..., Any]


@pytest.fixture(scope="session")
def cpu():
    """The CPU as a device that keeps keys and values in full precision, to be compared with float32."""
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


@pytest.fixture(params=["reference", "cpu", "cpu without fusions"])
def compile(request, cpu) -> Compile:
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
