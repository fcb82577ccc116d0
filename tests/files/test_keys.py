"""Facts of an architecture are read, or refused by file, key and value; tensors are held to the shapes expected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from golem_core import BadFile, Keys, Metadata, ModelFile, TensorSpec, Unsupported, block_tensors, check_tensors


def a_file(blocks: int = 0, tensors: dict[str, tuple[int, ...]] | None = None, **facts: Any) -> ModelFile:
    metadata = Metadata("toy.gguf", {f"toy.{key.replace('__', '.')}": value for key, value in facts.items()})
    found = {name: SimpleNamespace(shape=shape, type="F16") for name, shape in (tensors or {}).items()}
    weights = SimpleNamespace(blocks=[None] * blocks, get=found.get)
    return cast(ModelFile, SimpleNamespace(path="toy.gguf", architecture="toy", metadata=metadata, weights=weights))


def test_counts_and_positive_numbers_have_defaults_and_bounds():
    keys = Keys(a_file(width=8, experts=0, eps=1e-6, base=0.0))
    assert (keys.count("width"), keys.count("absent", 3), keys.count("experts", low=0)) == (8, 3, 0)
    assert (keys.positive("eps"), keys.positive("absent", 2.0)) == (1e-6, 2.0)
    with pytest.raises(BadFile, match=r"^toy.gguf: toy.experts is 0, at least 1"):
        keys.count("experts")
    with pytest.raises(BadFile, match=r"^toy.gguf: toy.base is 0.0"):
        keys.positive("base")
    with pytest.raises(BadFile, match=r"'toy.absent' is missing"):
        keys.count("absent")


@pytest.mark.parametrize(("blocks", "optional", "right"), [(3, 0, True), (2, 1, True), (2, 0, False), (4, 1, False)])
def test_the_block_count_is_what_the_file_holds(blocks, optional, right):
    keys = Keys(a_file(blocks, block_count=3))
    if right:
        assert keys.block_count(optional) == 3
    else:
        with pytest.raises(BadFile, match=rf"toy.block_count is 3, but there are {blocks} blocks"):
            keys.block_count(optional)


def test_a_key_may_hold_one_number_for_all_blocks_or_a_list():
    keys = Keys(a_file(one=4, each=[1, 2, 3], none=[1, 0, 2]))
    assert keys.per_block("one", 3) == (4, 4, 4)
    assert keys.per_block("each", 3) == keys.per_block("each", 3, behind=1) == (1, 2, 3)
    assert keys.per_block("each", 2, behind=1) == (1, 2)
    assert keys.per_block("absent", 2, default=[5, 6]) == (5, 6)
    with pytest.raises(BadFile, match=r"toy.each is a list of 3, but there are 2 blocks"):
        keys.per_block("each", 2)
    with pytest.raises(BadFile, match=r"toy.none\[1\] is 0"):
        keys.per_block("none", 3)


def test_flags_are_true_and_false_or_one_and_nought():
    keys = Keys(a_file(flags=[True, 0, 1], text="every"))
    assert keys.flags("flags", 3) == (True, False, True)
    assert keys.flags("absent", 2, [False, True]) == (False, True)
    with pytest.raises(BadFile, match=r"toy.text is 'every', a list of true and false"):
        keys.flags("text", 3)
    with pytest.raises(BadFile, match=r"'toy.absent' is missing"):
        keys.flags("absent", 2)


def test_key_heads_serve_a_whole_number_of_query_heads():
    assert Keys(a_file(attention__head_count=4)).heads(2) == ((4, 4), (4, 4))
    assert Keys(a_file(attention__head_count=[4, 6], attention__head_count_kv=2)).heads(2) == ((4, 6), (2, 2))
    with pytest.raises(BadFile, match=r"toy.attention.head_count_kv is 4, which does not divide 6 heads"):
        Keys(a_file(attention__head_count=[4, 6], attention__head_count_kv=4)).heads(2)


def test_keys_and_values_have_heads_of_one_size():
    assert Keys(a_file(attention__key_length=64)).head_dim() == Keys(a_file()).head_dim(default=64) == 64
    assert Keys(a_file(attention__key_length_swa=32)).head_dim("_swa", default=64) == 32
    with pytest.raises(Unsupported, match=r"toy.attention.value_length is 32, but attention.key_length is 64"):
        Keys(a_file(attention__key_length=64, attention__value_length=32)).head_dim()


@pytest.mark.parametrize("dims", [31, 66])
def test_an_even_part_of_a_head_is_rotated(dims):
    assert Keys(a_file(rope__dimension_count=32)).rope_dims(64) == 32
    assert Keys(a_file()).rope_dims(64) == 64
    with pytest.raises(BadFile, match=rf"toy.rope.dimension_count is {dims}, an even number up to 64"):
        Keys(a_file(rope__dimension_count=dims)).rope_dims(64)


def test_positions_are_scaled_as_asked_for():
    linear = Keys(a_file(rope__scaling__type="linear", rope__scaling__factor=8.0))
    assert linear.rope_scale(linear=True) == 1 / 8
    assert Keys(a_file()).rope_scale(linear=False) == 1
    with pytest.raises(Unsupported, match=r"toy.rope.scaling.type is 'linear', 'none' was expected"):
        linear.rope_scale(linear=False)
    with pytest.raises(Unsupported, match=r"toy.rope.scaling.type is 'yarn', 'none' or 'linear'"):
        Keys(a_file(rope__scaling__type="yarn")).rope_scale(linear=True)


def test_a_factor_without_a_type_scales_positions():
    for key in ("rope__scaling__factor", "rope__scale_linear"):
        file = a_file(**{key: 4.0})
        assert Keys(file).rope_scale(linear=True) == 1 / 4
        with pytest.raises(Unsupported, match=rf"toy.{key.replace('__', '.')} is 4.0, and positions are not scaled"):
            Keys(file).rope_scale(linear=False)
        assert Keys(a_file(**{key: 1.0})).rope_scale(linear=False) == 1
        assert Keys(a_file(**{key: 4.0, "rope__scaling__type": "none"})).rope_scale(linear=False) == 1


@pytest.mark.parametrize("suffix", ["bias", "scale"])
def test_a_bias_or_a_scale_that_nothing_computes_with_is_refused(suffix):
    matrix, beside = "blk.1.attn_q.weight", f"blk.1.attn_q.{suffix}"
    file = a_file(tensors={matrix: (4, 4), beside: (4,)})
    with pytest.raises(Unsupported, match=rf"toy.gguf: {beside} stands beside {matrix}, and nothing here computes"):
        check_tensors(file, [TensorSpec(matrix, (4, 4))])
    check_tensors(file, [TensorSpec(matrix, (4, 4)), TensorSpec(beside, (4,), optional=True)])


def test_a_tensor_that_is_missing_or_of_another_shape_is_named():
    specs = [*block_tensors(1, {"norm": (4,), "dt.bias": (2,)}), TensorSpec("output.weight", (9, 4), optional=True)]
    assert [spec.name for spec in specs] == ["blk.1.norm.weight", "blk.1.dt.bias", "output.weight"]
    held = {"blk.1.norm.weight": (4,), "blk.1.dt.bias": (2,)}
    check_tensors(a_file(tensors=held), specs)
    with pytest.raises(BadFile, match=r"toy.gguf: the tensor 'blk.1.dt.bias' is missing"):
        check_tensors(a_file(tensors={"blk.1.norm.weight": (4,)}), specs)
    with pytest.raises(BadFile, match=r"output.weight has the shape \(9, 5\), its keys say \(9, 4\)"):
        check_tensors(a_file(tensors=held | {"output.weight": (9, 5)}), specs)
    check_tensors(a_file(tensors=held), specs, ("F32", "F16"))
    with pytest.raises(Unsupported, match=r"toy.gguf: blk.1.norm.weight is of the type F16; F32, BF16 are computed"):
        check_tensors(a_file(tensors=held), specs, ("F32", "BF16"))
