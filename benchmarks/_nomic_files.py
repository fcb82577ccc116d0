"""Files of nomic-embed-text-v2-moe's shape with random weights, for measuring speed.

Blocks, widths and experts are the real ones; the vocabulary is as large, and its words are made up.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

BLOCKS, WIDTH, HEADS, FFN, EXPERTS, USED, VOCABULARY = 12, 768, 12, 3072, 8, 2, 250_048
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words() -> list[str]:
    """Words of the vocabulary, each of which is one token with the blank before it."""
    return ["".join(letters) for letters in itertools.product(LETTERS, repeat=3)]


def vocabulary() -> dict[str, Any]:
    """The tokenizer's keys."""
    pieces = ["▁", *LETTERS, ",", ".", *("▁" + word for word in words())]
    texts = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    fillers = [f"[PAD{i}]" for i in range(len(texts), VOCABULARY)]
    kinds = [CONTROL] * 3 + [UNKNOWN] + [NORMAL] * len(pieces) + [UNUSED] * len(fillers)
    scores = [0.0] * 4 + [-8.0] * len(pieces) + [-10_000.0] * len(fillers)
    keys = {"model": "t5", "pre": "default", "tokens": texts + fillers, "token_type": kinds, "scores": scores}
    keys |= {"bos_token_id": 0, "eos_token_id": 2, "unknown_token_id": 3, "padding_token_id": 1}
    keys |= {"token_type_count": 1, "add_bos_token": True, "add_eos_token": True}
    return keys | {"add_space_prefix": True, "remove_extra_whitespaces": True}


def facts() -> dict[str, Any]:
    own = {
        "block_count": BLOCKS,
        "context_length": 512,
        "embedding_length": WIDTH,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": False,
        "rope.freq_base": 10_000.0,
        "pooling_type": 1,
        "expert_count": EXPERTS,
        "expert_used_count": USED,
        "moe_every_n_layers": 2,
    }
    found = {f"nomic-bert-moe.{key}": value for key, value in own.items()}
    return found | {f"tokenizer.ggml.{key}": value for key, value in vocabulary().items()}


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors in the order of the real file."""
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, WIDTH), "token_types.weight": (1, WIDTH)}
    norm = lambda name: {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
    found |= norm("token_embd_norm")
    for i in range(BLOCKS):
        own: dict[str, tuple[int, ...]] = {"attn_qkv.weight": (3 * WIDTH, WIDTH), "attn_qkv.bias": (3 * WIDTH,)}
        own |= {"attn_output.weight": (WIDTH, WIDTH), "attn_output.bias": (WIDTH,)}
        own |= norm("attn_output_norm")
        if i % 2:
            own |= {"ffn_gate_inp.weight": (EXPERTS, WIDTH), "ffn_up_exps.weight": (EXPERTS, FFN, WIDTH)}
            own |= {"ffn_down_exps.weight": (EXPERTS, WIDTH, FFN)}
        else:
            own |= {"ffn_up.weight": (FFN, WIDTH), "ffn_up.bias": (FFN,)}
            own |= {"ffn_down.weight": (WIDTH, FFN), "ffn_down.bias": (WIDTH,)}
        found |= {f"blk.{i}.{name}": shape for name, shape in (own | norm("layer_output_norm")).items()}
    return found


def write(path: Path, kind: str) -> None:
    """A file whose matrices are stored as `kind`, "F16" or "Q8_0"."""
    import gguf

    writer = gguf.GGUFWriter(path, "nomic-bert-moe", use_temp_file=True)
    for key, value in facts().items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)
    source = np.random.default_rng(1)
    quantization = gguf.GGMLQuantizationType[kind]
    for name, shape in shapes().items():
        array = source.standard_normal(shape, np.float32)
        array *= 0.05 if name.endswith("bias") else shape[-1] ** -0.5
        if len(shape) == 1 and name.endswith("weight"):
            array += 1
        if len(shape) > 1 and "gate_inp" not in name and "types" not in name:
            writer.add_tensor(name, gguf.quantize(array, quantization), raw_dtype=quantization)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
