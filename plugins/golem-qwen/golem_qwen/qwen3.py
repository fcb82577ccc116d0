"""Qwen3, dense: the facts of a file, and the graph of its forward pass in the order in which data flows.

Pre-norm blocks of grouped-query attention with normed queries and keys, and gated feed-forward (arXiv:2505.09388;
the same maths as transformers' `modeling_qwen3.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from golem_core import Graph, Keys, KVRing, ModelFile, TensorSpec, Value, Weights, block_tensors


@dataclass(frozen=True)
class Qwen3Config:
    """Facts read from the file; tuples have one entry per block."""

    vocabulary: int
    context: int
    width: int
    eps: float
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: int
    ffn: tuple[int, ...]
    rope_base: float
    rope_dims: int

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> Qwen3Config:
        """Raises BadFile or Unsupported naming the key and its value."""
        keys = Keys(file)
        keys.rope_scale(linear=False)
        blocks, width = keys.block_count(), keys.count("embedding_length")
        heads, kv_heads = keys.heads(blocks)
        dim = keys.head_dim(default=width // heads[0])
        return cls(
            vocabulary=vocabulary,
            context=keys.count("context_length"),
            width=width,
            eps=keys.positive("attention.layer_norm_rms_epsilon"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            ffn=keys.per_block("feed_forward_length", blocks),
            rope_base=keys.positive("rope.freq_base", 1e4),
            rope_dims=keys.rope_dims(dim),
        )

    @property
    def blocks(self) -> int:
        return len(self.heads)

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, dim = self.width, self.head_dim
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("output.weight", (self.vocabulary, d), optional=True)
        yield TensorSpec("output_norm.weight", (d,))
        for i, (heads, kv_heads, ffn) in enumerate(zip(self.heads, self.kv_heads, self.ffn, strict=True)):
            yield from block_tensors(i, {
                "attn_norm": (d,),
                "attn_q": (heads * dim, d),
                "attn_k": (kv_heads * dim, d),
                "attn_v": (kv_heads * dim, d),
                "attn_q_norm": (dim,),
                "attn_k_norm": (dim,),
                "attn_output": (d, heads * dim),
                "ffn_norm": (d,),
                "ffn_gate": (ffn, d),
                "ffn_up": (ffn, d),
                "ffn_down": (d, ffn),
            })  # fmt: skip


def attention(g: Graph, cfg: Qwen3Config, w: Weights, i: int, x: Value) -> Value:
    heads, kv_heads = cfg.heads[i], cfg.kv_heads[i]
    q = g.rms_norm(g.linear(x, w.attn_q).heads(heads), w.attn_q_norm, eps=cfg.eps)
    k = g.rms_norm(g.linear(x, w.attn_k).heads(kv_heads), w.attn_k_norm, eps=cfg.eps)
    v = g.linear(x, w.attn_v).heads(kv_heads)
    q = g.rope(q, base=cfg.rope_base, dims=cfg.rope_dims)
    k = g.rope(k, base=cfg.rope_base, dims=cfg.rope_dims)
    cache = g.store(k, v, KVRing(kv_heads, cfg.head_dim))
    return g.linear(g.attend(q, cache, scale=1 / sqrt(cfg.head_dim)), w.attn_output)


def feed_forward(g: Graph, w: Weights, x: Value) -> Value:
    return g.linear(g.silu(g.linear(x, w.ffn_gate)) * g.linear(x, w.ffn_up), w.ffn_down)


def block(g: Graph, cfg: Qwen3Config, w: Weights, i: int, x: Value) -> Value:
    x = x + attention(g, cfg, w, i, g.rms_norm(x, w.attn_norm, eps=cfg.eps))
    return x + feed_forward(g, w, g.rms_norm(x, w.ffn_norm, eps=cfg.eps))


def hidden_states(g: Graph, cfg: Qwen3Config, weights: Weights) -> list[Value]:
    """The embedding, then the result of each block: (width,) per column."""
    states = [g.embed(weights.token_embd)]
    for i, w in enumerate(weights.blocks):
        states.append(block(g, cfg, w, i, states[-1]))
    return states


def head(g: Graph, cfg: Qwen3Config, weights: Weights, x: Value) -> Value:
    return g.linear(g.rms_norm(x, weights.output_norm, eps=cfg.eps), weights.get("output") or weights.token_embd)


def build(cfg: Qwen3Config, weights: Weights) -> Graph:
    """The graph of a pass: its output "logits" is (vocabulary,) for each scored column."""
    g = Graph()
    g.output("logits", head(g, cfg, weights, g.take(hidden_states(g, cfg, weights)[-1])))
    return g
