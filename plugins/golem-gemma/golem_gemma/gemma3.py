"""Gemma 3: the facts of a file, and the graph of its forward pass in the order in which data flows.

Blocks that see a window of positions alternate with blocks that see all; norms stand before and after attention
and feed-forward (arXiv:2503.19786; the same maths as transformers' `modeling_gemma3.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

from golem_core import Graph, Keys, KVRing, ModelFile, TensorSpec, Value, Weights, block_tensors, or_given


@dataclass(frozen=True)
class Gemma3Config:
    """Facts read from the file; tuples have one entry per block."""

    vocabulary: int
    context: int
    width: int
    eps: float
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: int
    ffn: tuple[int, ...]
    windows: tuple[int | None, ...]  # None: the block sees every position
    rope_base: float
    rope_base_window: float
    rope_dims: int
    rope_scale: float  # of positions, in blocks that see every position
    score_scale: float
    softcap: float

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> Gemma3Config:
        """Raises BadFile or Unsupported naming the key and its value."""
        keys = Keys(file)
        blocks, width, dim = keys.block_count(), keys.count("embedding_length"), keys.head_dim()
        heads, kv_heads = keys.heads(blocks)
        # The largest Gemma 3, of 62 blocks, scales by the width per head, which is not its head size.
        if heads[0] > width:
            raise keys.meta.bad("attention.head_count", heads[0], f"but embedding_length is {width}")
        scaled = width // heads[0] if blocks == 62 else dim
        return cls(
            vocabulary=vocabulary,
            context=keys.count("context_length"),
            width=width,
            eps=keys.positive("attention.layer_norm_rms_epsilon"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            ffn=keys.per_block("feed_forward_length", blocks),
            windows=windows(keys, blocks),
            rope_base=keys.positive("rope.freq_base", 1e6),
            rope_base_window=keys.positive("rope.freq_base_swa", 1e4),
            rope_dims=keys.rope_dims(dim),
            rope_scale=keys.rope_scale(linear=True),
            score_scale=1 / sqrt(scaled),
            softcap=keys.meta.number("final_logit_softcapping", float, 0.0, low=0),
        )

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, dim = self.width, self.head_dim
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("output.weight", (self.vocabulary, d), optional=True)
        yield TensorSpec("output_norm.weight", (d,))
        for i, (heads, kv_heads, ffn) in enumerate(zip(self.heads, self.kv_heads, self.ffn, strict=True)):
            shapes = {
                "attn_norm": (d,),
                "attn_q": (heads * dim, d),
                "attn_k": (kv_heads * dim, d),
                "attn_v": (kv_heads * dim, d),
                "attn_q_norm": (dim,),
                "attn_k_norm": (dim,),
                "attn_output": (d, heads * dim),
                "post_attention_norm": (d,),
                "ffn_norm": (d,),
                "ffn_gate": (ffn, d),
                "ffn_up": (ffn, d),
                "ffn_down": (d, ffn),
                "post_ffw_norm": (d,),
            }
            yield from block_tensors(i, shapes)


def windows(keys: Keys, blocks: int) -> tuple[int | None, ...]:
    """Five blocks with a window, one without, and so on, unless the file says otherwise."""
    key = "attention.sliding_window_pattern"
    window = keys.count("attention.sliding_window", 0, low=0)
    if not window:
        return (None,) * blocks
    if isinstance(keys.meta.get(key), list):
        local = keys.flags(key, blocks)
    else:
        period = keys.count(key, 6)
        local = tuple(i % period < period - 1 for i in range(blocks))
    return tuple(window if each else None for each in local)


def attention(g: Graph, cfg: Gemma3Config, i: int, w: Weights, x: Value, together: bool) -> Value:
    """`together`: the rows of a picture see each other."""
    window = cfg.windows[i]
    rope: dict[str, Any] = (
        {"base": cfg.rope_base, "dims": cfg.rope_dims, "scale": cfg.rope_scale}
        if window is None
        else {"base": cfg.rope_base_window, "dims": cfg.rope_dims}
    )
    q = g.rms_norm(g.linear(x, w.attn_q).heads(cfg.heads[i]), w.attn_q_norm, eps=cfg.eps)
    k = g.rms_norm(g.linear(x, w.attn_k).heads(cfg.kv_heads[i]), w.attn_k_norm, eps=cfg.eps)
    v = g.linear(x, w.attn_v).heads(cfg.kv_heads[i])
    cache = g.store(g.rope(k, **rope), v, KVRing(cfg.kv_heads[i], cfg.head_dim, window))
    y = g.attend(g.rope(q, **rope), cache, scale=cfg.score_scale, window=window, spans=together)
    return g.linear(y, w.attn_output)


def feed_forward(g: Graph, w: Weights, x: Value) -> Value:
    return g.linear(g.gelu(g.linear(x, w.ffn_gate)) * g.linear(x, w.ffn_up), w.ffn_down)


def block(g: Graph, cfg: Gemma3Config, i: int, w: Weights, x: Value, together: bool) -> Value:
    y = attention(g, cfg, i, w, g.rms_norm(x, w.attn_norm, eps=cfg.eps), together)
    x = x + g.rms_norm(y, w.post_attention_norm, eps=cfg.eps)
    y = feed_forward(g, w, g.rms_norm(x, w.ffn_norm, eps=cfg.eps))
    return x + g.rms_norm(y, w.post_ffw_norm, eps=cfg.eps)


def hidden_states(g: Graph, cfg: Gemma3Config, weights: Weights, media: bool = False) -> list[Value]:
    """The embedding, then the result of each block: (width,) per column.

    `media`: rows of pictures may be handed in, and those of a picture see each other.
    """
    x = g.scale(g.embed(weights.token_embd), by=sqrt(cfg.width))
    states = [or_given(g, x) if media else x]
    for i, w in enumerate(weights.blocks):
        states.append(block(g, cfg, i, w, states[-1], media))
    return states


def head(g: Graph, cfg: Gemma3Config, weights: Weights, x: Value) -> Value:
    logits = g.linear(g.rms_norm(x, weights.output_norm, eps=cfg.eps), weights.get("output") or weights.token_embd)
    return g.softcap(logits, cap=cfg.softcap) if cfg.softcap else logits


def build(cfg: Gemma3Config, weights: Weights, media: bool = False) -> Graph:
    """The graph of a pass: its output "logits" is (vocabulary,) for each scored column."""
    g = Graph()
    g.output("logits", head(g, cfg, weights, g.take(hidden_states(g, cfg, weights, media)[-1])))
    return g
