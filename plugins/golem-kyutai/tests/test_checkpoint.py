"""What a directory must hold, and what is said of one that doesn't."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from golem_kyutai.checkpoint import Checkpoint

from golem_core import BadFile, Unsupported


@pytest.fixture
def copied(directory, tmp_path):
    shutil.copytree(directory, tmp_path / "stt")
    return tmp_path / "stt"


def test_sizes_are_those_of_the_tensors(checkpoint, tiny):
    config, mimi = checkpoint.config, checkpoint.mimi
    assert (config.width, config.layers, config.ffn, config.card) == (tiny.WIDTH, tiny.LAYERS, tiny.FFN, tiny.CARD)
    assert (config.codebooks, config.text_card, config.context, config.delay_steps) == (8, 40, 12, 6)
    assert (mimi.frame, mimi.positions, mimi.width, mimi.bins) == (tiny.FRAME, 2, tiny.LATENT, tiny.CARD)


def test_without_a_config_the_names_of_files_are_enough(copied):
    (copied / "config.json").unlink()
    (copied / "tokenizer_tiny.model").rename(copied / "tokenizer_en.model")
    opened = Checkpoint.open(copied)
    assert (opened.config.heads, opened.config.context, opened.config.delay) == (16, 750, 0.5)
    opened.close()


@pytest.mark.parametrize("name", ["model.safetensors", "mimi-tiny.safetensors", "tokenizer_tiny.model"])
def test_a_missing_file_is_named(copied, name):
    (copied / name).unlink()
    with pytest.raises(BadFile, match=rf"stt: .* is missing: there is no {name}"):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"gating": "gelu"}, Unsupported, "gating is 'gelu'; 'silu' was expected"),
        ({"cross_attention": True}, Unsupported, "cross_attention is True"),
        ({"conditioners": {"a": 1}}, Unsupported, "conditioners is"),
        ({"dep_q": 8}, Unsupported, "dep_q is 8"),
        ({"delays": [0, 1]}, Unsupported, r"delays are \[0, 1\]"),
        ({"model_type": "tts"}, Unsupported, "model_type is 'tts'"),
        ({"dim": 128}, BadFile, "dim is 128, and the tensors say 64"),
        ({"num_heads": 5}, BadFile, "num_heads is 5"),
        ({"num_heads": "x"}, BadFile, "num_heads is 'x', an integer was expected"),
        ({"context": 0}, BadFile, "context is 0"),
        ({"context": 1 << 40}, BadFile, "context is 1099511627776, at least 1 and at most 1048576"),
        ({"mimi_name": "../mimi-tiny.safetensors"}, BadFile, "mimi_name is"),
        ({"existing_text_padding_id": 40}, BadFile, "existing_text_padding_id is 40, at least 0 and at most 39"),
        ({"stt_config": {"audio_delay_seconds": -1}}, BadFile, "audio_delay_seconds is -1"),
        ({"stt_config": [0.5]}, BadFile, "stt_config is .*, an object was expected"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(copied, tiny, changed, kind, said):
    (copied / "config.json").write_text(json.dumps(tiny.CONFIG | changed))
    with pytest.raises(kind, match=said):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    "name", ["text_linear.weight", "emb.3.weight", "transformer.layers.1.self_attn.out_proj.weight"]
)
def test_a_missing_tensor_of_the_language_model_is_named(copied, tiny, name):
    tensors = tiny.trunk_tensors()
    del tensors[name]
    tiny.write_safetensors(copied / "model.safetensors", tensors, "BF16")
    with pytest.raises(BadFile, match=r"model\.safetensors|config\.json"):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    "name",
    [
        "encoder.model.0.conv.conv.weight",
        "encoder.model.3.conv.conv.bias",
        "encoder.model.4.block.3.conv.conv.weight",
        "downsample.conv.conv.conv.weight",
        "encoder_transformer.transformer.layers.1.linear2.weight",
        "encoder_transformer.transformer.layers.0.self_attn.in_proj_weight",
        "quantizer.rvq_rest.vq.layers.6._codebook.embedding_sum",
        "quantizer.rvq_first.input_proj.weight",
    ],
)
@pytest.mark.parametrize("how", ["missing", "wider"])
def test_a_tensor_of_the_codec_that_is_not_as_it_must_be_is_named(copied, tiny, name, how):
    tensors = tiny.mimi_tensors()
    x = tensors.pop(name)
    if how == "wider":
        tensors[name] = np.ascontiguousarray(np.concatenate([x, x]))
    tiny.write_safetensors(copied / "mimi-tiny.safetensors", tensors)
    with pytest.raises(BadFile, match=r"mimi-tiny\.safetensors: .*"):
        Checkpoint.open(copied)


def test_the_newer_names_of_projections_are_read_too(copied, tiny):
    new = {
        name.replace("in_proj_weight", "in_projs.0.weight").replace("out_proj.weight", "out_projs.0.weight"): x
        for name, x in tiny.mimi_tensors().items()
    }
    tiny.write_safetensors(copied / "mimi-tiny.safetensors", new)
    Checkpoint.open(copied).close()


@pytest.mark.parametrize("name", ["model.safetensors", "mimi-tiny.safetensors"])
def test_numbers_of_another_type_are_refused_by_name(copied, name):
    path = copied / name
    path.write_bytes(path.read_bytes().replace(b'"dtype": "F32"', b'"dtype": "I32"').replace(b'"BF16"', b'"I16" '))
    with pytest.raises(Unsupported, match=rf"{name}: \S+ is of the type I(16|32); F32, BF16, F16 are computed with"):
        Checkpoint.open(copied)


def test_heads_for_pauses_are_passed_over(copied, tiny):
    tensors = tiny.trunk_tensors()
    width = tensors["text_linear.weight"].shape[1]
    heads = {f"extra_heads.{i}.weight": np.ones((6, width), np.float32) for i in range(4)}
    tiny.write_safetensors(copied / "model.safetensors", tensors | heads)
    found = Checkpoint.open(copied)
    assert found.config.width == width
    found.close()
