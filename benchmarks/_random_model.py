"""Writes a GGUF file with random weights: the dimensions and the architecture of a model, but no knowledge.

The blocks are random bytes with valid scales, so that gigabytes take seconds and activations stay finite.  Tokenizer
and template are those of a real file, its vocabulary filled up to the size wanted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter

from golem_core import ModelFile, open_model

PIECE = 32 << 20
"""Bytes that are made at a time."""


@dataclass(frozen=True)
class Delta:
    """Dimensions of gated delta nets: heads of keys and of values, all of size `dim`, and convolutions of `taps`."""

    key_heads: int
    heads: int
    dim: int
    taps: int = 4

    @property
    def features(self) -> int:
        return (2 * self.key_heads + self.heads) * self.dim


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model; with `experts`, the feed-forward parts are mixtures of experts of width `ffn`.

    With `delta`, every other block is a gated delta net, and attention has gates.
    """

    width: int
    blocks: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    experts: int = 0
    experts_used: int = 0
    architecture: str = "llama"
    delta: Delta | None = None

    def recurrent(self, block: int) -> bool:
        return self.delta is not None and block % 2 == 0


SHAPES = {
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, architecture="qwen3"),
    "qwen3-4b": Shape(2560, 36, 32, 8, 128, 9728, 151936, architecture="qwen3"),
    # four of the thirty blocks of a model of 26 billion weights, 4 of them active
    "26b-a4b-cut": Shape(2816, 4, 16, 8, 256, 704, 65536, experts=128, experts_used=8),
    # two of the 64 blocks of Qwen3.8-27B, one of each kind, with a small vocabulary
    "qwen35-27b-cut": Shape(5120, 2, 24, 4, 256, 17408, 49152, architecture="qwen35", delta=Delta(16, 48, 128)),
}

MIXES = ("Q4_0", "Q4_K_M", "Q8_0")


def type_of(mix: str, name: str, block: int, blocks: int) -> str:
    """The type of a matrix in a file that is called `mix`, as llama.cpp's quantizer chooses it."""
    if mix == "Q8_0":
        return "Q8_0"
    if name == "token_embd":
        return "Q6_K"
    if mix == "Q4_0":
        return "Q4_0"
    if name in ("attn_qkv", "ssm_out"):
        return "Q5_K"
    more = block < blocks // 8 or block >= 7 * blocks // 8 or (block - blocks // 8) % 3 == 2
    return "Q6_K" if name in ("attn_v", "ffn_down") and more else "Q4_K"


def matrices(shape: Shape, block: int) -> dict[str, tuple[int, ...]]:
    """The matrices of a block: (outputs, inputs), with the experts before."""
    d, q, kv, f = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.ffn
    queries = 2 * q if shape.delta else q
    found: dict[str, tuple[int, ...]] = {
        "attn_q": (queries, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, q),
    }  # fmt: skip
    if shape.delta and shape.recurrent(block):
        inner = shape.delta.heads * shape.delta.dim
        found = {"attn_qkv": (shape.delta.features, d), "attn_gate": (inner, d), "ssm_out": (d, inner)}
    if not shape.experts:
        return found | {"ffn_gate": (f, d), "ffn_up": (f, d), "ffn_down": (d, f)}
    e = shape.experts
    return found | {"ffn_gate_exps": (e, f, d), "ffn_up_exps": (e, f, d), "ffn_down_exps": (e, d, f)}


def vectors(shape: Shape, block: int, source: np.random.Generator) -> dict[str, np.ndarray]:
    """What a block holds as float32: norms of ones, routers, and the small parts of a delta net."""
    d, delta = shape.width, shape.delta
    norms = {"attn_norm": d, "post_attention_norm" if delta else "ffn_norm": d}
    if shape.architecture != "llama" and not shape.recurrent(block):
        norms |= {"attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}

    def spread(*size: int) -> np.ndarray:
        return source.standard_normal(size, np.float32) * np.float32(size[-1] ** -0.5)

    found = {f"{name}.weight": np.ones(size, np.float32) for name, size in norms.items()}
    if shape.experts:
        found["ffn_gate_inp.weight"] = spread(shape.experts, d)
    if delta and shape.recurrent(block):
        found |= {
            "ssm_norm.weight": np.ones(delta.dim, np.float32), "ssm_conv1d.weight": spread(delta.features, delta.taps),
            "ssm_alpha.weight": spread(delta.heads, d), "ssm_beta.weight": spread(delta.heads, d),
            "ssm_a": -np.ones(delta.heads, np.float32), "ssm_dt.bias": np.zeros(delta.heads, np.float32),
        }  # fmt: skip
    return found


def _half(value: float) -> np.ndarray:
    return np.array([value], np.float16).view(np.uint8)


def _q4_0(blocks: np.ndarray, size: float) -> None:
    blocks[:, :2] = _half(size / 4.6)  # the spread of 16 equally likely values


def _q8_0(blocks: np.ndarray, size: float) -> None:
    blocks[:, :2] = _half(size / 73.9)


def _q4_k(blocks: np.ndarray, size: float) -> None:
    scale = size / 4.6 / 32
    blocks[:, :2], blocks[:, 2:4] = _half(scale), _half(7.5 * scale)
    blocks[:, 4:12], blocks[:, 12:16] = 0xA0, 0  # every scale and every minimum of the eight parts is 32


def _q5_k(blocks: np.ndarray, size: float) -> None:
    scale = size / 9.2 / 32
    blocks[:, :2], blocks[:, 2:4] = _half(scale), _half(15.5 * scale)
    blocks[:, 4:12], blocks[:, 12:16] = 0xA0, 0


def _q6_k(blocks: np.ndarray, size: float) -> None:
    blocks[:, 192:208] = 32
    blocks[:, 208:] = _half(size / 18.5 / 32)


SCALES: dict[str, Callable[[np.ndarray, float], None]] = {
    "Q4_0": _q4_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
}  # fmt: skip
"""How random blocks of a type, uint8 (blocks, bytes), get scales with which weights have the spread `size`."""


def pieces(kind: str, shape: tuple[int, ...], source: np.random.Generator) -> Iterator[np.ndarray]:
    """The bytes of a random matrix of `shape`, piece by piece; its products keep the size of their inputs."""
    elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    left = int(np.prod(shape)) // elements
    while left:
        count = min(left, PIECE // nbytes)
        blocks = np.frombuffer(bytearray(source.bytes(count * nbytes)), np.uint8).reshape(count, nbytes)
        SCALES[kind](blocks, shape[-1] ** -0.5)
        yield blocks
        left -= count


def copy_tokenizer(writer: GGUFWriter, donor: ModelFile, vocabulary: int) -> None:
    """The donor's tokenizer and template, with unused tokens up to `vocabulary`."""
    for key in donor.metadata:
        if not key.startswith("tokenizer."):
            continue
        value: Any = donor.metadata[key]
        if key == "tokenizer.ggml.tokens":
            value = [*value, *(f"[unused {number}]" for number in range(len(value), vocabulary))]
            writer.add_token_list(value)
        elif key == "tokenizer.ggml.token_type":
            writer.add_token_types([*value, *[5] * (vocabulary - len(value))])
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_key_value(key, value, GGUFValueType.ARRAY)


def write(path: Path, shape: Shape, mix: str, donor: Path, seed: int = 1) -> None:
    """Write the file: `mix` is one of `MIXES`, `donor` a file with a tokenizer."""
    writer = GGUFWriter(path, shape.architecture)
    writer.add_context_length(8192)
    writer.add_block_count(shape.blocks)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim // 4 if shape.delta else shape.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(shape.vocabulary)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    if shape.delta:
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        writer.add_ssm_conv_kernel(shape.delta.taps)
        writer.add_ssm_state_size(shape.delta.dim)
        writer.add_ssm_group_count(shape.delta.key_heads)
        writer.add_ssm_time_step_rank(shape.delta.heads)
        writer.add_ssm_inner_size(shape.delta.heads * shape.delta.dim)
        writer.add_full_attention_interval(2)
    with open_model(donor) as file:
        copy_tokenizer(writer, file, shape.vocabulary)
    source = np.random.default_rng(seed)
    contents: list[Iterator[np.ndarray]] = []

    def add(name: str, kind: str, size: tuple[int, ...], values: Iterator[np.ndarray]) -> None:
        elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
        row = (*size[:-1], size[-1] // elements * nbytes)
        as_bytes = kind != "F32"
        writer.add_tensor_info(
            name,
            row if as_bytes else size,
            np.dtype(np.uint8 if as_bytes else np.float32),
            int(np.prod(row)),
            raw_dtype=GGMLQuantizationType[kind] if as_bytes else None,
        )
        contents.append(values)

    def matrix(name: str, block: int, size: tuple[int, ...]) -> None:
        kind = type_of(mix, name.rpartition(".")[2].removesuffix("_exps"), block, shape.blocks)
        add(f"{name}.weight", kind, size, pieces(kind, size, source))

    def floats(name: str, values: np.ndarray) -> None:
        add(name, "F32", values.shape, iter([values]))

    matrix("token_embd", 0, (shape.vocabulary, shape.width))
    floats("output_norm.weight", np.ones(shape.width, np.float32))
    for block in range(shape.blocks):
        for name, size in matrices(shape, block).items():
            matrix(f"blk.{block}.{name}", block, size)
        for name, values in vectors(shape, block, source).items():
            floats(f"blk.{block}.{name}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    out = writer.fout[0]
    for values in contents:
        writer.write_padding(out, out.tell())
        for piece in values:
            piece.tofile(out)
        writer.write_padding(out, out.tell())
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("mix", choices=MIXES)
    parser.add_argument("path", type=Path)
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="by default the installed model package's")
    options = parser.parse_args()
    import _figures

    write(options.path, SHAPES[options.shape], options.mix, _figures.model_path(options.tokenizer))


if __name__ == "__main__":
    main()
