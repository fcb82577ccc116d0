"""The hooks: a file opens through its record and embeds texts, and files that cannot be are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golem_nomic import plugin

import golem_core
from golem_core import BadFile, BadRequest, Embedder, Unsupported, dequantize_rows

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_file_opens_through_the_architecture_record(model):
    (record,) = plugin.golem_architectures()
    assert record.role is Embedder and model.file.architecture in record.names
    opened = record.open(model.file)
    assert (opened.name, opened.dimensions, opened.limit, opened.matryoshka) == (model.name, 32, 512, True)
    assert opened.build().outputs["embedding"].shape == (32,)


def test_texts_are_embedded_through_the_installed_package(load, columns, cpu):
    model = load("nomic-moe")
    with golem_core.load_embedder(FIXTURES / "nomic-moe.gguf", threads=2) as embedder:
        ids = [text.tolist() for text in model.texts]
        np.testing.assert_allclose(embedder.embed(ids, normalize=False), model.expected["vectors"], atol=1e-5)
        text = "search_query: the river"
        assert embedder.tokenize(text)[0] == 0 and embedder.tokenize(text)[-1] == 2
        alone = embedder.embed([text])
        many = embedder.embed(["a", text, "the river in the east " * 20, ""])
        np.testing.assert_array_equal(many[1], alone[0])
        np.testing.assert_allclose(np.linalg.norm(many, axis=1), 1, atol=1e-6)
        short = embedder.embed([text], dimensions=8)
        np.testing.assert_allclose(short[0], alone[0, :8] / np.linalg.norm(alone[0, :8]), atol=1e-6)
        long = "the river " * 600
        cut = embedder.tokenize(long, truncate=True)
        assert len(cut) == 512 and cut[-1] == 2 and cut[:511] == embedder.tokenize(long)[:511]
        with pytest.raises(BadRequest, match="and the model takes 512"):
            embedder.embed([long])
        assert embedder.embed([long], truncate=True).shape == (1, 32)


def test_a_file_without_types_of_tokens_adds_nothing(altered, load, cpu, columns):
    model = load("nomic-moe")
    file = altered(tensors={"token_types.weight": None})
    opened = plugin.open_nomic(file)
    table = file.weights.token_embd
    g = opened.build()
    start = next(node for node in g.nodes if node.op.name == "layer_norm").results[0]
    g.output("start", start)
    got = cpu.compile(g, slots=8, context=64, width=256).run(columns(model.texts))["start"]
    x = dequantize_rows(table, model.expected["tokens"])
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y = y * file.weights.token_embd_norm.dequantize() + file.weights.get("token_embd_norm.bias").dequantize()
    np.testing.assert_allclose(got, y, atol=1e-5)


def test_a_file_that_states_more_positions_than_the_model_was_trained_for_has_512(altered):
    assert plugin.open_nomic(altered(keys={"context_length": 2046})).limit == 512
    assert plugin.open_nomic(altered(keys={"context_length": 100})).limit == 100


def test_the_base_of_rotations_is_the_formats_where_a_file_has_none(altered, load):
    assert type(load("nomic-moe").config).read(altered(keys={"rope.freq_base": None}), 96).rope_base == 1e4


@pytest.mark.parametrize(
    "keys, kind, words",
    [
        ({"attention.head_count": 5}, BadFile, "attention.head_count is 5, which does not divide the width 32"),
        ({"attention.head_count_kv": 2}, Unsupported, "attention.head_count_kv is 2, 4 was expected"),
        (
            {"attention.key_length": 16},
            Unsupported,
            "attention.value_length|attention.key_length is 16, 8 was expected",
        ),
        ({"attention.value_length": 4}, Unsupported, "attention.value_length is 4"),
        ({"attention.head_count": 32}, BadFile, "leaves heads of 1, an odd number"),
        ({"attention.causal": True}, Unsupported, "attention.causal is true, false was expected"),
        ({"rope.dimension_count": 4}, Unsupported, "rope.dimension_count is 4, all 8 were expected"),
        ({"rope.scaling.type": "yarn"}, Unsupported, "rope.scaling.type is 'yarn'"),
        ({"expert_used_count": 9}, BadFile, "expert_used_count is 9, but there are 8 experts"),
        ({"expert_count": 4}, BadFile, r"ffn_gate_inp.weight has the shape \(8, 32\), its keys say \(4, 32\)"),
        ({"moe_every_n_layers": 3}, BadFile, "the tensor 'blk.3.ffn_up.weight' is missing"),
        ({"moe_every_n_layers": 0}, BadFile, "the tensor 'blk.1.ffn_up.weight' is missing"),
        (
            {"pooling_type": 0},
            Unsupported,
            r"pooling_type is 0, one of 1 \(mean\), 2 \(first\), 3 \(last\) was expected",
        ),
        ({"pooling_type": 4}, Unsupported, "pooling_type is 4"),
        ({"block_count": 5}, BadFile, "block_count is 5, but there are 4 blocks"),
        ({"feed_forward_length": 64}, BadFile, "ffn_up.weight has the shape"),
        ({"attention.layer_norm_epsilon": None}, BadFile, "attention.layer_norm_epsilon' is missing"),
        ({"attention.layer_norm_epsilon": -1.0}, BadFile, "attention.layer_norm_epsilon is -1.0"),
        ({"rope.freq_base": "x"}, BadFile, "rope.freq_base is 'x', a number was expected"),
        ({"context_length": 0}, BadFile, "context_length is 0"),
    ],
)
def test_a_file_that_contradicts_itself_or_asks_for_more_is_refused_by_the_key(altered, keys, kind, words):
    with pytest.raises(kind, match=words):
        plugin.open_nomic(altered(keys=keys))


@pytest.mark.parametrize(
    "name",
    ["token_embd_norm.bias", "blk.0.attn_qkv.bias", "blk.1.ffn_down_exps.weight", "blk.3.layer_output_norm.weight"],
)
def test_a_missing_tensor_is_named(altered, name):
    with pytest.raises(BadFile, match=f"the tensor '{name}' is missing"):
        plugin.open_nomic(altered(tensors={name: None}))


def test_another_number_of_rows_than_tokens_is_refused(altered):
    with pytest.raises(BadFile, match=r"token_embd\.weight has the shape"):
        plugin.open_nomic(altered(tensors={"token_embd.weight": np.zeros((95, 32), np.float32)}))
