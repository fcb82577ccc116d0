"""Opening a directory: what is wrong with it is named."""

from __future__ import annotations

import json

import pytest
from golem_laya.checkpoint import FULL, SLIDING, Checkpoint, Config

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
        ("encoder/config.json", {"rope_scaling": {"type": "linear", "factor": 2.0}}, Unsupported, "rope_scaling is"),
        ("encoder/config.json", {"rope_parameters": {"rope_theta": 5.0}}, BadFile, "an object of full_attention and"),
        ("encoder/config.json", {"rope_parameters": {"full_attention": 5.0}}, BadFile, "full_attention is 5.0"),
        ("encoder/config.json", {"layer_types": ["full_attention"] * 4}, BadFile, "4 entries for 5 layers"),
        ("encoder/config.json", {"layer_types": ["full_attention"] * 4 + ["linear"]}, Unsupported, "'linear'"),
        ("encoder/config.json", {"layer_types": "full_attention"}, BadFile, "layer_types is 'full_attention'"),
        ("rl_agent_config.json", {"temperature": [1.0, 2.0]}, BadFile, "one number for each of choice, score, noul"),
        ("rl_agent_config.json", {"temperature": [1.0, 0.0, 1.0]}, BadFile, r"temperature\[1\]"),
        ("rl_agent_config.json", {"temperature_by_options": {"noul:2": "x"}}, BadFile, "noul:2 is 'x'"),
        ("rl_agent_config.json", {"head_max_len": 128}, BadFile, "head_max_len is 128"),
        ("rl_agent_config.json", {"max_len": -1}, BadFile, "max_len is -1"),
        ("rl_agent_config.json", {"max_len": 1 << 20}, BadFile, "max_len is 1048576, .* at most 32768"),
        ("encoder/config.json", {"num_hidden_layers": 1 << 20}, BadFile, "num_hidden_layers is 1048576"),
        ("tokenizer/tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, BadFile, "'Whitespace'"),
        ("tokenizer/tokenizer.json", {"pre_tokenizer": None}, BadFile, "pre_tokenizer.type is None"),
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


def encoder_of(copied, **values) -> Config:
    """Of the English encoder with these keys in place of its own; ... leaves one out."""
    path = copied / "encoder" / "config.json"
    found = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))
    return Config.read(copied)


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ({}, [True, False, False, True, False]),
        ({"global_attn_every_n_layers": ...}, [True, False, False, True, False]),
        ({"global_attn_every_n_layers": 2}, [True, False, True, False, True]),
        ({"global_attn_every_n_layers": 3, "layer_types": [FULL, SLIDING, FULL, FULL, SLIDING]}, [1, 0, 1, 1, 0]),
        ({"layer_types": None}, [True, False, False, True, False]),
    ],
)
def test_which_layers_attend_to_the_whole_sequence(copied, values, whole):
    assert list(encoder_of(copied, **values).whole) == whole


@pytest.mark.parametrize(
    ("values", "bases"),
    [
        ({}, (160_000.0, 10_000.0)),
        ({"global_rope_theta": 5.0, "local_rope_theta": 6.0}, (5.0, 6.0)),
        ({"global_rope_theta": ..., "local_rope_theta": ...}, (160_000.0, 10_000.0)),
        ({"global_rope_theta": 5.0, "local_rope_theta": None}, (5.0, 5.0)),
        ({"rope_parameters": {FULL: {"rope_theta": 7.0}, SLIDING: {"rope_theta": 8}}}, (7.0, 8.0)),
        ({"rope_parameters": {FULL: {"rope_type": "default"}}, "global_rope_theta": 5.0}, (5.0, 10_000.0)),
        ({"rope_parameters": None, "rope_scaling": None}, (160_000.0, 10_000.0)),
    ],
)
def test_the_bases_of_the_rotation(copied, values, bases):
    """transformers' `ModernBertConfig` reads them alike, but for null, which its older versions wrote."""
    found = encoder_of(copied, **values)
    assert (found.global_base, found.local_base) == bases


def test_a_tokenizer_may_be_as_large_as_one_of_256000_tokens(copied):
    path = copied / "tokenizer" / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" " * 40_000_000)
    Checkpoint.open(copied).close()
    with path.open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadFile, match=r"tokenizer\.json: larger than 256000000 bytes"):
        Checkpoint.open(copied)


def test_numbers_of_another_type_are_refused_by_name(copied):
    path = copied / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"dtype":"F16"', b'"dtype":"I16"').replace(b'"dtype": "F16"', b'"dtype": "I16"'))
    with pytest.raises(Unsupported, match=r"model\.safetensors: encoder\.\S+ is of the type I16; F16, BF16, F32 are"):
        Checkpoint.open(copied)


def test_what_is_no_directory(tmp_path):
    with pytest.raises(GolemError, match="a directory with model"):
        Checkpoint.open(tmp_path / "nothing")
