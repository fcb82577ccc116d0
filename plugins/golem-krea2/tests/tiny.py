"""Tiny networks of the package's own making: numbers out of a hash, and safetensors files of any types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from golem_krea2.shapes import DiTShape, EncoderShape, Heads, VaeShape
from golem_krea2.tensors import Tensors

from golem_core import TensorSpec

DIT = DiTShape(Heads(128, 4, 2, 32, 96), Heads(64, 2, 2, 32, 48), blocks=2, taps=5, channels=4, time=16)
ENCODER = EncoderShape(97, 48, 4, 2, 16, 80, 5)
VAE = VaeShape(8, 16)


def hashed(t: int, count: int) -> np.ndarray:
    """Element i of tensor t, float64 in [-1, 1)."""
    i = np.arange(count, dtype=np.uint64)
    u = (i * 2654435761 + t * 40503 + 12345) & 0xFFFFFFFF
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        u = ((u ^ (u >> np.uint64(shift))) * np.uint64(factor)) & 0xFFFFFFFF
    return (u ^ (u >> np.uint64(16))).astype(np.float64) / 2**31 - 1


def generated(specs: Iterable[TensorSpec], around: Callable[[str], float] = lambda name: 0.0) -> dict:
    """A float32 array for every spec, out of its place among the sorted names; `around`: what its numbers lie about."""
    out = {}
    for t, spec in enumerate(sorted(specs, key=lambda spec: spec.name)):
        size = int(np.prod(spec.shape))
        small = size == spec.shape[0] or "modulation.lin" in spec.name
        by = 0.3 if small else np.sqrt(3 * spec.shape[0] / size)
        out[spec.name] = (hashed(t, size) * by + around(spec.name)).astype(np.float32).reshape(spec.shape)
    return out


def unit(t: int, shape: tuple[int, ...]) -> np.ndarray:
    """An input of variance 1."""
    return (np.sqrt(3) * hashed(t, int(np.prod(shape)))).astype(np.float32).reshape(shape)


def dit() -> dict[str, np.ndarray]:
    return generated(DIT.tensors())


def vae() -> dict[str, np.ndarray]:
    unread = [TensorSpec(f"decoder.upsamples.{i}.time_conv.weight", (64, 32, 3, 1, 1)) for i in (3, 7)]
    unread += [TensorSpec(f"decoder.upsamples.{i}.time_conv.bias", (64,)) for i in (3, 7)]
    return generated([*VAE.tensors(), *unread], lambda name: float("gamma" in name))


def encoder() -> dict[str, np.ndarray]:
    whole = EncoderShape(97, 48, 4, 2, 16, 80, 6)
    specs = [TensorSpec(f"model.{spec.name}", spec.shape) for spec in whole.tensors()]
    return generated([*specs, TensorSpec("model.norm.weight", (48,))], lambda name: float("norm" in name))


# ---------------------------------------------------------------- files

Stored = np.ndarray | tuple[str, tuple[int, ...], bytes]
"""An array, written as F32, or type, shape and bytes."""


def stored(values: np.ndarray, kind: str) -> Stored:
    """`values` in a type, bf16 cut off."""
    values = np.asarray(values, np.float32)
    if kind == "BF16":
        return kind, values.shape, (values.reshape(-1).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return kind, values.shape, values.astype({"F16": np.float16, "F32": np.float32, "F64": np.float64}[kind]).tobytes()


def codes(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Random codes of e4m3 without those that are no number, uint8."""
    some = np.random.default_rng(seed).integers(0, 254, shape, np.uint8)
    return np.where(some >= 127, some + 1, some).astype(np.uint8)


def e4m3(code: np.ndarray) -> np.ndarray:
    """What codes mean, float32."""
    exponent, mantissa = (code >> 3 & 15).astype(np.int32), (code & 7).astype(np.float32)
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return np.where(code >> 7 == 1, -size, size).astype(np.float32)


def write(path: Path, tensors: dict[str, Stored], metadata: dict[str, str] | None = None) -> Path:
    header, data = {} if metadata is None else {"__metadata__": metadata}, bytearray()
    for name, each in tensors.items():
        kind, shape, raw = each if isinstance(each, tuple) else ("F32", each.shape, each.tobytes())
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def write_zeros(path: Path, specs: Iterable[TensorSpec]) -> Path:
    """A file of any size that takes no room on a disk: matrices in F8_E4M3 and the rest in BF16, all zeros."""
    header, end = {}, 0
    for spec in specs:
        kind, each = ("F8_E4M3", 1) if len(spec.shape) == 2 and spec.name.endswith(".weight") else ("BF16", 2)
        size = int(np.prod(spec.shape)) * each
        header[spec.name] = {"dtype": kind, "shape": list(spec.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + end)
    return path


def opened(path: Path, tensors: dict[str, Stored], prefixes: tuple[str, ...] = ("",), known: str = "") -> Tensors:
    return Tensors(write(path, tensors), prefixes, known)


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """Relative root mean square of the difference."""
    assert got.shape == expected.shape
    difference = got.astype(np.float64) - expected
    return float(np.sqrt(np.mean(difference**2) / np.mean(expected.astype(np.float64) ** 2)))


def quantized(values: np.ndarray) -> np.ndarray:
    """The codes of e4m3 nearest to values, uint8; of two that are as near, the smaller in size."""
    sizes = e4m3(np.arange(127, dtype=np.uint8)).astype(np.float64)
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(sizes, size), 1, 126)
    code = np.where(size - sizes[above - 1] <= sizes[above] - size, above - 1, above).astype(np.uint8)
    return code | (np.signbit(values).astype(np.uint8) << 7)


# ---------------------------------------------------------------- a whole directory

DIALECTS = ("plain", "scaled")
WHOLE_DIT = DiTShape(Heads(128, 4, 2, 32, 96), Heads(64, 2, 2, 32, 96), blocks=2, taps=2, channels=16, time=32)
TEXT = "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
TEXT += "objects and background: <system> user assistant a red fox in the snow, a (red:1.3) cat on a ((wooden)) table"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>")


def printable() -> list[str]:
    """GPT-2's characters for the 256 bytes."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in own else next(others)) for byte in range(256)]


@cache
def vocabulary(words: str = TEXT, merges: int = 180) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Every byte, and the most frequent pairs of a text's words joined, again and again."""
    letters = printable()
    parts = [[letters[byte] for byte in piece.encode()] for piece in words.replace(" ", "\n ").split("\n")]
    ids, found = {letter: i for i, letter in enumerate(sorted(letters))}, []
    while len(found) < merges:
        counts: dict[tuple[str, str], int] = {}
        for word in parts:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = max(sorted(counts), key=lambda pair: counts[pair])
        found.append(best)
        ids["".join(best)] = len(ids)
        for word in parts:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    return ids, found


def write_tokenizer(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    ids, merges = vocabulary()
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    added = {str(len(ids) + i): {"content": text, "special": True} for i, text in enumerate(SPECIAL)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return folder


@cache
def whole_encoder() -> EncoderShape:
    return EncoderShape(len(vocabulary()[0]) + len(SPECIAL), 64, 4, 2, 16, 96, 5)


def random(specs: Iterable[TensorSpec], seed: int, around: Callable[[str], float], size: float = 1.0) -> dict:
    """Float32 numbers that keep the size of what they multiply, out of whole numbers, which numpy draws alike."""
    dice, out = np.random.default_rng(seed), {}
    for spec in specs:
        n = int(np.prod(spec.shape))
        by = 0.3 if n == spec.shape[0] or "modulation" in spec.name else size * np.sqrt(3 * spec.shape[0] / n)
        whole = dice.integers(-(1 << 20), 1 << 20, spec.shape)
        out[spec.name] = (around(spec.name) + whole / (1 << 20) * by).astype(np.float32)
    return out


File = tuple[dict[str, Stored], dict[str, np.ndarray]]
"""Tensors as a file has them, and the numbers that they mean."""


def dit_file(dialect: str) -> File:
    file, meant = _dit_file(dialect)
    return dict(file), dict(meant)


def encoder_file() -> File:
    file, meant = _encoder_file()
    return dict(file), dict(meant)


def vae_file() -> File:
    file, meant = _vae_file()
    return dict(file), dict(meant)


@cache
def _dit_file(dialect: str) -> File:
    values = random(WHOLE_DIT.tensors(), 1 + DIALECTS.index(dialect), lambda name: 0.0)
    file, meant, prefix = {}, {}, "" if dialect == "plain" else "model.diffusion_model."
    for name, x in values.items():
        coded = x.ndim == 2 and name.endswith(".weight") and (dialect == "plain" or ".attn." in name or ".mlp." in name)
        if not coded:
            file[prefix + name] = stored(x, "BF16")
            meant[name] = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
            continue
        scale = np.float32(1 if dialect == "plain" else np.abs(x).max() / 448)
        code = quantized(x / scale)
        file[prefix + name] = "F8_E4M3", x.shape, code.tobytes()
        meant[name] = e4m3(code) * scale
        if dialect == "scaled":
            shape = () if len(file) % 3 else (1,)
            file[prefix + name.removesuffix("weight") + "weight_scale"] = "F32", shape, scale.tobytes()
    if dialect == "plain":
        for name in ("last.down.weight", "last.up.weight"):
            file[name] = "F8_E4M3", (128, 128), codes(9, (128, 128)).tobytes()
    return file, meant


@cache
def _encoder_file() -> File:
    file, meant = {}, {}
    for name, x in random(whole_encoder().tensors(), 3, lambda name: float("norm" in name)).items():
        if not name.endswith("_proj.weight"):
            file[f"model.{name}"] = stored(x, "BF16")
            meant[name] = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
            continue
        scale = np.float32(np.abs(x).max() / 448)
        code = quantized(x / scale)
        file[f"model.{name}"] = "F8_E4M3", x.shape, code.tobytes()
        file[f"model.{name.removesuffix('weight')}weight_scale"] = "F32", (), scale.tobytes()
        file[f"model.{name.removesuffix('weight')}input_scale"] = "F32", (), np.float32(1).tobytes()
        meant[name] = e4m3(code) * scale
    file |= {"model.norm.weight": stored(np.ones(64), "BF16"), "visual.blocks.0.attn.qkv.weight": np.ones((2, 2), "f4")}
    return file | {"scaled_fp8": ("F8_E4M3", (2,), b"\0\0")}, meant


@cache
def _vae_file() -> File:
    values = random(VAE.tensors(), 4, lambda name: float("gamma" in name), size=1.3)
    meant = {name: (x.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, x in values.items()}
    file = {name: stored(x, "BF16") for name, x in values.items()}
    return file | {"encoder.conv1.bias": np.ones(3, "f4"), "conv1.bias": np.ones(3, "f4")}, meant


def write_directory(root: Path, dialect: str = "plain") -> Path:
    """ComfyUI's directory with tiny networks that go together: a picture of 64 x 64 takes a moment."""
    write(root / "models/unet/krea2_turbo_fp8.safetensors", dit_file(dialect)[0], {"_quantization_metadata": "{}"})
    write(root / "models/text_encoders/qwen3vl_4b_fp8_scaled.safetensors", encoder_file()[0])
    write(root / "models/vae/qwen_image_vae.safetensors", vae_file()[0])
    write_tokenizer(root / "comfy/text_encoders/qwen25_tokenizer")
    (root / "models/loras").mkdir(parents=True, exist_ok=True)
    return root
