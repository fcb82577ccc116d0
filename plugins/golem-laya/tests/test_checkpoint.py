"""Opening a directory: what is wrong with it is named."""

from __future__ import annotations

import json

import pytest
from golem_laya.checkpoint import Checkpoint

from golem_core import BadFile, GolemError, Unsupported


def change(path, **values):
    found = json.loads(path.read_text())
    for key, value in values.items():
        if value is None:
            del found[key]
        else:
            found[key] = value
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("file", "values", "kind", "said"),
    [
        ("encoder/config.json", {"norm_bias": True}, Unsupported, "norm_bias is true"),
        ("encoder/config.json", {"attention_bias": True}, Unsupported, "attention_bias is true"),
        ("encoder/config.json", {"hidden_activation": "silu"}, Unsupported, "hidden_activation is 'silu'"),
        ("encoder/config.json", {"num_attention_heads": 3}, BadFile, "num_attention_heads is 3"),
        ("encoder/config.json", {"hidden_size": None}, BadFile, "'hidden_size' is missing"),
        ("encoder/config.json", {"intermediate_size": 41}, BadFile, r"layers.0.mlp.Wi.weight has the shape \(80, 64\)"),
        ("encoder/config.json", {"num_hidden_layers": 6}, BadFile, "'encoder.layers.5.attn_norm.weight' is missing"),
        ("encoder/config.json", {"vocab_size": 20}, BadFile, "the tokenizer has"),
        (
            "encoder/config.json",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}},
            Unsupported,
            "rope_type is 'yarn'",
        ),
        ("rl_agent_config.json", {"temperature": [1.0, 2.0]}, BadFile, "one number for each of choice, score, noul"),
        ("rl_agent_config.json", {"temperature": [1.0, 0.0, 1.0]}, BadFile, r"temperature\[1\]"),
        ("rl_agent_config.json", {"temperature_by_options": {"noul:2": "x"}}, BadFile, "noul:2 is 'x'"),
        ("rl_agent_config.json", {"head_max_len": 128}, BadFile, "head_max_len is 128"),
        ("rl_agent_config.json", {"max_len": -1}, BadFile, "max_len is -1"),
        ("tokenizer/tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, BadFile, "'Whitespace'"),
        ("tokenizer/tokenizer.json", {"model": {"type": "BPE"}}, BadFile, "not a tokenizer"),
        ("tokenizer/tokenizer_config.json", {"mask_token": "<nothing>"}, BadFile, "no token '<nothing>'"),
        ("tokenizer/tokenizer_config.json", {"sep_token": None}, BadFile, "'sep_token' is missing"),
    ],
)
def test_a_file_that_contradicts_itself_is_named(copied, file, values, kind, said):
    change(copied / file, **values)
    with pytest.raises(kind, match=said):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    "file",
    [
        "model.safetensors",
        "rl_agent_config.json",
        "encoder/config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ],
)
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_a_file_that_is_missing_or_cut_is_named(copied, file, damage):
    path = copied / file
    data = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    with pytest.raises(BadFile, match=path.name):
        Checkpoint.open(copied)


def test_what_is_no_directory(tmp_path):
    with pytest.raises(GolemError, match="a directory with model"):
        Checkpoint.open(tmp_path / "nothing")
