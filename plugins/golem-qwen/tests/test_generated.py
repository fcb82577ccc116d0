"""Two tiny models and a tower whose weights a formula generates, held to numbers computed in float64.

Those of the models are what transformers' code gave; one carries a prediction block behind its trunk, which an ordinary
pass leaves alone.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from gguf import GGUFWriter
from golem_qwen import prediction, qwen3, qwen35, vision

from golem_core import Columns, Weight, Weights, open_model

WIDTH, FFN, HEADS, KV_HEADS, VOCABULARY = 32, 48, 4, 2, 40
TOKENS = np.array([3, 1, 4, 1, 5, 9, 2, 6])


def generated(name: str, *shape: int) -> np.ndarray:
    """A tensor of `shape` by its name: a hash of each index, spread around an offset."""
    u = (np.arange(np.prod(shape), dtype=np.uint64) + zlib.crc32(name.encode())) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        u = ((u ^ (u >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    if name == "token_embd.weight":
        amplitude, offset = 1.0, 0.0
    elif name.startswith(("v.patch_embd.weight", "v.position_embd")):
        amplitude, offset = 0.5, 0.0
    elif name.endswith("bias") and name.startswith(("v.", "mm.")):
        amplitude, offset = 0.2 if name == "v.patch_embd.bias" else 0.1, 0.0
    elif name.endswith(("ln1.weight", "ln2.weight", "post_ln.weight")) or "norm" in name:
        amplitude, offset = 0.1, 1.0
    elif name.endswith("ssm_a"):
        amplitude, offset = 0.4, -0.5
    else:
        amplitude, offset = (0.5, 0.0) if name.endswith(("ssm_conv1d.weight", "ssm_dt.bias")) else (0.3, 0.0)
    return (offset + amplitude * (u / 2**31 - 1)).astype(np.float32).reshape(shape)


def write(path, architecture: str, facts: dict, tensors: dict[str, tuple[int, ...]]):
    writer = GGUFWriter(path, architecture)
    facts = {"embedding_length": WIDTH, "feed_forward_length": FFN, "attention.head_count": HEADS,
             "attention.head_count_kv": KV_HEADS, "attention.layer_norm_rms_epsilon": 1e-6, "context_length": 64,
             **facts}  # fmt: skip
    for key, value in facts.items():
        add = {int: writer.add_uint32, float: writer.add_float32}.get(type(value), writer.add_array)
        add(f"{architecture}.{key}", value)
    for name, shape in tensors.items():
        writer.add_tensor(name, generated(name, *shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_model(path)


def attention(dim: int, gates: int) -> dict[str, tuple[int, ...]]:
    return {
        "attn_q.weight": ((1 + gates) * HEADS * dim, WIDTH), "attn_k.weight": (KV_HEADS * dim, WIDTH),
        "attn_v.weight": (KV_HEADS * dim, WIDTH), "attn_output.weight": (WIDTH, HEADS * dim),
        "attn_q_norm.weight": (dim,), "attn_k_norm.weight": (dim,),
    }  # fmt: skip


def feed_forward(norm: str) -> dict[str, tuple[int, ...]]:
    return {
        "attn_norm.weight": (WIDTH,), f"{norm}.weight": (WIDTH,), "ffn_gate.weight": (FFN, WIDTH),
        "ffn_up.weight": (FFN, WIDTH), "ffn_down.weight": (WIDTH, FFN),
    }  # fmt: skip


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    tensors = {"token_embd.weight": (VOCABULARY, WIDTH), "output_norm.weight": (WIDTH,)}
    for i in range(2):
        block = attention(16, 0) | feed_forward("ffn_norm")
        tensors |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    facts = {"block_count": 2, "attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 1e6}
    file = write(tmp_path_factory.mktemp("dense") / "dense.gguf", "qwen3", facts, tensors)
    return qwen3.build(qwen3.Qwen3Config.read(file, VOCABULARY), file.weights)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    key_heads, heads, dim = 2, 6, 8
    features = 2 * key_heads * dim + heads * dim
    delta = {
        "attn_qkv.weight": (features, WIDTH), "attn_gate.weight": (heads * dim, WIDTH),
        "ssm_conv1d.weight": (features, 4), "ssm_a": (heads,), "ssm_dt.bias": (heads,),
        "ssm_alpha.weight": (heads, WIDTH), "ssm_beta.weight": (heads, WIDTH), "ssm_norm.weight": (dim,),
        "ssm_out.weight": (WIDTH, heads * dim),
    }  # fmt: skip
    predicting = {"eh_proj": (WIDTH, 2 * WIDTH), "enorm": (WIDTH,), "hnorm": (WIDTH,), "shared_head_norm": (WIDTH,)}
    table = (VOCABULARY, WIDTH)
    tensors = {"token_embd.weight": table, "output_norm.weight": (WIDTH,), "output.weight": table}
    for i in range(5):
        block = (delta if i < 3 else attention(32, 1)) | feed_forward("post_attention_norm")
        tensors |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    tensors |= {f"blk.4.nextn.{name}.weight": shape for name, shape in predicting.items()}
    facts = {
        "block_count": 5, "nextn_predict_layers": 1, "attention.key_length": 32, "attention.value_length": 32,
        "rope.freq_base": 1e4, "rope.dimension_count": 16, "rope.dimension_sections": [3, 3, 2, 0],
        "ssm.conv_kernel": 4, "ssm.state_size": dim, "ssm.group_count": key_heads, "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * dim, "full_attention_interval": 4,
    }  # fmt: skip
    file = write(tmp_path_factory.mktemp("hybrid") / "hybrid.gguf", "qwen35", facts, tensors)
    return qwen35.Qwen35Config.read(file, VOCABULARY), file.weights


def test_the_formula_gives_the_weights_that_it_gave():
    np.testing.assert_allclose(
        generated("token_embd.weight", 4), [-0.08066472, -0.64846742, -0.87598047, 0.68399064], atol=1e-7
    )


def test_dense(dense, compile, columns):
    logits = compile(dense).run(columns(TOKENS))["logits"]
    last = [-5.171547841, -2.502701357, -3.107591510, -2.482851424, -0.681281526, 1.581734018]
    np.testing.assert_allclose(logits[-1, :6], last, atol=2e-5)
    np.testing.assert_allclose(logits[0, :3], [-3.030952907, -1.152337096, -4.194772862], atol=2e-5)
    assert logits[-1].sum() == pytest.approx(-15.742740492, abs=2e-4)


def test_hybrid(hybrid, compile, columns):
    compiled = compile(qwen35.build(*hybrid))
    logits = compiled.run(columns(TOKENS))["logits"]
    last = [-1.270822818, 0.252539062, -0.258833557, -2.279260309, 0.208995504, -0.527274454]
    np.testing.assert_allclose(logits[-1, :6], last, atol=2e-5)
    np.testing.assert_allclose(logits[0, :3], [-0.107427551, -0.007297923, 0.322334183], atol=2e-5)
    assert logits[-1].sum() == pytest.approx(-8.677110728, abs=2e-4)
    window, state = (np.asarray(each).reshape(-1) for each in compiled.save(0)[:2])
    np.testing.assert_allclose(window[:3], [-0.153697126, -0.137473295, 1.770211081], atol=1e-5)
    # of the first head, what each key component has to say about the first value component
    np.testing.assert_allclose(state[:32:8], [-0.012730053, 0.058543617, 0.003131585, -0.005993504], atol=1e-5)


def test_prediction_block(hybrid, compile, columns):
    hidden = compile(qwen35.build(*hybrid, hidden=True)).run(columns(TOKENS))["hidden"].copy()
    following, position = np.array([*TOKENS[1:], 7]), np.arange(len(TOKENS))
    facts = Columns(following, position, np.zeros_like(position), position, inputs={"hidden": hidden})
    logits = compile(prediction.build(*hybrid)).run(facts)["logits"]
    last = [-0.120613343, 0.597221354, -1.597650455, -1.738050745]
    np.testing.assert_allclose(logits[-1, :4], last, atol=2e-5)
    assert logits[-1].sum() == pytest.approx(-17.401591260, abs=2e-4)


def test_hybrid_with_places_of_pictures(hybrid, compile):
    compiled = compile(qwen35.build(*hybrid, media=True))
    n, at = len(TOKENS), [(0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)]
    inputs = {"given": np.zeros((n, WIDTH)), "is_text": np.ones((n, WIDTH)), "place": np.array(at)}
    logits = compiled.run(Columns(TOKENS, np.arange(n), np.zeros(n), np.arange(n), inputs))["logits"]
    np.testing.assert_allclose(logits[-1, :4], [-1.246467818, 0.287740755, -0.224153640, -2.309096100], atol=2e-5)


@pytest.fixture(scope="module")
def small_tower():
    tower = vision.Tower(16, 20, 2, 2, 24, 1e-6, 2, 2, 3, (0.5,) * 3, (0.5,) * 3)
    weights = {
        spec.name: Weight(spec.name, "F32", spec.shape, generated(spec.name, *spec.shape).reshape(-1).view(np.uint8))
        for spec in tower.tensors()
    }
    return tower, Weights("generated", weights)


def test_tower(small_tower, compile):
    """Of a picture 4 pixels high and 8 wide, whose patches are fewer and more than the positions of the table."""
    tower, weights = small_tower
    canvas = np.sin(0.37 * np.arange(3 * 4 * 8)).reshape(3, 4, 8).transpose(1, 2, 0)
    columns = vision.columns(tower, weights, *tower.patches(canvas))
    states = compile(vision.build(tower, weights)).run(columns)["states"].reshape(2, -1)
    facts = Columns(np.zeros(2), np.arange(2), np.zeros(2), inputs={"states": states})
    rows = compile(vision.build_rows(tower, weights)).run(facts)["rows"]
    np.testing.assert_allclose(rows[0, :4], [-0.196245265, 2.706743984, 2.511134891, -1.229109647], atol=1e-5)
    np.testing.assert_allclose(rows[1, :4], [-1.021125918, 1.058504144, -0.329129107, -0.212817295], atol=1e-5)
    assert rows.sum() == pytest.approx(12.909481525, abs=1e-4)
