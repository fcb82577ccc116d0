"""The forward pass in the order in which data flows: the encoder, the two layers behind it, and the scorer.

The encoder is ModernBERT (arXiv:2412.13663; the same maths as transformers' `modeling_modernbert.py`); the layers
behind it are pre-norm transformer layers with ReLU (torch's `TransformerEncoderLayer` with `norm_first`).
"""

from __future__ import annotations

from math import sqrt

from golem_core import Graph, Value, Weights
from golem_laya.checkpoint import HEAD_DIM, Config

EPS = 1e-5
"""Of the norms behind the encoder."""


def affine(g: Graph, x: Value, w: Weights, name: str) -> Value:
    return g.linear(x, getattr(w, name), w.get(f"{name}.bias"))


def norm(g: Graph, x: Value, w: Weights, name: str) -> Value:
    return g.layer_norm(x, getattr(w, name), w.get(f"{name}.bias"), eps=EPS)


def thirds(g: Graph, x: Value, heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values (heads, dim) out of one row of all three."""
    width = x.shape[-1] // 3
    q, k, v = (g.slice(x, i * width, (i + 1) * width).heads(heads) for i in range(3))
    return q, k, v


# ---------------------------------------------------------------- the encoder


def attention(g: Graph, cfg: Config, w: Weights, i: int, x: Value) -> Value:
    """Over the whole sequence in the layers that are for that, over the window around in the others."""
    base, window = (cfg.global_base, None) if cfg.whole[i] else (cfg.local_base, cfg.window)
    q, k, v = thirds(g, g.linear(x, w.Wqkv), cfg.heads)
    q, k = g.rope(q, base=base), g.rope(k, base=base)
    return g.linear(g.attend_columns(q, k, v, scale=1 / sqrt(cfg.width // cfg.heads), window=window), w.Wo)


def feed_forward(g: Graph, cfg: Config, w: Weights, x: Value) -> Value:
    both = g.linear(x, w.Wi)
    activated, gate = g.slice(both, 0, cfg.ffn), g.slice(both, cfg.ffn, 2 * cfg.ffn)
    return g.linear(g.gelu(activated, exact=True) * gate, w.Wo)


def encoder_states(g: Graph, cfg: Config, weights: Weights) -> list[Value]:
    """The embedding, the result of each layer, and the last one normed: (width,) per position."""
    w = weights.scoped("encoder")
    table = w.scoped("embeddings")
    states = [g.layer_norm(g.embed(table.tok_embeddings), table.norm, eps=cfg.eps)]
    for i in range(cfg.layers):
        layer, x = w.scoped(f"layers.{i}"), states[-1]
        h = x if i == 0 else g.layer_norm(x, layer.attn_norm, eps=cfg.eps)
        x = x + attention(g, cfg, layer.scoped("attn"), i, h)
        states.append(x + feed_forward(g, cfg, layer.scoped("mlp"), g.layer_norm(x, layer.mlp_norm, eps=cfg.eps)))
    return [*states, g.layer_norm(states[-1], w.final_norm, eps=cfg.eps)]


# ---------------------------------------------------------------- behind it


def head_layer(g: Graph, cfg: Config, w: Weights, x: Value) -> Value:
    attn, h = w.scoped("self_attn"), norm(g, x, w, "norm1")
    q, k, v = thirds(g, g.linear(h, attn.in_proj_weight, attn.get("in_proj_bias")), cfg.width // HEAD_DIM)
    x = x + affine(g, g.attend_columns(q, k, v, scale=1 / sqrt(HEAD_DIM)), attn, "out_proj")
    return x + affine(g, g.relu(affine(g, norm(g, x, w, "norm2"), w, "linear1")), w, "linear2")


def head_states(g: Graph, cfg: Config, weights: Weights, x: Value) -> list[Value]:
    """The encoder's result with the kind's embedding added, and the result of each layer: (width,) per position."""
    states = [x + g.input("kind", (cfg.width,))]
    for j in range(cfg.head_layers):
        states.append(head_layer(g, cfg, weights.scoped(f"head.layers.{j}"), states[-1]))
    return states


def score(g: Graph, weights: Weights, x: Value) -> Value:
    w = weights.scoped("scorer")
    return affine(g, g.gelu(affine(g, norm(g, x, w, "0"), w, "1"), exact=True), w, "3")


def build(cfg: Config, weights: Weights) -> Graph:
    """The graph of a pass over whole sequences, one per slot.

    The input "kind" is the kind's embedding (width,) at every position.  Outputs for each scored position: "row"
    (width,), and "logit" (1,) for the option whose mark it is.
    """
    g = Graph()
    x = g.take(head_states(g, cfg, weights, encoder_states(g, cfg, weights)[-1])[-1])
    g.output("row", x)
    g.output("logit", score(g, weights, x))
    return g
