"""Writes a directory as Kyutai publishes its speech to text, of the 1B model's shape, with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

CONFIG = {
    "card": 2048, "n_q": 32, "dep_q": 0, "delays": [0] * 33, "dim": 2048, "text_card": 8000,
    "existing_text_padding_id": 3, "num_heads": 16, "num_layers": 16, "hidden_scale": 4.125, "causal": True,
    "layer_scale": None, "context": 750, "max_period": 100000.0, "gating": "silu", "norm": "rms_norm_f32",
    "positional_embedding": "rope", "conditioners": {}, "cross_attention": False, "model_type": "stt",
    "mimi_name": "mimi.safetensors", "tokenizer_name": "tokenizer.model",
    "stt_config": {"audio_delay_seconds": 0.5, "audio_silence_prefix_seconds": 0.0},
}  # fmt: skip
FFN = 5632
FILTERS, RATIOS, LATENT, CODEC_LAYERS, CODEC_FFN, CODE_WIDTH = 64, (4, 5, 6, 8), 512, 8, 2048, 256
NOISE = 1 << 20
"""Different numbers; a larger tensor repeats them."""

Tensors = Iterator[tuple[str, tuple[int, ...], float | None]]
"""Name, shape, and the value of every entry, or None for random ones."""


def trunk() -> Tensors:
    d = CONFIG["dim"]
    for q in range(CONFIG["n_q"]):
        yield f"emb.{q}.weight", (CONFIG["card"] + 1, d), None
    yield "text_emb.weight", (CONFIG["text_card"] + 1, d), None
    for i in range(CONFIG["num_layers"]):
        prefix = f"transformer.layers.{i}"
        yield f"{prefix}.norm1.alpha", (1, 1, d), 1.0
        yield f"{prefix}.norm2.alpha", (1, 1, d), 1.0
        yield f"{prefix}.self_attn.in_proj_weight", (3 * d, d), None
        yield f"{prefix}.self_attn.out_proj.weight", (d, d), None
        yield f"{prefix}.gating.linear_in.weight", (2 * FFN, d), None
        yield f"{prefix}.gating.linear_out.weight", (d, FFN), None
    yield "out_norm.alpha", (1, 1, d), 1.0
    yield "text_linear.weight", (CONFIG["text_card"], d), None


def codec() -> Tensors:
    def conv(name: str, out: int, channels: int, taps: int) -> Tensors:
        yield f"encoder.model.{name}.conv.conv.weight", (out, channels, taps), None
        yield f"encoder.model.{name}.conv.conv.bias", (out,), 0.01

    yield from conv("0", FILTERS, 1, 7)
    at, channels = 1, FILTERS
    for ratio in RATIOS:
        yield from conv(f"{at}.block.1", channels // 2, channels, 3)
        yield from conv(f"{at}.block.3", channels, channels // 2, 1)
        yield from conv(f"{at + 2}", 2 * channels, channels, 2 * ratio)
        at, channels = at + 3, 2 * channels
    yield from conv(f"{at + 1}", LATENT, channels, 3)
    yield "downsample.conv.conv.conv.weight", (LATENT, LATENT, 4), None
    for i in range(CODEC_LAYERS):
        prefix = f"encoder_transformer.transformer.layers.{i}"
        for norm in ("norm1", "norm2"):
            yield f"{prefix}.{norm}.weight", (LATENT,), 1.0
            yield f"{prefix}.{norm}.bias", (LATENT,), 0.0
        yield f"{prefix}.self_attn.in_proj_weight", (3 * LATENT, LATENT), None
        yield f"{prefix}.self_attn.out_proj.weight", (LATENT, LATENT), None
        yield f"{prefix}.linear1.weight", (CODEC_FFN, LATENT), None
        yield f"{prefix}.linear2.weight", (LATENT, CODEC_FFN), None
        yield f"{prefix}.layer_scale_1.scale", (LATENT,), 0.1
        yield f"{prefix}.layer_scale_2.scale", (LATENT,), 0.1
    for name, count in (("rvq_first", 1), ("rvq_rest", CONFIG["n_q"] - 1)):
        yield f"quantizer.{name}.input_proj.weight", (CODE_WIDTH, LATENT, 1), None
        for i in range(count):
            book = f"quantizer.{name}.vq.layers.{i}._codebook"
            yield f"{book}.embedding_sum", (CONFIG["card"], CODE_WIDTH), None
            yield f"{book}.cluster_usage", (CONFIG["card"],), 1.0
            yield f"{book}._initialized", (1,), 1.0


def write(folder: Path) -> None:
    """About 2.6 GB, in half a minute."""
    folder.mkdir(parents=True)
    dice = np.random.default_rng(1)
    noise = dice.standard_normal(NOISE, np.float32)
    with (folder / "model.safetensors").open("wb") as file:
        _write(file, list(trunk()), noise, "BF16")
    with (folder / "mimi.safetensors").open("wb") as file:
        _write(file, list(codec()), noise, "F32")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    pieces = ["<unk>", "<s>", "</s>", "<pad>", *(f"▁word{i}" for i in range(4, CONFIG["text_card"]))]
    (folder / "tokenizer.model").write_bytes(b"".join(_piece(text, 3 if i < 4 else 1) for i, text in enumerate(pieces)))


def _write(file: BinaryIO, tensors: list[tuple[str, tuple[int, ...], float | None]], noise, dtype: str) -> None:
    header, at, size = {}, 0, {"F32": 4, "BF16": 2}[dtype]
    for name, shape, _ in tensors:
        end = at + size * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    file.write(len(text).to_bytes(8, "little") + text)
    for _, shape, fixed in tensors:
        left = int(np.prod(shape))
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        values = noise * np.float32(scale) if fixed is None else np.full(min(left, NOISE), fixed, np.float32)
        raw = values if dtype == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16)
        while left:
            count = min(left, len(raw))
            file.write(raw[:count].tobytes())
            left -= count


def _piece(text: str, kind: int) -> bytes:
    """One entry of a sentencepiece model: the piece, a score of 0 and its kind."""
    raw = text.encode()
    inner = b"\x0a" + bytes([len(raw)]) + raw + b"\x15\0\0\0\0\x18" + bytes([kind])
    return b"\x0a" + bytes([len(inner)]) + inner
