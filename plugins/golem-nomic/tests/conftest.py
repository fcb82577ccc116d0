"""The tiny models of `fixtures/`, each with what torch computes, and the ways to run a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from golem_nomic import model as nomic

from golem_core import Columns, Graph, ModelFile, Reference, open_model
from golem_core.cpu.device import CpuDevice

FIXTURES = Path(__file__).parent / "fixtures"
MODELS = ["nomic-moe", "nomic-dense"]


@dataclass
class Model:
    """A tiny model: its file, its config, and the expected values."""

    name: str
    file: ModelFile
    config: nomic.NomicConfig
    expected: dict[str, np.ndarray]

    @property
    def texts(self) -> list[np.ndarray]:
        return np.split(self.expected["tokens"], np.cumsum(self.expected["lengths"])[:-1])

    def waypoints(self) -> Graph:
        """A graph whose outputs are the embedding, "block 0", "block 1", ..., and the vectors."""
        g = nomic.build(self.config, self.file.weights)
        states = nomic.hidden_states(g, self.config, self.file.weights)
        for name, state in zip(["start", *(f"block {i}" for i in range(len(states) - 1))], states, strict=True):
            g.output(name, state)
        return g


def read(name: str) -> Model:
    file = open_model(FIXTURES / f"{name}.gguf")
    config = nomic.NomicConfig.read(file, len(file.metadata["tokenizer.ggml.tokens"]))
    return Model(name, file, config, dict(np.load(FIXTURES / f"{name}.npz")))


@pytest.fixture(params=MODELS)
def model(request):
    return read(request.param)


@pytest.fixture
def load():
    """load(name) -> the Model of that fixture."""
    return read


def add_facts(writer: gguf.GGUFWriter, facts: Mapping[str, Any]) -> None:
    for key, value in facts.items():
        if value is None or key == "general.architecture":
            continue
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)


HALVES = {"Q4_K": {0: 1 / 200, 2: 7.5 / 200}, "Q5_K": {0: 1 / 400, 2: 15.5 / 400}, "Q6_K": {208: 1 / 1024}}
"""Where the float16 scales of a block stand, and their size for entries of about 1 around 0."""


def k_quant(kind: str, like: np.ndarray) -> np.ndarray:
    """Random bytes that are the blocks of a matrix, with scales that fit the size of another's entries."""
    source = np.random.default_rng(like.size)
    size, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = source.integers(0, 256, (*like.shape[:-1], like.shape[-1] // size, nbytes), dtype=np.uint8)
    scales = source.uniform(0.5, 1, blocks.shape[:-1]) * like.std()
    for at, each in HALVES[kind].items():
        blocks[..., at : at + 2] = (scales * each).astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(*like.shape[:-1], -1)


def write(path: Path, facts: Mapping[str, Any], tensors: Mapping[str, np.ndarray | None], kind: str = "F32") -> Path:
    """A file with these keys and tensors; matrices, but for the router and the types, are stored as `kind`.

    K-quants, which gguf does not make, are random blocks of about the size that the matrix has.
    """
    writer = gguf.GGUFWriter(path, "nomic-bert-moe")
    add_facts(writer, facts)
    quantization = gguf.GGMLQuantizationType[kind]
    for name, array in tensors.items():
        if array is None:
            continue
        if array.ndim > 1 and kind != "F32" and "gate_inp" not in name and "token_types" not in name:
            data = k_quant(kind, array) if kind in HALVES else gguf.quantize(array, quantization)
            writer.add_tensor(name, data, raw_dtype=quantization)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def altered(tmp_path):
    """altered(name, keys=, facts=, tensors=) -> the file of that fixture with other values, None for what is left out.

    `keys` are the architecture's own, `facts` any.
    """

    def make(name: str = "nomic-moe", *, keys=(), facts=(), tensors=()) -> ModelFile:
        with open_model(FIXTURES / f"{name}.gguf") as source:
            arrays = {key: weight.dequantize() for key, weight in source.weights.items()} | dict(tensors)
            own = {f"{source.architecture}.{key}": value for key, value in dict(keys).items()}
            return open_model(write(tmp_path / "altered.gguf", dict(source.metadata) | own | dict(facts), arrays))

    return make


Compile = Callable[..., Any]


@pytest.fixture(scope="session")
def cpu():
    device = CpuDevice(threads=2)
    yield device
    device.close()


@pytest.fixture(params=["reference", "cpu", "cpu without fusions"])
def compile(request, cpu) -> Compile:
    """compile(graph, slots=, context=) -> something whose run(columns) gives the outputs."""

    def make(graph: Graph, slots: int = 8, context: int = 64) -> Any:
        if request.param == "reference":
            return Reference(graph, slots=slots, context=context)
        return cpu.compile(graph, slots=slots, context=context, width=256, fuse=request.param == "cpu")

    return make


def lay_out(texts) -> Columns:
    """Texts end to end, each with a slot of its own."""
    lengths = [len(text) for text in texts]
    return Columns(
        token=np.concatenate(texts),
        position=np.concatenate([np.arange(n) for n in lengths]),
        slot=np.repeat(np.arange(len(texts)), lengths),
    )


@pytest.fixture
def columns():
    return lay_out
