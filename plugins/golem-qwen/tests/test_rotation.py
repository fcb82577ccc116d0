"""Rotated matrices give what the plain ones give; rotations that cannot be followed are refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from golem_qwen import plugin, qwen35
from golem_qwen.rotation import Rotation, refuse_unlisted

from golem_core import BadFile, TensorSpec, Unsupported, Weight

BLOCK = 32
ROTATED = ("attn_qkv", "attn_gate", "attn_q", "attn_k", "attn_v", "attn_output", "ssm_out", "ffn_gate", "ffn_up",
           "ffn_down")  # fmt: skip
WIDTHS = (64, 96, 128, 16)
TOLERANCE = 1e-4


def signs_of(width: int) -> np.ndarray:
    return np.random.default_rng(width).choice([-1.0, 1.0], width).astype(np.float32)


def transformed(x: np.ndarray, block: int) -> np.ndarray:
    """Each block of the last axis times Sylvester's matrix, written out."""
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    blocks = x.reshape(*x.shape[:-1], -1, block) @ matrix / np.sqrt(block)
    return blocks.reshape(x.shape).astype(np.float32)


def rotated(model, *, explicit: bool, grouped: bool, block: int):
    """(tensors, facts) of the model with every matrix rotated, the value heads of `ssm_out` grouped if asked for."""
    delta, tensors, names = model.config.delta, {}, []
    for name, weight in model.file.weights.items():
        short = name.removesuffix(".weight").rpartition(".")[2]
        if short not in (*ROTATED, "output", "token_embd"):
            continue
        x = weight.dequantize()
        if short == "ssm_out" and grouped:
            parts = x.reshape(len(x), -1, delta.key_heads, delta.dim)
            x = parts.swapaxes(1, 2).reshape(x.shape)
        tensors[name] = transformed(x * signs_of(x.shape[-1]) if explicit else x, block)
        if short != "token_embd":
            names.append(name)
    facts = {
        "version": 1, "block_size": block, "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension", "sign_mode": "explicit" if explicit else "identity", "weight_names": names,
        "inverse_weight_names": ["token_embd.weight"], "gdn_v_grouped": grouped,
    }  # fmt: skip
    if explicit:
        facts["sign_widths"] = list(WIDTHS)
        facts["sign_values"] = [int(sign) for width in WIDTHS for sign in signs_of(width)]
    return tensors, {f"prism.hadamard.{key}": value for key, value in facts.items()}


def logits(compile, columns, file, tokens):
    config = qwen35.Qwen35Config.read(file, 304)
    return compile(qwen35.build(config, file.weights)).run(columns(tokens))["logits"]


def error(got, expected) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("name", "grouped", "block"),
    [("qwen35-tied", True, 32), ("qwen35-tied", False, 16), ("qwen35-untied", True, 16), ("qwen35-untied", False, 4)],
)
def test_rotated_matrices_give_what_the_plain_ones_give(
    load, altered, compile, columns, name, grouped, block, explicit
):
    model = load(name)
    tensors, facts = rotated(model, explicit=explicit, grouped=grouped, block=block)
    file = altered(name, tensors=tensors, facts=facts)
    plugin.open_qwen35(file)
    assert error(logits(compile, columns, file, model.tokens), model.expected["logits"]) < TOLERANCE


def test_a_prediction_block_beside_rotated_matrices_is_read_as_it_is(load, predicting, compile, columns):
    """Its own matrices are not listed; the token table and the head that it shares are rotated."""
    model = load("qwen35-untied")
    tensors, facts = rotated(model, explicit=True, grouped=True, block=16)
    hidden = np.random.default_rng(3).standard_normal((24, model.config.width)).astype(np.float32)
    given, found = columns(model.tokens), []
    for changes in ({}, {"tensors": tensors, "facts": facts}):
        drafting = plugin.open_qwen35(predicting("qwen35-untied", **changes)).drafting
        assert drafting is not None
        graph = drafting.guess()
        found.append(compile(graph).run(replace(given, inputs={"hidden": hidden}))["logits"].copy())
    assert error(found[1], found[0]) < TOLERANCE


@pytest.mark.parametrize("wrong", ["a matrix left out", "heads in another order", "another sign"])
def test_every_part_of_a_rotation_counts(load, altered, compile, columns, wrong):
    model = load("qwen35-tied")
    tensors, facts = rotated(model, explicit=True, grouped=True, block=BLOCK)
    match wrong:
        case "a matrix left out":
            facts["prism.hadamard.weight_names"].remove("blk.3.ffn_down.weight")
        case "heads in another order":
            facts["prism.hadamard.gdn_v_grouped"] = False
        case _:
            facts["prism.hadamard.sign_values"][70] *= -1
    file = altered("qwen35-tied", tensors=tensors, facts=facts)
    assert error(logits(compile, columns, file, model.tokens), model.expected["logits"]) > 100 * TOLERANCE


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("version", 2, Unsupported),
        ("transform", "fourier", Unsupported),
        ("axis", "output", Unsupported),
        ("sign_mode", "random", Unsupported),
        ("inverse_weight_names", ["output_norm.weight"], Unsupported),
        ("block_size", 24, BadFile),
        ("block_size", 128, BadFile),
        ("sign_widths", [64, 96, 128], BadFile),
        ("sign_widths", [64, 96, 64, 80], BadFile),
        ("sign_values", [2] * sum(WIDTHS), BadFile),
        ("sign_values", None, BadFile),
        ("weight_names", ["blk.9.attn_q.weight"], BadFile),
    ],
)
def test_a_rotation_that_cannot_be_followed_is_refused(load, altered, key, value, kind):
    model = load("qwen35-tied")
    tensors, facts = rotated(model, explicit=True, grouped=True, block=BLOCK)
    file = altered("qwen35-tied", tensors=tensors, facts=facts | {f"prism.hadamard.{key}": value})
    with pytest.raises(kind, match=r"prism\.hadamard"):
        plugin.open_qwen35(file)


def test_rotated_matrices_of_a_dense_qwen3_are_not_read_as_plain_ones(altered):
    facts = {
        "version": 1, "block_size": BLOCK, "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension", "sign_mode": "identity", "weight_names": ["blk.0.attn_q.weight"],
    }  # fmt: skip
    file = altered("qwen3-tied", facts={f"prism.hadamard.{key}": value for key, value in facts.items()})
    with pytest.raises(Unsupported, match=r"prism\.hadamard: golem-qwen reads rotated matrices in files of qwen35"):
        plugin.open_qwen3(file)


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0"])
def test_a_matrix_of_a_type_that_is_always_rotated_must_be_listed(kind):
    names = ("blk.0.attn_q.weight", "token_embd.weight")
    weights = {name: Weight(name, kind, (4, 128), np.zeros(0, np.uint8)) for name in names}
    file, tensors = SimpleNamespace(path="some.gguf", weights=weights), [TensorSpec(name, (4, 128)) for name in names]
    rotation = Rotation(128, {}, frozenset(names[:1]), table=True, grouped=False)
    refuse_unlisted(file, rotation, tensors)
    for missing in (None, Rotation(128, {}, frozenset(), table=True, grouped=False)):
        with pytest.raises(BadFile, match=rf"blk\.0\.attn_q\.weight is {kind}"):
            refuse_unlisted(file, missing, tensors)
