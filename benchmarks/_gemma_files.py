"""Files of Gemma 4 E2B's shape with random weights, for measuring what its projector takes: towers, and a small model.

The vision tower and the audio tower have their real dimensions and types, matrices in bfloat16; the language model
has the real width, and as few blocks, tokens and features as there can be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 1536
"""Of the language model's rows."""
VISION = {"width": 768, "blocks": 16, "heads": 12, "ffn": 3072, "places": 10_240, "patch": 16}
AUDIO = {"width": 1024, "blocks": 12, "heads": 8, "ffn": 4096, "channels": (128, 32), "out": 1536}
MARKS = (
    "<|turn>", "<turn|>", "<|think|>", "<|tool>", "<tool|>", "<|image>", "<image|>", "<|audio>", "<audio|>",
    "<|image|>", "<|audio|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", '<|"|>',
)  # fmt: skip
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def vocabulary() -> dict[str, Any]:
    """The tokenizer's keys: marks, bytes and printable characters, and one merge, since there has to be one."""
    tokens = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)]
    tokens += [(mark, CONTROL) for mark in MARKS]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [(text, NORMAL) for text in ("\n", "▁", *map(chr, range(33, 127)), "th")]
    texts, kinds = zip(*tokens, strict=True)
    keys = {"model": "gemma4", "tokens": texts, "token_type": kinds, "scores": [0.0] * len(texts), "merges": ["t h"]}
    keys |= {"bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3, "padding_token_id": 0}
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()} | {"tokenizer.ggml.add_space_prefix": False}


MODEL = {
    "block_count": 2, "context_length": 8192, "embedding_length": WIDTH, "feed_forward_length": 256,
    "attention.head_count": 1, "attention.head_count_kv": 1, "attention.key_length": 512,
    "attention.value_length": 512, "attention.key_length_swa": 256, "attention.value_length_swa": 256,
    "attention.sliding_window": 512, "attention.sliding_window_pattern": [True, False],
    "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
    "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4, "rope.dimension_count": 512, "rope.dimension_count_swa": 256,
    "final_logit_softcapping": 30.0,
}  # fmt: skip
PROJECTOR = {
    "general.type": "mmproj", "clip.has_vision_encoder": True, "clip.has_audio_encoder": True,
    "clip.vision.projector_type": "gemma4v", "clip.vision.patch_size": VISION["patch"], "clip.vision.image_size": 224,
    "clip.vision.embedding_length": VISION["width"], "clip.vision.feed_forward_length": VISION["ffn"],
    "clip.vision.block_count": VISION["blocks"], "clip.vision.attention.head_count": VISION["heads"],
    "clip.vision.attention.layer_norm_epsilon": 1e-6, "clip.vision.projection_dim": WIDTH,
    "clip.vision.projector.scale_factor": 3, "clip.vision.image_mean": [0.0, 0.0, 0.0],
    "clip.vision.image_std": [1.0, 1.0, 1.0],
    "clip.audio.projector_type": "gemma4a", "clip.audio.embedding_length": AUDIO["width"],
    "clip.audio.feed_forward_length": AUDIO["ffn"], "clip.audio.block_count": AUDIO["blocks"],
    "clip.audio.attention.head_count": AUDIO["heads"], "clip.audio.attention.layer_norm_epsilon": 1e-5,
    "clip.audio.num_mel_bins": 128, "clip.audio.projection_dim": WIDTH,
}  # fmt: skip

Shapes = dict[str, tuple[int, ...]]


def model_shapes() -> Shapes:
    tokens = len(vocabulary()["tokenizer.ggml.tokens"])
    found: Shapes = {"token_embd": (tokens, WIDTH), "output_norm": (WIDTH,), "rope_freqs": (256,)}
    for block, dim in enumerate((256, 512)):
        own: Shapes = {
            "attn_q": (dim, WIDTH), "attn_k": (dim, WIDTH), "attn_v": (dim, WIDTH), "attn_output": (WIDTH, dim),
            "ffn_gate": (256, WIDTH), "ffn_up": (256, WIDTH), "ffn_down": (WIDTH, 256),
            "attn_q_norm": (dim,), "attn_k_norm": (dim,),
        }  # fmt: skip
        norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        found |= {f"blk.{block}.{name}": shape for name, shape in (own | {name: (WIDTH,) for name in norms}).items()}
    return found


def projector_shapes() -> Shapes:
    d, patch = VISION["width"], VISION["patch"]
    found: Shapes = {
        "v.patch_embd": (d, 3, patch, patch), "v.position_embd": (2, VISION["places"], d),
        "mm.input_projection": (WIDTH, d),
    }  # fmt: skip
    for block in range(VISION["blocks"]):
        own: Shapes = {name: (d, d) for name in ("attn_q", "attn_k", "attn_v", "attn_out")}
        own |= {name: (d,) for name in ("ln1", "ln2", "attn_post_norm", "ffn_post_norm")}
        own |= {name: (d // VISION["heads"],) for name in ("attn_q_norm", "attn_k_norm")}
        own |= {"ffn_gate": (VISION["ffn"], d), "ffn_up": (VISION["ffn"], d), "ffn_down": (d, VISION["ffn"])}
        found |= {f"v.blk.{block}.{name}": shape for name, shape in own.items()}
    a, (first, second), ffn = AUDIO["width"], AUDIO["channels"], AUDIO["ffn"]
    found |= {
        "a.conv1d.0": (first, 1, 3, 3), "a.conv1d.1": (second, first, 3, 3), "a.conv1d.0.norm": (first,),
        "a.conv1d.1.norm": (second,), "a.input_projection": (a, 32 * second), "a.pre_encode.out": (AUDIO["out"], a),
        "mm.a.input_projection": (WIDTH, AUDIO["out"]),
    }  # fmt: skip
    norms = ("ffn_norm", "ffn_post_norm", "ffn_norm_1", "ffn_post_norm_1", "attn_pre_norm", "attn_post_norm")
    for block in range(AUDIO["blocks"]):
        own = {name: (a, a) for name in ("attn_q", "attn_k", "attn_v", "attn_out", "attn_k_rel", "conv_pw2")}
        own |= {name: (a,) for name in (*norms, "conv_norm", "norm_conv", "ln2")}
        own |= {"ffn_up": (ffn, a), "ffn_up_1": (ffn, a), "ffn_down": (a, ffn), "ffn_down_1": (a, ffn)}
        own |= {"per_dim_scale": (a // AUDIO["heads"],), "conv_pw1": (2 * a, a), "conv_dw": (a, 5)}
        found |= {f"a.blk.{block}.{name}": shape for name, shape in own.items()}
    return found


SINGLE = ("v.patch_embd", "v.position_embd", "a.conv1d", "a.input_projection", "conv_dw")
"""What real files hold in float32, besides vectors."""


def write(path: Path, architecture: str, facts: dict[str, Any], shapes: Shapes, kind: str) -> None:
    """A file whose matrices are stored as `kind`, random, such that products keep the size of their inputs."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in facts.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)
    source, quantization = np.random.default_rng(1), gguf.GGMLQuantizationType[kind]
    for name, shape in shapes.items():
        array = np.ones(shape, np.float32)
        if len(shape) > 1:
            array = source.standard_normal(shape, np.float32) * np.float32(np.prod(shape[1:]) ** -0.5)
        if len(shape) == 1 or any(part in name for part in SINGLE):
            writer.add_tensor(f"{name}.weight", array)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quantize(array, quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(path: Path) -> None:
    facts = {f"gemma4.{key}": value for key, value in MODEL.items()} | vocabulary()
    write(path, "gemma4", facts, model_shapes(), "F16")


def write_projector(path: Path, kind: str) -> None:
    write(path, "clip", PROJECTOR, projector_shapes(), kind)
