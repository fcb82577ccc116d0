"""Files that contradict themselves, or ask for what golem-qwen cannot do, are refused by key and value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from golem_qwen import plugin

from golem_core import BadFile, GolemError, Metadata, Unsupported


def opened(file):
    (record,) = [each for each in plugin.golem_architectures() if file.architecture in each.names]
    return record.open(file)


def refusal(file, kind: type[GolemError]) -> str:
    with pytest.raises(kind) as caught:
        opened(file)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("attention.value_length", 16, Unsupported),
        ("rope.scaling.type", "yarn", Unsupported),
        ("attention.head_count_kv", 3, BadFile),
        ("attention.head_count_kv", 0, BadFile),
        ("rope.dimension_count", 34, BadFile),
        ("rope.dimension_count", 31, BadFile),
        ("block_count", 2, BadFile),
        ("block_count", 0, BadFile),
    ],
)
def test_a_value_that_cannot_be_is_refused(altered, key, value, kind):
    assert f"qwen3.{key} is {value!r}" in refusal(altered("qwen3-tied", keys={key: value}), kind)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("attention.value_length", 16, Unsupported),
        ("attention.head_count_kv", [2, 0, 1, 0, 0], Unsupported),
        ("ssm.inner_size", 48, Unsupported),
        ("ssm.group_count", 4, BadFile),
        ("ssm.conv_kernel", 1, BadFile),
        ("nextn_predict_layers", 5, BadFile),
        ("rope.dimension_sections", [4, 4, 4, 0], BadFile),
        ("rope.dimension_count", 40, BadFile),
    ],
)
def test_a_value_that_cannot_be_is_refused_where_there_are_delta_nets(altered, key, value, kind):
    assert f"qwen35.{key} is {value!r}" in refusal(altered("qwen35-tied", keys={key: value}), kind)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"full_attention_interval": 4}, "block 2 is a delta net by its keys"),
        ({"attention.recurrent_layers": [True, False, True, True, True]}, "block 1 is attention by its keys"),
        (
            {"attention.recurrent_layers": [True, True]},
            "qwen35.attention.recurrent_layers is a list of 2, but there are 5 blocks",
        ),
    ],
)
def test_keys_and_tensors_agree_on_which_blocks_are_delta_nets(altered, keys, said):
    assert said in refusal(altered("qwen35-tied", keys=keys), BadFile)


def test_blocks_may_be_listed(altered, load):
    keys = {"attention.recurrent_layers": [True, True, False, True, True], "attention.head_count_kv": [0, 0, 2, 0, 0]}
    file = altered("qwen35-tied", keys={**keys, "full_attention_interval": 2})
    assert type(load("qwen35-tied").config).read(file, 304) == load("qwen35-tied").config


@pytest.mark.parametrize("tensor", ["blk.0.ssm_a", "blk.1.ssm_dt.bias", "blk.3.ssm_conv1d.weight"])
def test_a_missing_tensor_of_a_delta_net_is_named(altered, tensor):
    file = altered("qwen35-tied", tensors={tensor: None})
    assert f"tensor {tensor!r} is missing" in refusal(file, BadFile)


@pytest.mark.parametrize("key", ["block_count", "context_length", "attention.layer_norm_rms_epsilon"])
def test_a_missing_key_is_named(altered, key):
    assert f"qwen3.{key}" in refusal(altered("qwen3-tied", keys={key: None}), BadFile)


@pytest.mark.parametrize("tensor", ["blk.1.attn_q_norm.weight", "output_norm.weight", "blk.0.ffn_down.weight"])
def test_a_missing_tensor_is_named(altered, tensor):
    file = altered("qwen3-tied", tensors={tensor: None})
    assert f"tensor {tensor!r} is missing" in refusal(file, BadFile)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(altered):
    file = altered("qwen3-tied", tensors={"blk.1.attn_q_norm.weight": np.ones(16, np.float32)})
    message = refusal(file, BadFile)
    assert "blk.1.attn_q_norm.weight" in message and "(16,)" in message and "(32,)" in message


@pytest.mark.parametrize("name", ["qwen3-tied", "qwen35-tied"])
def test_a_bias_of_a_file_is_not_left_out(altered, name):
    file = altered(name, tensors={"blk.2.attn_k.bias": np.ones(4, np.float32)})
    assert "blk.2.attn_k.bias stands beside blk.2.attn_k.weight" in refusal(file, Unsupported)


@pytest.mark.parametrize("name", ["qwen3-tied", "qwen35-tied"])
def test_a_factor_of_positions_is_not_left_out(altered, name):
    file = altered(name, keys={"rope.scaling.factor": 4.0})
    assert f"{name.partition('-')[0]}.rope.scaling.factor is 4.0" in refusal(file, Unsupported)


def test_a_list_of_another_length_is_refused(altered):
    file = altered("qwen3-tied", keys={"feed_forward_length": [96, 96]})
    assert "qwen3.feed_forward_length is a list of 2" in refusal(file, BadFile)


def test_a_list_of_equal_entries_means_what_one_entry_means(altered, load):
    file = altered("qwen3-tied", keys={"feed_forward_length": [96] * 3, "attention.head_count_kv": [2] * 3})
    opened(file)
    assert type(load("qwen3-tied").config).read(file, 304) == load("qwen3-tied").config


def test_fewer_rows_than_tokens_are_refused(altered, load):
    table = load("qwen3-tied").file.weights.token_embd.dequantize()[:300]
    message = refusal(altered("qwen3-tied", tensors={"token_embd.weight": table}), BadFile)
    assert "300 rows for 304 tokens" in message


def test_rows_without_a_token_are_never_drawn(altered, load):
    table = load("qwen3-tied").file.weights.token_embd.dequantize()
    file = altered("qwen3-tied", tensors={"token_embd.weight": np.concatenate([table, table[:3]])})
    model = opened(file)
    assert model.vocab_size == 307
    assert set(model.suppress) >= {304, 305, 306}


def test_fillers_and_what_the_file_names_are_never_drawn(load):
    file = load("qwen3-tied").file
    types = file.metadata["tokenizer.ggml.token_type"]
    fillers = [i for i, kind in enumerate(types) if kind == 5]
    assert fillers and opened(file).suppress == tuple(fillers)
    file.metadata = Metadata("altered", dict(file.metadata) | {"tokenizer.ggml.suppress_tokens": [7]})
    assert opened(file).suppress == (7, *fillers)


def test_sampling_defaults_come_from_the_file(load):
    file = load("qwen3-tied").file
    sampling = opened(file).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 64, 0.95, 0.05)
    facts = {"general.sampling.temp": 0.6, "general.sampling.top_k": -1, "general.sampling.top_p": 0.8}
    file.metadata = Metadata("altered", dict(file.metadata) | facts)
    sampling = opened(file).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 0, 0.8)


@pytest.mark.parametrize("name", ["qwen3-tied", "qwen35-tied"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 1 << 31),
        ("block_count", 9),
        ("block_count", "3"),
        ("embedding_length", 64.0),
        ("context_length", 0),
        ("attention.head_count", True),
        ("attention.head_count", ["x"]),
        ("attention.key_length", -1),
        ("attention.layer_norm_rms_epsilon", math.nan),
        ("attention.layer_norm_rms_epsilon", 0.0),
        ("rope.freq_base", math.inf),
        ("rope.freq_base", "1e6"),
        ("rope.dimension_count", 8.0),
        ("rope.scaling.type", 1),
    ],
)
def test_a_value_of_another_type_or_range_is_refused_by_file_key_and_value(load, name, key, value):
    check_refused(load(name).file, f"{name.partition('-')[0]}.{key}", value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qwen35.nextn_predict_layers", -1),
        ("qwen35.rope.dimension_sections", ["x"]),
        ("qwen35.ssm.state_size", 8.0),
        ("qwen35.attention.recurrent_layers", [2]),
        ("general.sampling.temp", math.nan),
        ("general.sampling.top_k", "many"),
        ("general.sampling.top_p", 1.5),
        ("tokenizer.chat_template", 5),
        ("tokenizer.ggml.suppress_tokens", [1 << 20]),
    ],
)
def test_whatever_else_is_read_is_held_to_its_type_and_range(load, key, value):
    check_refused(load("qwen35-tied").file, key, value)


def check_refused(file, key: str, value: object) -> None:
    file.metadata = Metadata(file.path, dict(file.metadata) | {key: value})
    message = refusal(file, BadFile)
    assert message.startswith(f"{file.path}: {key}") and "\n" not in message
    assert repr(value).strip("[]") in message
