"""A tiny checkpoint with the tensors of a real one, written out of a seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

RATIOS = (2, 2, 3, 4)
FILTERS, LATENT, CODEC_LAYERS, CODEC_FFN = 4, 128, 2, 64
CODE_WIDTH, CARD, CODEBOOKS = 16, 64, 8
WIDTH, HEADS, LAYERS, FFN, TEXT_CARD, CONTEXT = 64, 4, 3, 192, 40, 12
FRAME = 96
RATE = 1200

PIECES = [
    ("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<pad>", 3), ("▁hello", 1), ("▁wor", 1), ("ld", 1), ("▁", 1), (",", 1),
    ("<0xC3>", 6), ("<0xA9>", 6), ("<0xE2>", 6), ("<0x82>", 6), ("<0xAC>", 6), ("é", 1), (".", 1),
    *((f"▁{a}{b}", 1) for a in "bdfl" for b in "aeiou"), *((c, 1) for c in "rstn"),
]  # fmt: skip


class Dice:
    """Uniform numbers from whole ones, which every version of numpy draws alike."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape: int, scale: float = 1.0, around: float = 0.0) -> np.ndarray:
        whole = self.rng.integers(-(1 << 20), 1 << 20, shape)
        return (around + whole / (1 << 20) * scale).astype(np.float32)

    def matrix(self, *shape: int, gain: float = 1.0) -> np.ndarray:
        return self(*shape, scale=gain * float(np.sqrt(3 / np.prod(shape[1:]))))


def mimi_tensors(seed: int = 1) -> dict[str, np.ndarray]:
    dice, t = Dice(seed), {}

    def conv(name: str, out: int, channels: int, taps: int, bias: bool = True) -> None:
        t[f"{name}.weight"] = dice.matrix(out, channels, taps, gain=1.5)
        if bias:
            t[f"{name}.bias"] = dice(out, scale=0.1)

    at, channels = 1, FILTERS
    conv("encoder.model.0.conv.conv", FILTERS, 1, 7)
    for ratio in RATIOS:
        conv(f"encoder.model.{at}.block.1.conv.conv", channels // 2, channels, 3)
        conv(f"encoder.model.{at}.block.3.conv.conv", channels, channels // 2, 1)
        conv(f"encoder.model.{at + 2}.conv.conv", 2 * channels, channels, 2 * ratio)
        at, channels = at + 3, 2 * channels
    conv(f"encoder.model.{at + 1}.conv.conv", LATENT, channels, 3)
    conv("downsample.conv.conv.conv", LATENT, LATENT, 4, bias=False)
    for i in range(CODEC_LAYERS):
        prefix = f"encoder_transformer.transformer.layers.{i}"
        for norm in ("norm1", "norm2"):
            t[f"{prefix}.{norm}.weight"] = dice(LATENT, scale=0.3, around=1.0)
            t[f"{prefix}.{norm}.bias"] = dice(LATENT, scale=0.2)
        t[f"{prefix}.self_attn.in_proj_weight"] = dice.matrix(3 * LATENT, LATENT, gain=1.5)
        t[f"{prefix}.self_attn.out_proj.weight"] = dice.matrix(LATENT, LATENT)
        t[f"{prefix}.linear1.weight"] = dice.matrix(CODEC_FFN, LATENT)
        t[f"{prefix}.linear2.weight"] = dice.matrix(LATENT, CODEC_FFN)
        for k in (1, 2):
            t[f"{prefix}.layer_scale_{k}.scale"] = dice(LATENT, scale=0.3, around=0.7)
    for name, count in (("rvq_first", 1), ("rvq_rest", CODEBOOKS - 1)):
        t[f"quantizer.{name}.input_proj.weight"] = dice.matrix(CODE_WIDTH, LATENT, 1, gain=0.5)
        for i in range(count):
            book = f"quantizer.{name}.vq.layers.{i}._codebook"
            usage = dice(CARD, scale=2.0, around=4.0)
            usage[7] = 0.0  # a row that was never used: its sum counts a hundred thousand times
            t[f"{book}.cluster_usage"] = usage
            t[f"{book}.embedding_sum"] = dice(CARD, CODE_WIDTH) * usage[:, None]
            t[f"{book}._initialized"] = np.ones(1, np.float32)
    return t


def trunk_tensors(seed: int = 2) -> dict[str, np.ndarray]:
    """Numbers that BF16 holds."""
    dice, t = Dice(seed), {}
    for q in range(CODEBOOKS):
        t[f"emb.{q}.weight"] = dice(CARD + 1, WIDTH, scale=0.5)
    t["text_emb.weight"] = dice(TEXT_CARD + 1, WIDTH)
    for i in range(LAYERS):
        prefix = f"transformer.layers.{i}"
        for norm in ("norm1", "norm2"):
            t[f"{prefix}.{norm}.alpha"] = dice(1, 1, WIDTH, scale=0.3, around=1.0)
        t[f"{prefix}.self_attn.in_proj_weight"] = dice.matrix(3 * WIDTH, WIDTH, gain=1.5)
        t[f"{prefix}.self_attn.out_proj.weight"] = dice.matrix(WIDTH, WIDTH)
        t[f"{prefix}.gating.linear_in.weight"] = dice.matrix(2 * FFN, WIDTH)
        t[f"{prefix}.gating.linear_out.weight"] = dice.matrix(WIDTH, FFN)
    t["out_norm.alpha"] = dice(1, 1, WIDTH, scale=0.3, around=1.0)
    head = t["text_linear.weight"] = dice.matrix(TEXT_CARD, WIDTH, gain=4.0)
    head[[0, 3]] *= 2.5  # so that words begin and end
    return {name: (x.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, x in t.items()}


CONFIG = {
    "card": CARD, "n_q": CODEBOOKS, "dep_q": 0, "delays": [0] * (CODEBOOKS + 1), "dim": WIDTH, "num_layers": LAYERS,
    "num_heads": HEADS, "text_card": TEXT_CARD, "existing_text_padding_id": 3, "hidden_scale": 4.5, "context": CONTEXT,
    "max_period": 100000.0, "gating": "silu", "norm": "rms_norm_f32", "positional_embedding": "rope", "causal": True,
    "layer_scale": None, "conditioners": {}, "cross_attention": False, "model_type": "stt",
    "mimi_name": "mimi-tiny.safetensors", "tokenizer_name": "tokenizer_tiny.model",
    "stt_config": {"audio_delay_seconds": 0.5, "audio_silence_prefix_seconds": 0.0},
}  # fmt: skip


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> None:
    header, data = {}, bytearray()
    for name, x in tensors.items():
        raw = x.tobytes() if dtype == "F32" else (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def sentencepiece_model(pieces: list[tuple[str, int]]) -> bytes:
    out = b""
    for text, kind in pieces:
        raw = text.encode()
        inner = b"\x0a" + varint(len(raw)) + raw + b"\x15\0\0\0\0" + b"\x18" + varint(kind)
        out += b"\x0a" + varint(len(inner)) + inner
    return out


def write_checkpoint(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_safetensors(directory / "model.safetensors", trunk_tensors(), "BF16")
    write_safetensors(directory / "mimi-tiny.safetensors", mimi_tensors())
    (directory / "tokenizer_tiny.model").write_bytes(sentencepiece_model(PIECES))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


def sound(frames: int, seed: int = 3) -> np.ndarray:
    """Noise whose loudness comes and goes, float32 (frames * FRAME,)."""
    n = frames * FRAME
    return Dice(seed)(n) * np.sin(np.arange(n) / 400).astype(np.float32)
