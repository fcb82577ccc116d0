"""Weights answer by the file's own names, and say what is missing and from which file."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from golem_core.errors import BadFile
from golem_core.files import Metadata, Weight, Weights
from golem_core.files.metadata import Deferred


def tensor(name: str) -> Weight:
    return Weight(name, "F32", (2,), np.zeros(8, np.uint8))


def weights(*names: str) -> Weights:
    return Weights("model.gguf", {name: tensor(name) for name in names})


def test_attributes_are_the_names_without_weight():
    w = weights("output_norm.weight", "blk.0.attn_q.weight", "rope_freqs")
    assert w.output_norm.name == "output_norm.weight"
    assert w.blocks[0].attn_q.name == "blk.0.attn_q.weight"
    assert w.rope_freqs.name == "rope_freqs"


def test_get_finds_suffixes_and_optional_tensors():
    block = weights("blk.0.attn_q.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate_inp.scale").blocks[0]
    assert block.get("attn_q").name == "blk.0.attn_q.weight"
    assert block.get("attn_q.bias").name == "blk.0.attn_q.bias"
    assert block.get("ffn_gate_inp.scale").name == "blk.0.ffn_gate_inp.scale"
    assert block.get("attn_k") is None


def test_a_missing_tensor_is_named_with_its_file():
    w = weights("blk.0.attn_q.weight")
    with pytest.raises(BadFile, match=r"model\.gguf: there is no tensor 'blk\.0\.attn_k\.weight'"):
        _ = w.blocks[0].attn_k


def test_blocks_are_counted_in_order_and_kept():
    w = weights(*(f"blk.{i}.x.weight" for i in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9)), "v.blk.0.y.weight")
    assert [block.x.name for block in w.blocks] == [f"blk.{i}.x.weight" for i in range(11)]
    assert w.blocks is w.blocks
    assert weights("a").blocks == []
    assert w.scoped("v").blocks[0].y.name == "v.blk.0.y.weight"


@pytest.mark.parametrize("number", ["2", "999999999"])
def test_a_block_that_is_left_out_is_named(number):
    with pytest.raises(BadFile, match=rf"tensors of blk\.{number} but none of blk\.1"):
        _ = weights("blk.0.x", f"blk.{number}.x").blocks


def test_iterating_gives_full_names():
    w = weights("a.weight", "blk.0.x.weight", "blk.0.y.bias")
    assert list(w) == ["a.weight", "blk.0.x.weight", "blk.0.y.bias"] and len(w) == 3
    block = w.blocks[0]
    assert list(block) == ["blk.0.x.weight", "blk.0.y.bias"] and len(block) == 2
    assert "blk.0.x.weight" in block and "a.weight" not in block and "x" not in block
    assert block["blk.0.y.bias"] is w["blk.0.y.bias"]
    assert [(name, weight.name) for name, weight in block.items()] == [(name, name) for name in block]
    with pytest.raises(KeyError):
        _ = block["a.weight"]


def test_pythons_own_questions_are_not_tensor_names():
    w = weights("a.weight")
    assert not hasattr(w, "__array__")
    assert copy.copy(w).a is w.a


def test_metadata_scopes_strip_the_prefix():
    meta = Metadata("f", {"a.x": 1, "a.b.y": 2, "ab.z": 3})
    assert dict(meta.scoped("a")) == {"x": 1, "b.y": 2}
    assert dict(meta.scoped("a").scoped("b")) == {"y": 2}
    assert len(meta.scoped("a")) == 2 and "z" not in meta.scoped("a") and meta.scoped("a").get("z", 4) == 4


def test_metadata_scopes_enter_json_objects():
    meta = Metadata("config.json", {"text_config": {"width": 8}})
    assert meta.scoped("text_config")["width"] == 8
    with pytest.raises(BadFile, match=r"config\.json: text_config: the key 'depth' is missing"):
        meta.scoped("text_config").required("depth")


def test_a_required_key_that_is_missing_is_named_whole():
    meta = Metadata("model.gguf", {"tiny.x": 0})
    assert meta.scoped("tiny").required("x") == 0
    with pytest.raises(BadFile, match=r"model\.gguf: the key 'tiny\.y' is missing"):
        meta.scoped("tiny").required("y")


def test_a_deferred_value_is_decoded_once_and_only_when_asked_for():
    calls = []
    meta = Metadata("f", {"a.x": Deferred(lambda: calls.append(1) or [1, 2])})
    assert "a.x" in meta and list(meta.scoped("a")) == ["x"] and not calls
    assert meta["a.x"] == meta.scoped("a")["x"] == [1, 2] and len(calls) == 1


FACTS = {"a.n": 5, "a.f": 0.5, "a.inf": float("inf"), "a.huge": 10**400, "a.b": True, "a.t": "x\ny", "a.ns": [1, 2, -3]}


def test_typed_values_are_what_the_file_states():
    meta = Metadata("f", FACTS).scoped("a")
    assert meta.number("n", int, low=5, high=5) == 5 and meta.number("f", float, above=0) == 0.5
    assert repr(meta.number("n", float)) == "5.0" and meta.numbers("ns", int, low=-3) == [1, 2, -3]
    assert meta.flag("b") is True and meta.text("t") == "x\ny"
    assert meta.number("none", int, None) is None and meta.numbers("none", int, ()) == () and meta.text("no", "") == ""


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda meta: meta.number("none", int), "the key 'a.none' is missing"),
        (lambda meta: meta.number("f", int), "a.f is 0.5, an integer was expected"),
        (lambda meta: meta.number("b", int, 0), "a.b is True, an integer was expected"),
        (lambda meta: meta.number("t", float), r"a.t is 'x\ny', a number was expected"),
        (lambda meta: meta.number("inf", float), "a.inf is inf, a finite number was expected"),
        (lambda meta: meta.number("huge", float), "a finite number was expected"),
        (lambda meta: meta.number("n", int, low=6), "a.n is 5, at least 6 was expected"),
        (lambda meta: meta.number("n", float, above=5), "a.n is 5.0, above 5 was expected"),
        (lambda meta: meta.numbers("n", int), "a.n is 5, a list of numbers was expected"),
        (lambda meta: meta.numbers("ns", int, low=0), "a.ns[2] is -3, at least 0 was expected"),
        (lambda meta: meta.flag("n"), "a.n is 5, true or false was expected"),
        (lambda meta: meta.text("ns"), "a.ns is [1, 2, -3], a text was expected"),
        (lambda meta: meta.texts("ns"), "a.ns[0] is 1, a text was expected"),
    ],
)
def test_values_of_another_type_or_range_are_refused_by_file_key_and_value(read, words):
    with pytest.raises(BadFile) as refused:
        read(Metadata("f", FACTS).scoped("a"))
    message = str(refused.value)
    assert message.startswith("f: ") and words in message and "\n" not in message and len(message) < 200


@pytest.mark.parametrize(("given", "type_"), [(np.float16, "F16"), (np.float32, "F32"), (np.float64, "F32")])
def test_numbers_of_ones_own_are_a_weight(given, type_):
    numbers = np.arange(24, dtype=given).reshape(2, 3, 4).transpose(2, 0, 1)
    weight = Weight.of("mine", numbers)
    assert (weight.name, weight.type, weight.shape) == ("mine", type_, (4, 2, 3))
    np.testing.assert_array_equal(weight.dequantize(), numbers)
