"""A directory is opened under its own names or others, and what is missing, misshapen or no number is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golem_krea2.checkpoint import Files
from golem_krea2.dit import DiT

from golem_core import BadFile, GolemError, Unsupported

DIT = "models/unet/krea2_turbo_fp8.safetensors"
ENCODER = "models/text_encoders/qwen3vl_4b_fp8_scaled.safetensors"
VAE = "models/vae/qwen_image_vae.safetensors"
TOKENIZER = "comfy/text_encoders/qwen25_tokenizer"
WK = "blocks.1.attn.wk.weight"


@pytest.fixture(scope="module")
def written(tiny, tmp_path_factory):
    return {dialect: tiny.write_directory(tmp_path_factory.mktemp(dialect), dialect) for dialect in tiny.DIALECTS}


@pytest.mark.parametrize("dialect", ["plain", "scaled"])
def test_codes_and_scales_are_read_to_the_last_bit(tiny, written, dialect):
    files, meant = Files.open(written[dialect]), tiny.dit_file(dialect)[1]
    assert files.name == "krea2_turbo_fp8" and files.loras == written[dialect] / "models/loras"
    assert {spec.name for spec in files.dit_shape.tensors()} == set(meant)
    for name, values in meant.items():
        assert np.array_equal(files.dit[name].dequantize(), values), name
    for name, values in tiny.encoder_file()[1].items():
        assert np.array_equal(files.encoder[name].dequantize(), values), name
    files.close()


def test_all_codes_of_e4m3(tiny, tmp_path):
    codes = np.array([code for code in range(256) if code & 127 != 127], np.uint8)
    opened = tiny.opened(tmp_path / "x.safetensors", {"x.weight": ("F8_E4M3", (2, 127), codes.tobytes())})
    assert np.array_equal(opened["x.weight"].dequantize().reshape(-1), tiny.e4m3(codes))
    assert tiny.e4m3(codes).max() == 448 and tiny.e4m3(np.array([1], np.uint8))[0] == 2.0**-9


def test_every_path_can_be_another(written, tmp_path):
    moved = {}
    root = written["plain"]
    for option, path in {"dit": DIT, "encoder": ENCODER, "vae": VAE}.items():
        moved[option] = tmp_path / f"{option}-v2.safetensors"
        moved[option].write_bytes((root / path).read_bytes())
    with pytest.raises(BadFile, match="qwen25_tokenizer"):
        Files.open(tmp_path, **moved)
    files = Files.open(tmp_path, **moved, tokenizer=root / TOKENIZER, loras=tmp_path / "mine")
    assert files.name == "dit-v2" and files.loras == tmp_path / "mine"
    files.close()


@pytest.mark.parametrize("prefix", ["", "diffusion_model.", "model.diffusion_model."])
def test_names_may_have_a_prefix(tiny, written, tmp_path, prefix):
    tensors = {prefix + name: each for name, each in tiny.dit_file("plain")[0].items()}
    files = Files.open(written["plain"], dit=tiny.write(tmp_path / "dit.safetensors", tensors))
    assert files.dit_shape == tiny.WHOLE_DIT
    files.close()


@pytest.mark.parametrize("kind", ["F16", "F32"])
def test_every_tensor_may_be_of_another_float_type(tiny, written, tmp_path, kind):
    tensors = {name: tiny.stored(values, kind) for name, values in tiny.dit_file("plain")[1].items()}
    files = Files.open(written["plain"], dit=tiny.write(tmp_path / "dit.safetensors", tensors))
    np.testing.assert_allclose(files.dit[WK].dequantize(), tiny.dit_file("plain")[1][WK], rtol=1e-3, atol=1e-4)
    files.close()


@pytest.mark.parametrize("path", [DIT, ENCODER, VAE])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "text"])
def test_a_file_that_is_missing_or_damaged_is_named(tiny, tmp_path, path, damage):
    file = tiny.write_directory(tmp_path) / path
    data = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "text": b"not a model at all"}[damage])
    with pytest.raises(BadFile, match=file.name):
        Files.open(tmp_path)


def refused(tiny, written, tmp_path, change, network="dit", dialect="plain") -> str:
    """What is said of a file whose tensors were changed."""
    tensors = {"dit": lambda: tiny.dit_file(dialect)[0], "encoder": lambda: tiny.encoder_file()[0]}
    changed = tensors.get(network, lambda: tiny.vae_file()[0])()
    change(changed)
    with pytest.raises(GolemError) as told:
        Files.open(written[dialect], **{network: tiny.write(tmp_path / "changed.safetensors", changed)})
    assert "changed.safetensors" in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("name", ["first.weight", "last.modulation.lin", "txtfusion.projector.weight", WK])
def test_a_tensor_that_is_missing_is_named(tiny, written, tmp_path, name):
    assert f"{name!r} is missing" in refused(tiny, written, tmp_path, lambda t: t.pop(name))


def test_a_block_that_is_missing_is_named(tiny, written, tmp_path):
    def change(tensors):
        for name in [name for name in tensors if name.startswith("blocks.0.")]:
            tensors[name.replace("blocks.0.", "blocks.999999999.")] = tensors.pop(name)

    assert "'blocks.0.attn.wq.weight' is missing" in refused(tiny, written, tmp_path, change)


def test_a_tensor_of_another_shape_is_named(tiny, written, tmp_path):
    said = refused(tiny, written, tmp_path, lambda t: t.update({WK: np.ones((32, 128), "f4")}))
    assert f"{WK} has the shape (32, 128)" in said
    said = refused(tiny, written, tmp_path, lambda t: t.update({"first.weight": np.ones(64, "f4")}))
    assert "first.weight has the shape (64,); 2 axes were expected" in said


@pytest.mark.parametrize("kind", ["I8", "F8_E5M2", "BOOL"])
def test_a_tensor_of_another_type_is_named(tiny, written, tmp_path, kind):
    said = refused(tiny, written, tmp_path, lambda t: t.update({WK: (kind, (64, 128), bytes(64 * 128))}))
    assert f"{WK} is of the type {kind}" in said


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (("F32", (2,), bytes(8)), "is F32 of the shape (2,); one number was expected"),
        (("F32", (), np.float32(np.nan).tobytes()), "is nan; a finite number above 0"),
        (("F32", (), np.float32(0).tobytes()), "is 0.0; a finite number above 0"),
        (("I32", (), bytes(4)), "is I32"),
    ],
)
def test_a_scale_that_is_none_is_named(tiny, written, tmp_path, scale, said):
    name = "model.diffusion_model.blocks.1.attn.wk.weight_scale"
    assert f"{name} " + said in refused(tiny, written, tmp_path, lambda t: t.update({name: scale}), dialect="scaled")


def test_a_scale_of_numbers_that_take_none_is_refused(tiny, written, tmp_path):
    change = lambda t: t.update({"first.weight_scale": np.ones(1, "f4"), "first.weight": np.ones((128, 64), "f4")})
    assert "belongs to a tensor of F32" in refused(tiny, written, tmp_path, change)


def test_networks_that_do_not_go_together_are_named(tiny, written, tmp_path):
    said = refused(tiny, written, tmp_path, lambda t: t.pop("model.layers.4.mlp.up_proj.weight"), network="encoder")
    assert "'model.layers.4.mlp.up_proj.weight' is missing" in said
    table = ("BF16", (9, 64), bytes(9 * 64 * 2))
    said = refused(tiny, written, tmp_path, lambda t: t.update({"model.embed_tokens.weight": table}), network="encoder")
    assert "the encoder knows 9 tokens, and the tokenizer has" in said
    gamma = ("F32", (8,), bytes(32))
    said = refused(tiny, written, tmp_path, lambda t: t.update({"decoder.head.0.gamma": gamma}), network="vae")
    assert "decoder.head.0.gamma has the shape (8,)" in said


def test_data_that_overlaps_is_refused(tiny, written, tmp_path):
    path: Path = tiny.write(tmp_path / "dit.safetensors", tiny.dit_file("plain")[0])
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    first, second = header["first.bias"]["data_offsets"], header[WK]["data_offsets"]
    header[WK]["data_offsets"] = [first[0], first[0] + second[1] - second[0]]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    with pytest.raises(BadFile, match=r"dit\.safetensors: tensor .* overlaps|leaves \d+ bytes unused"):
        Files.open(written["plain"], dit=path)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("device", ["cpu", "vulkan"], indirect=True)
def test_a_code_that_is_no_number_is_refused_when_a_device_takes_it(tiny, written, tmp_path, device, code):
    tensors = tiny.dit_file("plain")[0]
    kind, shape, raw = tensors[WK]
    tensors[WK] = kind, shape, raw[:777] + bytes([code]) + raw[778:]
    files = Files.open(written["plain"], dit=tiny.write(tmp_path / "dit.safetensors", tensors))
    with pytest.raises((BadFile, Unsupported), match=WK):
        DiT(files, device)
    files.close()
