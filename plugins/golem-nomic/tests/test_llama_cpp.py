"""Vectors are llama.cpp's for the same file, whatever its weights are stored as; and so are the texts' tokens."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golem_core
from golem_core import open_model

from .conftest import FIXTURES, write

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="the package xllamacpp, which has llama.cpp, is not installed"
)

WIDTH, FFN, EXPERTS, BLOCKS = 256, 256, 8, 2  # K-quants have blocks of 256
TEXTS = ["a river", "search_query: the river in the north, and  a lake", "", "zebra " * 40, "the", "x.y:z_"]


def checkpoint() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The keys and the tensors of a random model with the vocabulary of the fixtures."""
    source = np.random.default_rng(3)

    def matrix(*shape: int, size: float = 1.0) -> np.ndarray:
        return (source.standard_normal(shape) * size * shape[-1] ** -0.5).astype(np.float32)

    def norm(name: str) -> dict[str, np.ndarray]:
        one = 1 + 0.2 * source.standard_normal(WIDTH)
        return {f"{name}.weight": one.astype(np.float32), f"{name}.bias": matrix(1, WIDTH, size=3)[0]}

    with open_model(FIXTURES / "nomic-moe.gguf") as file:
        facts = dict(file.metadata)
    sizes = {"block_count": BLOCKS, "embedding_length": WIDTH, "feed_forward_length": FFN}
    facts |= {f"nomic-bert-moe.{key}": value for key, value in sizes.items()}
    vocabulary = len(facts["tokenizer.ggml.tokens"])
    tensors = {"token_embd.weight": matrix(vocabulary, WIDTH, size=16), "token_types.weight": matrix(1, WIDTH)}
    tensors |= norm("token_embd_norm")
    for i in range(BLOCKS):
        own = {"attn_qkv.weight": matrix(3 * WIDTH, WIDTH), "attn_qkv.bias": matrix(1, 3 * WIDTH)[0]}
        own |= {"attn_output.weight": matrix(WIDTH, WIDTH), "attn_output.bias": matrix(1, WIDTH)[0]}
        own |= norm("attn_output_norm") | norm("layer_output_norm")
        if i % 2:
            own |= {"ffn_gate_inp.weight": matrix(EXPERTS, WIDTH, size=8)}
            own |= {"ffn_up_exps.weight": matrix(EXPERTS, FFN, WIDTH)}
            own |= {"ffn_down_exps.weight": matrix(EXPERTS, WIDTH, FFN)}
        else:
            own |= {"ffn_up.weight": matrix(FFN, WIDTH), "ffn_up.bias": matrix(1, FFN)[0]}
            own |= {"ffn_down.weight": matrix(WIDTH, FFN), "ffn_down.bias": matrix(1, WIDTH)[0]}
        tensors |= {f"blk.{i}.{name}": value for name, value in own.items()}
    return facts, tensors


def theirs(path: Path, given: list[Any]) -> tuple[np.ndarray, int]:
    """Raw vectors of texts or token ids, and the tokens in all."""
    request = json.dumps({"input": given, "embd_normalize": -1})
    program = [sys.executable, str(Path(__file__).with_name("llama_cpp.py")), str(path), request]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return np.array([each["embedding"] for each in answer["data"]]), answer["usage"]["prompt_tokens"]


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest 1 - cosine of two vectors of a text, float64."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    dots = (one * other).sum(1) / np.sqrt((one**2).sum(1) * (other**2).sum(1))
    return float((1 - dots).max())


@pytest.mark.parametrize(
    "kind, bound",
    # Both sides round what enters a product with K-quants, differently, and then may choose other experts.
    [("F32", 1e-6), ("F16", 1e-6), ("BF16", 1e-4), ("Q8_0", 1e-4), ("Q6_K", 3e-3), ("Q5_K", 3e-3), ("Q4_K", 3e-3)],
)
def test_vectors_are_those_of_llama_cpp(tmp_path, kind, bound):
    path = write(tmp_path / "model.gguf", *checkpoint(), kind=kind)
    with golem_core.load_embedder(path, threads=2) as embedder:
        ids = [embedder.tokenize(text) for text in TEXTS] + [[5], list(range(90)), [7, 9] * 60]
        ours = embedder.embed(ids, normalize=False)
    vectors, count = theirs(path, ids)
    assert count == sum(map(len, ids))
    found = apart(ours, vectors)
    assert found < bound, f"{kind}: {found:.1e}"
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), np.linalg.norm(vectors, axis=1), rtol=0.02)


def test_texts_are_cut_into_the_same_tokens(tmp_path):
    path = write(tmp_path / "model.gguf", *checkpoint())
    with golem_core.load_embedder(path, threads=2) as embedder:
        ids = [embedder.tokenize(text) for text in TEXTS]
        ours = embedder.embed(TEXTS, normalize=False)
    vectors, count = theirs(path, TEXTS)
    assert count == sum(map(len, ids))
    assert apart(ours, vectors) < 1e-6
