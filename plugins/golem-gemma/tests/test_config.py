"""Files that contradict themselves, or ask for what golem-gemma cannot do, are refused by key and value."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from golem_gemma import gemma3, gemma4
from golem_gemma.plugin import open_gemma3, open_gemma4

from golem_core import BadFile, GolemError, Metadata, Unsupported, open_model

FIXTURES = Path(__file__).parent / "fixtures"


def altered(tmp_path, name, *, keys=(), tensors=()):
    """The fixture `name` with some keys and tensors given another value, or left out where the value is None."""
    with open_model(FIXTURES / f"{name}.gguf") as source:
        arrays = {key: weight.dequantize() for key, weight in source.weights.items()} | dict(tensors)
        facts = dict(source.metadata) | {f"{source.architecture}.{key}": value for key, value in dict(keys).items()}
        writer = GGUFWriter(tmp_path / "altered.gguf", source.architecture)
    del facts["general.architecture"]
    for key, value in facts.items():
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


def refusal(file, kind: type[GolemError]) -> str:
    with pytest.raises(kind) as caught:
        (open_gemma3 if file.architecture == "gemma3" else open_gemma4)(file)
    return str(caught.value)


@pytest.mark.parametrize("name", ["gemma3", "gemma4-12b"])
def test_keys_and_values_of_different_size_are_refused(tmp_path, name):
    file = altered(tmp_path, name, keys={"attention.value_length": 16})
    assert f"{file.architecture}.attention.value_length is 16" in refusal(file, Unsupported)


def test_window_blocks_with_keys_and_values_of_different_size_are_refused(tmp_path):
    file = altered(tmp_path, "gemma4-12b", keys={"attention.value_length_swa": 16})
    assert "gemma4.attention.value_length_swa is 16" in refusal(file, Unsupported)


@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b"])
@pytest.mark.parametrize("tensor", ["blk.1.attn_q.weight", "output_norm.weight", "blk.0.ffn_down.weight"])
def test_a_missing_tensor_is_named(tmp_path, name, tensor):
    assert f"tensor {tensor!r} is missing" in refusal(altered(tmp_path, name, tensors={tensor: None}), BadFile)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path):
    file = altered(tmp_path, "gemma4-26b", tensors={"blk.1.ffn_down_exps.scale": np.ones(5, np.float32)})
    message = refusal(file, BadFile)
    assert "blk.1.ffn_down_exps.scale" in message and "(5,)" in message and "(6,)" in message


@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b"])
def test_a_pattern_of_another_length_is_refused(tmp_path, name):
    file = altered(tmp_path, name, keys={"attention.sliding_window_pattern": [True, True, False]})
    message = refusal(file, BadFile)
    assert "attention.sliding_window_pattern" in message and "list of 3" in message


def test_a_missing_key_is_named(tmp_path):
    file = altered(tmp_path, "gemma4-e2b", keys={"attention.layer_norm_rms_epsilon": None})
    assert "gemma4.attention.layer_norm_rms_epsilon" in refusal(file, BadFile)


def test_more_blocks_than_the_keys_say_are_refused(tmp_path):
    assert "gemma3.block_count is 7" in refusal(altered(tmp_path, "gemma3", keys={"block_count": 7}), BadFile)


def test_sharing_with_no_block_to_share_is_refused(tmp_path):
    file = altered(tmp_path, "gemma4-e2b", keys={"attention.shared_kv_layers": 5})
    assert "gemma4.attention.shared_kv_layers is 5" in refusal(file, BadFile)


def test_rope_scaling_of_another_kind_is_refused(tmp_path):
    file = altered(tmp_path, "gemma3-linear-rope", keys={"rope.scaling.type": "yarn"})
    assert "gemma3.rope.scaling.type is 'yarn'" in refusal(file, Unsupported)


def test_scaled_positions_of_gemma4_are_those_of_scaled_factors(tmp_path, load, compile, columns):
    """In blocks that see everything, which have the factors; those with a window are not scaled, as in llama.cpp."""
    model, logits = load("gemma4-e2b"), []
    factors = model.file.weights.rope_freqs.dequantize()
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    for changes in ({"keys": scaling}, {"tensors": {"rope_freqs.weight": 4 * factors}}):
        file = altered(tmp_path, "gemma4-e2b", **changes)
        graph = gemma4.build(gemma4.Gemma4Config.read(file, 384), file.weights)
        logits.append(compile(graph).run(columns(model.tokens))["logits"].copy())
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4)
    assert np.abs(logits[0] - model.expected["logits"]).max() > 1


def test_as_many_components_are_turned_in_blocks_with_a_window(tmp_path, load, compile, columns):
    """Within the window, and with one base, both kinds of blocks are the same."""
    model, logits = load("gemma3"), []
    for window in (0, 5):
        keys = {"rope.dimension_count": 16, "rope.freq_base": 1e4, "attention.sliding_window": window}
        file = altered(tmp_path, "gemma3", keys=keys)
        graph = gemma3.build(gemma3.Gemma3Config.read(file, 384), file.weights)
        logits.append(compile(graph).run(columns(model.tokens[:5]))["logits"].copy())
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-4)


def test_more_experts_used_than_there_are_is_refused(tmp_path):
    file = altered(tmp_path, "gemma4-26b", keys={"expert_used_count": 7})
    assert "gemma4.expert_used_count is 7" in refusal(file, BadFile)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gemma3", "attention.head_count_kv", 3),
        ("gemma4-12b", "attention.head_count_kv", 0),
        ("gemma3", "rope.dimension_count", 34),
        ("gemma4-12b", "rope.dimension_count_swa", 31),
        ("gemma3-linear-rope", "rope.scaling.factor", 0.0),
        ("gemma3", "attention.sliding_window_pattern", 0),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path, name, key, value):
    file = altered(tmp_path, name, keys={key: value})
    assert f"{file.architecture}.{key} is {value}" in refusal(file, BadFile)


def test_a_period_and_a_pattern_mean_the_same(tmp_path, load):
    period = altered(tmp_path, "gemma3", keys={"attention.sliding_window_pattern": 4})
    pattern = [True, True, True, False] * 2
    windows = [type(load("gemma3").config).read(period, 384).windows]
    written = altered(tmp_path, "gemma3", keys={"attention.sliding_window_pattern": pattern})
    windows.append(type(load("gemma3").config).read(written, 384).windows)
    assert windows[0] == windows[1] == tuple(5 if local else None for local in pattern)


def test_without_a_window_every_block_sees_everything(tmp_path, load):
    file = altered(tmp_path, "gemma3", keys={"attention.sliding_window": 0})
    assert set(type(load("gemma3").config).read(file, 384).windows) == {None}


def test_shared_blocks_read_the_last_owner_of_their_kind(load):
    assert [block.source for block in load("gemma4-e2b").config.blocks] == [0, 1, 2, 1, 1, 2]


def test_separate_gate_and_up_matrices_give_what_the_fused_one_gives(tmp_path, load, compile, columns):
    model = load("gemma4-26b")
    split = {}
    for name, weight in model.file.weights.items():
        if name.endswith("ffn_gate_up_exps.weight"):
            both, half = weight.dequantize(), weight.shape[1] // 2
            split[name] = None
            split[name.replace("gate_up", "gate")] = both[:, :half].copy()
            split[name.replace("gate_up", "up")] = both[:, half:].copy()
    file = altered(tmp_path, "gemma4-26b", tensors=split)
    open_gemma4(file)
    graph = gemma4.build(gemma4.Gemma4Config.read(file, 384), file.weights)
    got = compile(graph).run(columns(model.tokens))["logits"]
    np.testing.assert_allclose(got, model.expected["logits"], atol=1e-4 * 30)


def test_suppressed_tokens_and_sampling_defaults_come_from_the_file(load):
    model = open_gemma4(load("gemma4-12b").file)
    assert model.suppress == ()
    assert (model.sampling.temperature, model.sampling.top_k, model.sampling.top_p) == (1.0, 64, 0.95)
    file = open_model(FIXTURES / "gemma4-12b.gguf")
    facts = dict(file.metadata) | {
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.75,
        "tokenizer.ggml.suppress_tokens": [7, 9],
    }
    file.metadata = Metadata("altered", facts)
    model = open_gemma4(file)
    assert model.suppress == (7, 9)
    assert (model.sampling.temperature, model.sampling.top_k, model.sampling.top_p) == (0.5, 20, 0.75)


WRONG = [
    ("block_count", 1 << 31),
    ("block_count", 9),
    ("block_count", True),
    ("embedding_length", "64"),
    ("embedding_length", 0),
    ("context_length", 0),
    ("context_length", 1024.0),
    ("attention.key_length", -1),
    ("attention.head_count", [2.0]),
    ("attention.head_count_kv", "one"),
    ("attention.layer_norm_rms_epsilon", math.nan),
    ("attention.layer_norm_rms_epsilon", 0.0),
    ("rope.freq_base", math.inf),
    ("rope.freq_base", -1.0),
    ("rope.freq_base", [1e4]),
    ("rope.dimension_count", 8.0),
    ("final_logit_softcapping", math.nan),
    ("attention.sliding_window", "wide"),
    ("attention.sliding_window_pattern", ["x"]),
]


@pytest.mark.parametrize("name", ["gemma3", "gemma4-12b"])
@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_value_of_another_type_or_range_is_refused_by_file_key_and_value(name, key, value):
    check_refused(name, f"{name.partition('-')[0]}.{key}", value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gemma3.rope.scaling.factor", math.inf),
        ("gemma3.rope.scaling.factor", 1e-320),
        ("gemma3.rope.scaling.type", 1),
        ("general.sampling.temp", math.nan),
        ("general.sampling.temp", -1.0),
        ("general.sampling.top_k", "many"),
        ("general.sampling.top_p", 1.5),
        ("tokenizer.chat_template", ["{{ messages }}"]),
        ("tokenizer.ggml.suppress_tokens", [-1]),
        ("tokenizer.ggml.suppress_tokens", [1 << 20]),
        ("tokenizer.ggml.suppress_tokens", 3),
        ("tokenizer.ggml.eos_token_id", "1"),
    ],
)
def test_whatever_else_is_read_is_held_to_its_type_and_range(key, value):
    check_refused("gemma3-linear-rope", key, value)


def check_refused(name: str, key: str, value: object) -> None:
    with open_model(FIXTURES / f"{name}.gguf") as file:
        file.metadata = Metadata(file.path, dict(file.metadata) | {key: value})
        message = refusal(file, BadFile)
    assert message.startswith(f"{file.path}: {key}") and "\n" not in message
    assert repr(value).strip("[]") in message


def test_a_top_k_below_zero_is_off():
    with open_model(FIXTURES / "gemma3.gguf") as file:
        file.metadata = Metadata(file.path, dict(file.metadata) | {"general.sampling.top_k": -1})
        assert open_gemma3(file).sampling.top_k == 0
