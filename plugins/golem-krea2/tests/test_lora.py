"""A LoRA changes products as if it had been folded into the weights, and files that are none are refused by key."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from golem_krea2.dit import DiT
from golem_krea2.lora import Lora

from golem_core import BadFile

FACTORS = {"blocks.0.attn.wq": 8.0, "blocks.1.mlp.down": 3.0}
"""alpha of the targets that have one."""
TARGETS = [
    "first", "tmlp.2", "tproj.1", "txtmlp.1", "txtfusion.projector", "txtfusion.layerwise_blocks.1.attn.wv",
    "txtfusion.refiner_blocks.0.mlp.up", "blocks.0.attn.wq", "blocks.0.attn.wv", "blocks.0.attn.gate",
    "blocks.0.attn.wo", "blocks.0.mlp.gate", "blocks.0.mlp.up", "blocks.1.mlp.down", "last.linear",
]  # fmt: skip


@pytest.fixture(scope="module")
def values(tiny):
    return tiny.dit_file("scaled")[1]


@pytest.fixture
def files(tiny, values, tmp_path):
    return SimpleNamespace(dit=tiny.opened(tmp_path / "dit.safetensors", values), dit_shape=tiny.WHOLE_DIT)


def matrices(values) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A and B of every target, of several ranks, numbers that float16 holds."""
    dice, out = np.random.default_rng(5), {}
    for i, target in enumerate(TARGETS):
        outputs, inputs = values[f"{target}.weight"].shape
        rank = (1, 4, 33)[i % 3]
        a = dice.standard_normal((rank, inputs)) / np.sqrt(inputs)
        b = dice.standard_normal((outputs, rank)) * 0.3 / np.sqrt(rank)
        out[target] = a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32)
    return out


def lora_file(tiny, pairs, kind: str = "F16") -> dict:
    out = {}
    for i, (target, (a, b)) in enumerate(pairs.items()):
        prefix = "diffusion_model." if i % 2 else ""
        down, up = (("lora_A", "lora_B"), ("lora_down", "lora_up"))[i // 2 % 2]
        out[f"{prefix}{target}.{down}.weight"] = tiny.stored(a, kind)
        out[f"{prefix}{target}.{up}.weight"] = tiny.stored(b, kind)
        if target in FACTORS:
            out[f"{prefix}{target}.alpha"] = tiny.stored(np.array(FACTORS[target]), "F32")
    return out


def folded(values, pairs, strength: float) -> dict[str, np.ndarray]:
    out = dict(values)
    for target, (a, b) in pairs.items():
        factor = FACTORS.get(target, len(a)) / len(a)
        change = strength * factor * (b.astype(np.float64) @ a.astype(np.float64))
        out[f"{target}.weight"] = (out[f"{target}.weight"] + change).astype(np.float32)
    return out


def picture(network: DiT, strength: float) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(1)
    c, z = (dice.standard_normal(shape).astype(np.float32) for shape in ((5, 2, 64), (16, 6, 4)))
    text = network.text(c, strength)
    return text, network.velocity(z, 0.7, text, strength)


def test_products_change_as_if_it_were_folded(tiny, values, files, device, tolerance, tmp_path):
    pairs = matrices(values)
    lora = Lora.read(tiny.write(tmp_path / "style.safetensors", lora_file(tiny, pairs)), files)
    assert lora.name == "style" and lora.changes_text and set(lora.pairs) == set(TARGETS)
    network, plain = DiT(files, device, lora), DiT(files, device)
    assert tiny.error(picture(network, 1.0)[1], picture(plain, 1.0)[1]) > 0.1
    for strength in (0.0, 0.6, 2.0):
        opened = tiny.opened(tmp_path / f"{strength}.safetensors", folded(values, pairs, strength))
        reference = DiT(SimpleNamespace(dit=opened, dit_shape=tiny.WHOLE_DIT), device)  # type: ignore[arg-type]
        for got, expected in zip(picture(network, strength), picture(reference, 1.0), strict=True):
            assert tiny.error(got, expected) < tolerance, strength
        reference.close()
    network.close()
    plain.close()


def test_another_strength_makes_no_other_pass_or_text(tiny, values, files, device, tmp_path):
    pairs = {target: pair for target, pair in matrices(values).items() if target.startswith("blocks.")}
    lora = Lora.read(tiny.write(tmp_path / "style.safetensors", lora_file(tiny, pairs)), files)
    assert not lora.changes_text
    network = DiT(files, device, lora)
    text, v = picture(network, 0.5)
    passes = dict(network._passes)
    other_text, other = picture(network, 1.5)
    assert other_text is text and network._passes == passes and tiny.error(other, v) > 0.01
    network.close()


def test_products_that_read_the_same_share_what_it_makes_of_it(tiny, values, files, tmp_path):
    from golem_krea2 import dit

    pairs = {f"blocks.0.attn.{name}": matrices(values)[f"blocks.0.attn.{name}"] for name in ("wq", "wv", "gate")}
    lora = Lora.read(tiny.write(tmp_path / "style.safetensors", lora_file(tiny, pairs)), files)
    read = [w.name for w in dit.step(tiny.WHOLE_DIT, files.dit, lora).weights if w.name.startswith("style")]
    assert [name.split(":")[1].split()[0] for name in read].count("A") == 1
    assert any(name.endswith("A of blocks.0.attn.wq, blocks.0.attn.wv, blocks.0.attn.gate") for name in read)


@pytest.mark.parametrize("kind", ["BF16", "F32"])
def test_other_types_are_read(tiny, values, files, tmp_path, kind):
    pairs = {"blocks.0.attn.wq": matrices(values)["blocks.0.attn.wq"]}
    read = Lora.read(tiny.write(tmp_path / "style.safetensors", lora_file(tiny, pairs, kind)), files)
    np.testing.assert_allclose(read.pairs["blocks.0.attn.wq"].b[:, :4], pairs["blocks.0.attn.wq"][1][:, :4], rtol=8e-3)


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("transformer.transformer_blocks.1.attn.to_out.0", "blocks.1.attn.wo"),
        ("transformer.transformer_blocks.0.ff.down", "blocks.0.mlp.down"),
        ("transformer.text_fusion.refiner_blocks.1.attn.to_gate", "txtfusion.refiner_blocks.1.attn.gate"),
        ("transformer.txt_in.linear_2", "txtmlp.3"),
        ("transformer.time_mod_proj", "tproj.1"),
        ("transformer.img_in", "first"),
        ("base_model.model.transformer.final_layer.linear", "last.linear"),
        ("base_model.model.blocks.0.attn.wk", "blocks.0.attn.wk"),
        ("base_model.model.transformer_blocks.0.attn.to_k", "blocks.0.attn.wk"),
        ("text_fusion.projector", "txtfusion.projector"),
        ("base_model.model.diffusion_model.tmlp.0", "tmlp.0"),
        ("lora_unet_blocks_1_attn_wq", "blocks.1.attn.wq"),
        ("lora_unet_txtfusion_layerwise_blocks_0_mlp_down", "txtfusion.layerwise_blocks.0.mlp.down"),
        ("lora_unet_transformer_blocks_0_attn_to_out_0", "blocks.0.attn.wo"),
        ("lora_unet_time_embed_linear_1", "tmlp.0"),
    ],
)
@pytest.mark.parametrize("down", ["A", "down"])
def test_names_of_other_programs_are_understood(tiny, values, files, tmp_path, key, target, down):
    outputs, inputs = values[f"{target}.weight"].shape
    up = {"A": "B", "down": "up"}[down]
    tensors = {
        f"{key}.lora_{down}.weight": np.ones((1, inputs), "f4"),
        f"{key}.lora_{up}.weight": np.ones((outputs, 1), "f4"),
        f"{key}.alpha": np.array(0.5, "f4"),
    }
    read = Lora.read(tiny.write(tmp_path / "style.safetensors", tensors), files)
    assert {name: pair.factor for name, pair in read.pairs.items()} == {target: 0.5}


A, B = np.ones((2, 128), "f4"), np.ones((128, 2), "f4")
WQ = "blocks.0.attn.wq"


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "there is no pair"),
        ({f"{WQ}.lora_A.weight": A}, f"'{WQ}.lora_A.weight' is there without the matrix B"),
        ({f"{WQ}.lora_B.weight": B}, f"'{WQ}.lora_B.weight' is there without the matrix A"),
        ({f"{WQ}.alpha": A[:1, 0]}, f"'{WQ}.alpha' is there without"),
        ({f"{WQ}.lora_A.weight": A, f"{WQ}.lora_up.weight": B, f"{WQ}.dora_scale": A}, f"'{WQ}.dora_scale' is not un"),
        ({"base_model.model.x.lora_magnitude_vector": A[0]}, "x.lora_magnitude_vector' is not understood"),
        ({"lora_unet_blocks_2_attn_wq.lora_down.weight": A}, "changes 'lora_unet_blocks_2_attn_wq', which is no"),
        ({"lora_te_layers_0_mlp.lora_down.weight": A}, "changes 'lora_te_layers_0_mlp', which is no product"),
        ({f"{WQ}.lora_A.weight": A, "lora_unet_blocks_0_attn_wq.lora_down.weight": A}, "gives the same as"),
        ({f"{WQ}.lora_A.weight": A, f"diffusion_model.{WQ}.lora_down.weight": A}, "gives the same as"),
        ({f"{WQ}.lora_A.weight": A, f"{WQ}.lora_B.weight": np.ones((128, 3), "f4")}, "has the rank 2, .* has 3"),
        ({"blocks.2.attn.wq.lora_A.weight": A}, "changes 'blocks.2.attn.wq', which is no product of"),
        ({f"transformer.{WQ}.lora_A.weight": A}, f"changes 'transformer.{WQ}', which is no product of"),
        ({"blocks.0.mod.lin.lora_A.weight": A}, "changes 'blocks.0.mod.lin', which is no product of"),
        ({f"{WQ}.lora_A.weight": A[:, :64], f"{WQ}.lora_B.weight": B}, r"\(2, 64\); \(rank, 128\) was expected"),
        ({f"{WQ}.lora_A.weight": A, f"{WQ}.lora_B.weight": B[:64]}, r"\(64, 2\); \(128, rank\) was expected"),
        ({f"{WQ}.lora_A.weight": A[0], f"{WQ}.lora_B.weight": B}, r"\(128,\); \(rank, 128\)"),
        ({f"{WQ}.lora_A.weight": A * np.inf, f"{WQ}.lora_B.weight": B}, "lora_A.weight' has a number that is not fin"),
        ({f"{WQ}.lora_A.weight": A, f"{WQ}.lora_B.weight": B * 7e4}, "lora_B.weight' has a number .* past 65504"),
        ({f"{WQ}.lora_A.weight": A, f"{WQ}.lora_B.weight": B, f"{WQ}.alpha": A[0]}, "alpha' has the shape"),
        ({f"{WQ}.lora_A.weight": ("I64", (2, 128), bytes(2048))}, "lora_A.weight' is of the type I64"),
        ({f"{WQ}.lora_A.weight": A[:0], f"{WQ}.lora_B.weight": B[:, :0]}, r"\(0, 128\)"),
    ],
)
def test_what_is_no_lora_is_refused_by_key(tiny, files, tmp_path, tensors, said):
    with pytest.raises(BadFile, match=said):
        Lora.read(tiny.write(tmp_path / "style.safetensors", tensors), files)


def test_a_file_that_is_cut_off_is_refused(tiny, values, files, tmp_path):
    path: Path = tiny.write(tmp_path / "style.safetensors", lora_file(tiny, matrices(values)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFile, match=r"style\.safetensors"):
        Lora.read(path, files)
    with pytest.raises(BadFile, match=r"nothing\.safetensors"):
        Lora.read(tmp_path / "nothing.safetensors", files)
