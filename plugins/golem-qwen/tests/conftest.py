"""The tiny models of `fixtures/`, each with what transformers computes, and the ways to run a graph."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from gguf.gguf_writer import TensorInfo
from golem_qwen import prediction, qwen3, qwen35
from golem_qwen.rotation import Products

from golem_core import Graph, ModelFile, Value, open_model

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from families.passes import columns, compile, cpu  # noqa: F401 - fixtures

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


@dataclass(frozen=True)
class Ternary:
    """A matrix as blocks of a type that gguf-py does not know."""

    type_id: int
    shape: tuple[int, ...]
    data: np.ndarray


def packed(kind: str, digits: np.ndarray, scales: np.ndarray) -> Ternary:
    """A matrix of digits -1, 0 and 1 (rows, width) with a float16 scale for each 128 of them, as a file holds it."""
    blocks = (digits.reshape(-1, 128) + 1).astype(np.int64)
    scales = scales.astype(np.float16).reshape(-1, 1).view(np.uint8)
    if kind == "PQ2_0":
        quads = blocks.reshape(-1, 32, 4)
        data = np.concatenate([scales, (quads << np.arange(0, 8, 2)).sum(2).astype(np.uint8)], 1)
        return Ternary(142, digits.shape, data.reshape(-1))
    fives = []
    for first, count, length in ((0, 16, 5), (80, 8, 5), (120, 2, 4)):  # byte i has the digits i, i + count, ...
        part = blocks[:, first : first + count * length].reshape(-1, length, count)
        value = (part * 3 ** np.arange(4, 4 - length, -1)[:, None]).sum(1)
        fives.append(((256 * value + 242) // 243).astype(np.uint8))
    return Ternary(143, digits.shape, np.concatenate([*fives, scales], 1).reshape(-1))


def prediction_block(model: Model, seed: int = 5) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(keys, tensors) that give a qwen35 model a block behind its trunk."""
    dice, cfg = np.random.default_rng(seed), model.config
    made = {}
    for tensor in prediction.tensors(cfg):
        if not tensor.optional:
            norm = len(tensor.shape) == 1
            made[tensor.name] = (dice.standard_normal(tensor.shape) * 0.1 + norm).astype(np.float32)
    return {"block_count": cfg.blocks + 1, "nextn_predict_layers": 1}, made


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
def pack():
    """`packed`."""
    return packed


@pytest.fixture
def predicting(altered):
    """predicting(name, ...) -> the file of that fixture with a prediction block of random weights, and what `altered`
    is told besides."""

    def make(name: str, *, facts=(), tensors=()) -> ModelFile:
        keys, block = prediction_block(read(name))
        return altered(name, keys=keys, facts=facts, tensors=block | dict(tensors))

    return make


@pytest.fixture
def altered(tmp_path):
    """altered(name, keys=, facts=, tensors=) -> the file of that fixture with other values, None for what is left out.

    `keys` are the architecture's own, `facts` any.
    """

    numbers = itertools.count()

    def make(name: str, *, keys=(), facts=(), tensors=()) -> ModelFile:
        with open_model(FIXTURES / f"{name}.gguf") as source:
            arrays = {key: weight.dequantize() for key, weight in source.weights.items()} | dict(tensors)
            own = {f"{source.architecture}.{key}": value for key, value in dict(keys).items()}
            all_facts = dict(source.metadata) | own | dict(facts)
            path = tmp_path / f"altered-{next(numbers)}.gguf"
            writer = GGUFWriter(path, source.architecture)
        del all_facts["general.architecture"]
        for key, value in all_facts.items():
            if value is None:
                continue
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add.get(type(value), writer.add_array)(key, value)
        for key, array in arrays.items():
            if isinstance(array, Ternary):
                writer.tensors[0][key] = TensorInfo(array.shape, array.type_id, array.data.nbytes, array.data)  # type: ignore[arg-type]
            elif array is not None:
                writer.add_tensor(key, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return open_model(path)

    return make
