"""nomic-bert-moe: the facts of a file, and the graph of its forward pass in the order in which data flows.

An encoder whose norms stand behind the sub-layers, with rotated positions, and in every other block a mixture of
experts (arXiv:2502.07972; the same maths as llama.cpp's `models/bert.cpp` for this architecture).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from golem_core import BadFile, Graph, Keys, ModelFile, TensorSpec, Unsupported, Value, Weights, block_tensors

CONTEXT = 512
"""Positions that the model was trained for; older files state more."""
POOLING = {1: "mean", 2: "first", 3: "last"}
"""The values of `pooling_type` that give one vector for a text."""


@dataclass(frozen=True)
class NomicConfig:
    """Facts read from the file; `mixtures` says of each block whether it has experts."""

    vocabulary: int
    context: int
    width: int
    ffn: int
    heads: int
    eps: float
    rope_base: float
    pooling: str
    mixtures: tuple[bool, ...]
    experts: int
    experts_used: int

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> NomicConfig:
        """Raises BadFile or Unsupported naming the key and its value."""
        keys = Keys(file)
        blocks, width, heads = keys.block_count(), keys.count("embedding_length"), keys.count("attention.head_count")
        if width % heads:
            raise BadFile(keys.named("attention.head_count", heads) + f", which does not divide the width {width}")
        if (kv_heads := keys.count("attention.head_count_kv", heads)) != heads:
            raise Unsupported(
                keys.named("attention.head_count_kv", kv_heads) + f", {heads} was expected, as many as heads"
            )
        if (dim := keys.head_dim(default=width // heads)) * heads != width:
            raise Unsupported(keys.named("attention.key_length", dim) + f", {width // heads} was expected")
        if dim % 2:
            raise BadFile(keys.named("attention.head_count", heads) + f", which leaves heads of {dim}, an odd number")
        if keys.rope_dims(dim) != dim:
            raise Unsupported(keys.named("rope.dimension_count", keys.rope_dims(dim)) + f", all {dim} were expected")
        keys.rope_scale(linear=False)
        if keys.meta.flag("attention.causal", False):
            raise Unsupported(keys.named("attention.causal", "true") + ", false was expected: every position sees all")
        every = keys.count("moe_every_n_layers", 0, low=0)
        mixtures = tuple(every > 0 and i % every == 1 for i in range(blocks))
        experts = used = 0
        if any(mixtures):
            experts, used = keys.count("expert_count"), keys.count("expert_used_count")
            if used > experts:
                raise BadFile(keys.named("expert_used_count", used) + f", but there are {experts} experts")
        return cls(
            vocabulary=vocabulary,
            context=min(keys.count("context_length"), CONTEXT),
            width=width,
            ffn=keys.count("feed_forward_length"),
            heads=heads,
            eps=keys.positive("attention.layer_norm_epsilon"),
            rope_base=keys.positive("rope.freq_base", 1e4),
            pooling=pooling(keys),
            mixtures=mixtures,
            experts=experts,
            experts_used=used,
        )

    def tensors(self) -> Iterator[TensorSpec]:
        """What a file must hold, and what it may: the types of tokens, of which there is one."""
        d, f, e = self.width, self.ffn, self.experts
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("token_types.weight", (1, d), optional=True)
        yield from norm("token_embd_norm", d)
        for i, mixture in enumerate(self.mixtures):
            shapes: dict[str, tuple[int, ...]] = {"attn_qkv": (3 * d, d), "attn_qkv.bias": (3 * d,)}
            shapes |= {"attn_output": (d, d), "attn_output.bias": (d,)}
            if mixture:
                shapes |= {"ffn_gate_inp": (e, d), "ffn_up_exps": (e, f, d), "ffn_down_exps": (e, d, f)}
            else:
                shapes |= {"ffn_up": (f, d), "ffn_up.bias": (f,), "ffn_down": (d, f), "ffn_down.bias": (d,)}
            yield from block_tensors(i, shapes)
            yield from norm(f"blk.{i}.attn_output_norm", d)
            yield from norm(f"blk.{i}.layer_output_norm", d)


def norm(name: str, width: int) -> Iterator[TensorSpec]:
    yield TensorSpec(f"{name}.weight", (width,))
    yield TensorSpec(f"{name}.bias", (width,))


def pooling(keys: Keys) -> str:
    """How the vector of a text is made of its positions: their mean unless the file says otherwise."""
    stated = keys.meta.number("pooling_type", int, 1)
    if stated not in POOLING:
        known = ", ".join(f"{value} ({how})" for value, how in POOLING.items())
        raise Unsupported(keys.named("pooling_type", stated) + f", one of {known} was expected")
    return POOLING[stated]


def embedding(g: Graph, cfg: NomicConfig, weights: Weights) -> Value:
    x = g.embed(weights.token_embd)
    types = weights.get("token_types")
    x = x if types is None else x + types
    return g.layer_norm(x, weights.token_embd_norm, weights.get("token_embd_norm.bias"), eps=cfg.eps)


def attention(g: Graph, cfg: NomicConfig, w: Weights, x: Value) -> Value:
    d, dim = cfg.width, cfg.width // cfg.heads
    qkv = g.linear(x, w.attn_qkv, w.get("attn_qkv.bias"))
    q, k, v = (g.slice(qkv, i * d, (i + 1) * d).heads(cfg.heads) for i in range(3))
    q, k = g.rope(q, base=cfg.rope_base), g.rope(k, base=cfg.rope_base)
    return g.linear(g.attend_columns(q, k, v, scale=1 / sqrt(dim)), w.attn_output, w.get("attn_output.bias"))


def feed_forward(g: Graph, w: Weights, x: Value) -> Value:
    up = g.linear(x, w.ffn_up, w.get("ffn_up.bias"))
    return g.linear(g.gelu(up, exact=True), w.ffn_down, w.get("ffn_down.bias"))


def mixture(g: Graph, cfg: NomicConfig, w: Weights, x: Value) -> Value:
    """The chosen experts, weighted by their parts of the softmax over all; these do not add up to 1."""
    ids, shares = g.route(g.linear(x, w.ffn_gate_inp), count=cfg.experts_used, normalize=False)
    up = g.gelu(g.expert_linear(x, w.ffn_up_exps, ids), exact=True)
    return g.combine(g.expert_linear(up, w.ffn_down_exps, ids), shares)


def block(g: Graph, cfg: NomicConfig, w: Weights, x: Value, experts: bool) -> Value:
    h = x + attention(g, cfg, w, x)
    h = g.layer_norm(h, w.attn_output_norm, w.get("attn_output_norm.bias"), eps=cfg.eps)
    f = h + (mixture(g, cfg, w, h) if experts else feed_forward(g, w, h))
    return g.layer_norm(f, w.layer_output_norm, w.get("layer_output_norm.bias"), eps=cfg.eps)


def hidden_states(g: Graph, cfg: NomicConfig, weights: Weights) -> list[Value]:
    """The embedding, then the result of each block: (width,) per column."""
    states = [embedding(g, cfg, weights)]
    for w, experts in zip(weights.blocks, cfg.mixtures, strict=True):
        states.append(block(g, cfg, w, states[-1], experts))
    return states


def build(cfg: NomicConfig, weights: Weights) -> Graph:
    """The graph of a pass: its output "embedding" is (width,) for each text."""
    g = Graph()
    g.output("embedding", g.pool(hidden_states(g, cfg, weights)[-1], cfg.pooling))
    return g
