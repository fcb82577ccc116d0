"""Files of ternary matrices, with the type ids and keys that such files have, give what the plain matrices give."""

from __future__ import annotations

import numpy as np
import pytest
from golem_qwen import plugin, qwen35

from golem_core import BadFile, Reference, Unsupported

NAME = "qwen35-untied"
KEYS = {
    "embedding_length": 128, "feed_forward_length": 256, "attention.head_count": 4, "attention.head_count_kv": 2,
    "attention.key_length": 32, "attention.value_length": 32, "ssm.state_size": 16, "ssm.group_count": 2,
    "ssm.time_step_rank": 8, "ssm.inner_size": 128,
}  # fmt: skip
ROTATED = {"attn_qkv", "attn_gate", "attn_q", "attn_k", "attn_v", "attn_output", "ssm_out", "ffn_gate", "ffn_up",
           "ffn_down", "output", "token_embd"}  # fmt: skip
BLOCK, KEY_HEADS, DIM = 128, 2, 16
TOKENS = np.arange(20) * 7 % 300


def signs(width: int) -> np.ndarray:
    return np.random.default_rng(width).choice([-1.0, 1.0], width)


def plain(name: str, matrix: np.ndarray) -> np.ndarray:
    """What a rotated matrix stands for."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < BLOCK:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    rows = (matrix.reshape(len(matrix), -1, BLOCK) @ hadamard / np.sqrt(BLOCK)).reshape(matrix.shape)
    rows = rows * signs(matrix.shape[1])
    if name.endswith("ssm_out.weight"):  # from the order of its rotation to that of the file's value heads
        rows = rows.reshape(len(rows), KEY_HEADS, -1, DIM).swapaxes(1, 2).reshape(matrix.shape)
    return rows.astype(np.float32)


@pytest.fixture
def made(altered, load, pack):
    """made(kind, facts=) -> the file with its matrices as `kind`, "F32" for the plain ones they stand for."""
    cfg = qwen35.Qwen35Config.read(altered(NAME, keys=KEYS), 304)

    def make(kind: str, facts=()):
        dice, tensors, listed = np.random.default_rng(1), {}, []
        for tensor in cfg.tensors():
            short = tensor.name.removesuffix(".weight").rpartition(".")[2]
            if short not in ROTATED:
                norm = len(tensor.shape) == 1 and "norm" in short
                scale = 0.2 if len(tensor.shape) == 1 else 0.1
                values = (dice.standard_normal(tensor.shape) * scale + norm).astype(np.float32)
                tensors[tensor.name] = -np.abs(values) if short == "ssm_a" else values
                continue
            digits = dice.integers(-1, 2, tensor.shape)
            scales = dice.uniform(0.08, 0.12, digits.size // 128).astype(np.float16)
            if kind == "F32":
                matrix = (digits.reshape(-1, 128) * scales.astype(np.float64)[:, None]).reshape(tensor.shape)
                tensors[tensor.name] = plain(tensor.name, matrix)
            else:
                tensors[tensor.name] = pack(kind, digits, scales)
            if short != "token_embd":
                listed.append(tensor.name)
        widths = (128, 256)
        rotation = {
            "version": 1, "block_size": BLOCK, "transform": "normalized-sylvester-walsh-hadamard",
            "axis": "input-last-dimension", "sign_mode": "explicit", "weight_names": listed,
            "inverse_weight_names": ["token_embd.weight"], "gdn_v_grouped": True, "sign_widths": list(widths),
            "sign_values": [int(sign) for width in widths for sign in signs(width)],
        }  # fmt: skip
        own = {} if kind == "F32" else {f"prism.hadamard.{key}": value for key, value in rotation.items()}
        return altered(NAME, keys=KEYS, facts=own | dict(facts), tensors=tensors)

    return make


def logits(file, columns, **options) -> np.ndarray:
    return Reference(plugin.open_qwen35(file).build(), **options).run(columns(TOKENS))["logits"]


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0"])
def test_a_ternary_file_gives_what_the_plain_matrices_give(made, columns, cpu, kind):
    file = made(kind)
    assert {file.weights[name].type for name in ("blk.0.ssm_out.weight", "token_embd.weight")} == {kind}
    expected = logits(made("F32"), columns)
    assert error(logits(file, columns), expected) < 1e-4
    rounded = logits(file, columns, round_input=cpu.round_input)
    compiled = cpu.compile(plugin.open_qwen35(file).build(), context=64, width=32, scored=32)
    got = compiled.run(columns(TOKENS))["logits"]
    assert error(got[0], rounded[0]) < 1e-4
    assert error(got, rounded) < 0.05  # an activation between two steps goes either way
    assert error(rounded, expected) < 0.1


def test_both_forms_hold_the_same_numbers(made):
    two, three = made("PQ2_0"), made("PTQ1_0")
    for name, weight in two.weights.items():
        np.testing.assert_array_equal(weight.dequantize(), three.weights[name].dequantize())
    assert sum(w.nbytes for w in three.weights.values()) < sum(w.nbytes for w in two.weights.values())


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"weight_names": ["output.weight"]}, BadFile, r"is PQ2_0, but prism\.hadamard\.weight_names does not list it"),
        ({"inverse_weight_names": []}, BadFile, r"token_embd\.weight is PQ2_0, but"),
        ({"sign_widths": [128]}, BadFile, r"prism\.hadamard\.sign_values"),
        ({"block_size": 512}, BadFile, r"prism\.hadamard\.block_size is 512"),
        ({"transform": "cosine"}, Unsupported, r"prism\.hadamard\.transform is 'cosine'"),
        ({"version": None}, BadFile, r"prism\.hadamard\.version"),
    ],
)
def test_a_rotation_that_does_not_fit_the_file_is_refused(made, changes, kind, message):
    file = made("PQ2_0", facts={f"prism.hadamard.{key}": value for key, value in changes.items()})
    with pytest.raises(kind, match=message):
        plugin.open_qwen35(file)


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0"])
def test_a_ternary_file_that_says_nothing_of_rotations_is_refused(made, kind):
    every = ("version", "block_size", "transform", "axis", "sign_mode", "weight_names", "inverse_weight_names",
             "gdn_v_grouped", "sign_widths", "sign_values")  # fmt: skip
    file = made(kind, facts={f"prism.hadamard.{key}": None for key in every})
    with pytest.raises(BadFile, match=rf"is {kind}, but prism\.hadamard\.weight_names does not list it"):
        plugin.open_qwen35(file)
