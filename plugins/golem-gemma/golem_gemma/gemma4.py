"""Gemma 4, text: the facts of a file, and the graph of its forward pass in the order in which data flows.

The dense and the small models, the mixtures of experts and the one whose global blocks have no value matrix differ
by keys and by which tensors are there (the same maths as transformers' `modeling_gemma4.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

from golem_core import (
    BadFile,
    Graph,
    Keys,
    KVRing,
    ModelFile,
    TensorSpec,
    Value,
    Weights,
    block_tensors,
    or_given,
)


@dataclass(frozen=True)
class Rope:
    base: float
    dims: int
    scale: float = 1.0  # of positions


@dataclass(frozen=True)
class Block:
    """What may differ from block to block."""

    window: int | None  # None: the block sees every position
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    source: int  # the block whose keys and values it attends over; its own number if it stores them itself


@dataclass(frozen=True)
class Experts:
    """A mixture: `count` feed-forwards of size `ffn`, of which each token uses `used`."""

    count: int
    used: int
    ffn: int


@dataclass(frozen=True)
class Gemma4Config:
    """Facts read from the file."""

    vocabulary: int
    context: int
    width: int
    eps: float
    blocks: tuple[Block, ...]
    rope: Rope
    rope_window: Rope
    per_layer: int  # size of the inputs that every block gets per token; 0: none
    experts: Experts | None
    softcap: float

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> Gemma4Config:
        """Raises BadFile or Unsupported naming the key and its value."""
        keys = Keys(file)
        count = keys.block_count()
        dim = keys.head_dim()
        dim_window = keys.head_dim("_swa", default=dim)
        experts = None
        if number := keys.count("expert_count", 0, low=0):
            used, ffn = keys.count("expert_used_count"), keys.per_block("expert_feed_forward_length", count)
            if used > number:
                raise BadFile(keys.named("expert_used_count", used) + f", but expert_count is {number}")
            if len(set(ffn)) != 1:
                raise BadFile(keys.named("expert_feed_forward_length", list(ffn)) + ", one size was expected")
            experts = Experts(number, used, ffn[0])
        return cls(
            vocabulary=vocabulary,
            context=keys.count("context_length"),
            width=keys.count("embedding_length"),
            eps=keys.positive("attention.layer_norm_rms_epsilon"),
            blocks=read_blocks(keys, count, dim, dim_window),
            rope=Rope(keys.positive("rope.freq_base"), keys.rope_dims(dim), keys.rope_scale(linear=True)),
            rope_window=Rope(keys.positive("rope.freq_base_swa", 1e4), keys.rope_dims(dim_window, "_swa")),
            per_layer=keys.count("embedding_length_per_layer_input", 0, low=0),
            experts=experts,
            softcap=keys.meta.number("final_logit_softcapping", float, 0.0, low=0),
        )

    def tensors(self, weights: Weights) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, p, blocks = self.width, self.per_layer, len(self.blocks)
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("output.weight", (self.vocabulary, d), optional=True)
        yield TensorSpec("output_norm.weight", (d,))
        if any(block.window is None for block in self.blocks):
            yield TensorSpec("rope_freqs.weight", (self.rope.dims // 2,))
        if p:
            yield TensorSpec("per_layer_token_embd.weight", (self.vocabulary, p * blocks))
            yield TensorSpec("per_layer_model_proj.weight", (p * blocks, d))
            yield TensorSpec("per_layer_proj_norm.weight", (p,))
        for i in range(blocks):
            yield from block_tensors(i, self.block_shapes(i, weights))
            yield TensorSpec(f"blk.{i}.layer_output_scale.weight", (1,), optional=True)

    def block_shapes(self, i: int, weights: Weights) -> dict[str, tuple[int, ...]]:
        d, p, b = self.width, self.per_layer, self.blocks[i]
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (d,),
            "attn_q": (b.heads * b.head_dim, d),
            "attn_q_norm": (b.head_dim,),
            "attn_output": (d, b.heads * b.head_dim),
            "post_attention_norm": (d,),
            "ffn_norm": (d,),
            "ffn_gate": (b.ffn, d),
            "ffn_up": (b.ffn, d),
            "ffn_down": (d, b.ffn),
            "post_ffw_norm": (d,),
        }
        if b.source == i:
            shapes |= {"attn_k": (b.kv_heads * b.head_dim, d), "attn_k_norm": (b.head_dim,)}
            if weights.get(f"blk.{i}.attn_v"):
                shapes["attn_v"] = (b.kv_heads * b.head_dim, d)
        if p:
            shapes |= {"inp_gate": (p, d), "proj": (d, p), "post_norm": (d,)}
        if e := self.experts:
            shapes |= {
                "ffn_gate_inp": (e.count, d),
                "ffn_gate_inp.scale": (d,),
                "ffn_down_exps": (e.count, d, e.ffn),
                "ffn_down_exps.scale": (e.count,),
                "pre_ffw_norm_2": (d,),
                "post_ffw_norm_1": (d,),
                "post_ffw_norm_2": (d,),
            }
            if weights.get(f"blk.{i}.ffn_gate_exps"):
                shapes |= {"ffn_gate_exps": (e.count, e.ffn, d), "ffn_up_exps": (e.count, e.ffn, d)}
            else:
                shapes["ffn_gate_up_exps"] = (e.count, 2 * e.ffn, d)
        return shapes


def read_blocks(keys: Keys, count: int, dim: int, dim_window: int) -> tuple[Block, ...]:
    local = keys.flags("attention.sliding_window_pattern", count)
    window = keys.count("attention.sliding_window")
    heads, kv_heads = keys.heads(count)
    ffn = keys.per_block("feed_forward_length", count)
    shared = keys.count("attention.shared_kv_layers", 0, low=0)
    blocks = []
    for i in range(count):
        source = i
        if i >= count - shared:  # it attends over what the last block of its kind stored
            source = max((j for j in range(count - shared) if local[j] == local[i]), default=-1)
            if source < 0:
                raise BadFile(
                    keys.named("attention.shared_kv_layers", shared)
                    + f", which leaves block {i} no block of its kind to read keys and values from"
                )
            if heads[i] % kv_heads[source]:
                raise BadFile(keys.named("attention.head_count", heads[i]) + f" in block {i}, shared unevenly")
        blocks.append(
            Block(
                window=window if local[i] else None,
                heads=heads[i],
                kv_heads=kv_heads[i],
                head_dim=dim_window if local[i] else dim,
                ffn=ffn[i],
                source=source,
            )
        )
    return tuple(blocks)


def per_layer_inputs(g: Graph, cfg: Gemma4Config, weights: Weights, x: Value) -> Value:
    """What every block gets of the token besides the residual: (blocks, per_layer)."""
    shape = (len(cfg.blocks), cfg.per_layer)
    looked = g.scale(g.view(g.embed(weights.per_layer_token_embd), shape), by=sqrt(cfg.per_layer))
    projected = g.scale(g.view(g.linear(x, weights.per_layer_model_proj), shape), by=1 / sqrt(cfg.width))
    return g.scale(g.rms_norm(projected, weights.per_layer_proj_norm, eps=cfg.eps) + looked, by=1 / sqrt(2))


def attention(
    g: Graph,
    cfg: Gemma4Config,
    i: int,
    weights: Weights,
    x: Value,
    caches: dict[int, Value],
    together: bool = False,
) -> Value:
    """`together`: in blocks with a window, the rows of a picture see each other."""
    b, w = cfg.blocks[i], weights.blocks[i]
    rope: dict[str, Any] = (
        {"base": cfg.rope.base, "dims": cfg.rope.dims, "scale": cfg.rope.scale, "factors": weights.rope_freqs}
        if b.window is None
        else {"base": cfg.rope_window.base, "dims": cfg.rope_window.dims}
    )
    q = g.rms_norm(g.linear(x, w.attn_q).heads(b.heads), w.attn_q_norm, eps=cfg.eps)
    if b.source == i:
        key = g.linear(x, w.attn_k).heads(b.kv_heads)
        matrix = w.get("attn_v")
        value = g.linear(x, matrix).heads(b.kv_heads) if matrix else key
        k = g.rope(g.rms_norm(key, w.attn_k_norm, eps=cfg.eps), **rope)
        v = g.rms_norm(value, eps=cfg.eps)
        caches[i] = g.store(k, v, KVRing(b.kv_heads, b.head_dim, b.window))
    y = g.attend(
        g.rope(q, **rope), caches[b.source], scale=1.0, window=b.window, spans=together and b.window is not None
    )
    return g.linear(y, w.attn_output)


def dense(g: Graph, w: Weights, x: Value) -> Value:
    return g.linear(g.gelu(g.linear(x, w.ffn_gate)) * g.linear(x, w.ffn_up), w.ffn_down)


def route(g: Graph, cfg: Gemma4Config, experts: Experts, w: Weights, x: Value) -> tuple[Value, Value]:
    """Which experts the tokens use, and their shares; scored from the residual, not from a block's normed input."""
    scale, matrix = w.get("ffn_gate_inp.scale"), w.ffn_gate_inp
    assert scale is not None
    r = g.scale(g.rms_norm(x, eps=cfg.eps), by=1 / sqrt(cfg.width)) * scale
    return g.route(g.linear(r, matrix), count=experts.used)


def mixture(g: Graph, cfg: Gemma4Config, experts: Experts, w: Weights, x: Value) -> Value:
    ids, shares = route(g, cfg, experts, w, x)
    n = g.rms_norm(x, w.pre_ffw_norm_2, eps=cfg.eps)
    if fused := w.get("ffn_gate_up_exps"):
        both = g.expert_linear(n, fused, ids)
        gate, up = g.slice(both, 0, experts.ffn), g.slice(both, experts.ffn, 2 * experts.ffn)
    else:
        gate, up = g.expert_linear(n, w.ffn_gate_exps, ids), g.expert_linear(n, w.ffn_up_exps, ids)
    y = g.expert_linear(g.gelu(gate) * up, w.ffn_down_exps, ids)
    scale = w.get("ffn_down_exps.scale")
    assert scale is not None
    return g.combine(y, shares * g.lookup(scale, ids))


def feed_forward(g: Graph, cfg: Gemma4Config, w: Weights, x: Value) -> Value:
    y = dense(g, w, g.rms_norm(x, w.ffn_norm, eps=cfg.eps))
    if cfg.experts is None:
        return y
    mixed = mixture(g, cfg, cfg.experts, w, x)
    return g.rms_norm(y, w.post_ffw_norm_1, eps=cfg.eps) + g.rms_norm(mixed, w.post_ffw_norm_2, eps=cfg.eps)


def block(
    g: Graph,
    cfg: Gemma4Config,
    i: int,
    weights: Weights,
    x: Value,
    extra: Value | None,
    caches: dict[int, Value],
    together: bool = False,
) -> Value:
    w = weights.blocks[i]
    y = attention(g, cfg, i, weights, g.rms_norm(x, w.attn_norm, eps=cfg.eps), caches, together)
    x = x + g.rms_norm(y, w.post_attention_norm, eps=cfg.eps)
    y = feed_forward(g, cfg, w, x)
    x = x + g.rms_norm(y, w.post_ffw_norm, eps=cfg.eps)
    if extra is not None:
        z = g.linear(g.gelu(g.linear(x, w.inp_gate)) * extra, w.proj)
        x = x + g.rms_norm(z, w.post_norm, eps=cfg.eps)
    scale = w.get("layer_output_scale")
    return x * scale if scale else x


def hidden_states(
    g: Graph, cfg: Gemma4Config, weights: Weights, media: bool = False, together: bool = False
) -> list[Value]:
    """The embedding, then the result of each block: (width,) per column.

    `media`: rows of pictures and recordings may be handed in; `together`: those of a picture see each other.
    """
    x = g.scale(g.embed(weights.token_embd), by=sqrt(cfg.width))
    states = [or_given(g, x) if media else x]
    caches: dict[int, Value] = {}
    flat, extra, p = None, None, cfg.per_layer
    if p:
        flat = g.view(per_layer_inputs(g, cfg, weights, states[0]), (len(cfg.blocks) * p,))
    for i in range(len(cfg.blocks)):
        if flat is not None:
            extra = g.slice(flat, i * p, (i + 1) * p)
        states.append(block(g, cfg, i, weights, states[-1], extra, caches, together))
    return states


def head(g: Graph, cfg: Gemma4Config, weights: Weights, x: Value) -> Value:
    logits = g.linear(g.rms_norm(x, weights.output_norm, eps=cfg.eps), weights.get("output") or weights.token_embd)
    return g.softcap(logits, cap=cfg.softcap) if cfg.softcap else logits


def build(cfg: Gemma4Config, weights: Weights, media: bool = False, together: bool = False) -> Graph:
    """The graph of a pass: its output "logits" is (vocabulary,) for each scored column."""
    g = Graph()
    states = hidden_states(g, cfg, weights, media, together)
    g.output("logits", head(g, cfg, weights, g.take(states[-1])))
    return g
