"""Llama: the facts of a file, and the graph of its forward pass in the order in which data flows.

Files of the architecture `llama` are Llama 1 to 3, SmolLM2, Mixtral and many others: pre-norm blocks, rotary
positions in neighbouring pairs, grouped keys and values (arXiv:2302.13971, arXiv:2401.04088).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import sqrt

from golem_core import BadFile, Graph, KVRing, ModelFile, Unsupported, Value, Weights

POSITIVE = {"low": 1e-30, "high": 1e30}
"""Bounds of what must be above 0: float32 holds it, and its inverse too."""


@dataclass(frozen=True)
class LlamaConfig:
    """Facts read from the file, under names near its own."""

    vocabulary: int
    context: int
    width: int
    blocks: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_base: float
    rope_dims: int
    rope_scale: float
    experts: int
    experts_used: int

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> LlamaConfig:
        """Raises BadFile or Unsupported naming the key and its value."""
        m = file.metadata.scoped("llama")
        width, heads = m.number("embedding_length", int, low=1), one(file, "attention.head_count")
        kv_heads = one(file, "attention.head_count_kv", heads)
        if heads % kv_heads:
            raise m.bad("attention.head_count_kv", kv_heads, f"which does not divide {heads} heads")
        head_dim = m.number("attention.key_length", int, width // heads, low=1)
        rope_dims = m.number("rope.dimension_count", int, head_dim)
        if rope_dims % 2 or not 0 < rope_dims <= head_dim:
            raise m.bad("rope.dimension_count", rope_dims, f"but heads have {head_dim}")
        value = m.number("attention.value_length", int, head_dim)
        if value != head_dim:
            raise Unsupported(f"{file.path}: llama.attention.value_length is {value}, but keys have {head_dim}")
        scaling, factor = m.text("rope.scaling.type", "none"), m.number("rope.scaling.factor", float, 1.0, **POSITIVE)
        if scaling not in ("none", "linear"):
            raise Unsupported(f"{file.path}: llama.rope.scaling.type is {scaling!r}; golem-llama knows 'linear'")
        experts, used = m.number("expert_count", int, 0, low=0), m.number("expert_used_count", int, 0, low=0)
        if experts and not 0 < used <= experts:
            raise m.bad("expert_used_count", used, f"but there are {experts} experts")
        return cls(
            vocabulary=vocabulary,
            context=m.number("context_length", int, low=1),
            width=width,
            blocks=m.number("block_count", int, low=1),
            ffn=one(file, "feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            eps=m.number("attention.layer_norm_rms_epsilon", float, **POSITIVE),
            rope_base=m.number("rope.freq_base", float, 10_000.0, **POSITIVE),
            rope_dims=rope_dims,
            rope_scale=1 / factor if scaling == "linear" else 1.0,
            experts=experts,
            experts_used=used,
        )

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor that a file must hold, and its shape: (outputs, inputs) for a matrix."""
        d, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield from {"token_embd.weight": (self.vocabulary, d), "output_norm.weight": (d,)}.items()
        if self.experts:
            e, f = self.experts, self.ffn
            mlp = {"ffn_gate_inp": (e, d), "ffn_gate_exps": (e, f, d), "ffn_up_exps": (e, f, d)}
            mlp["ffn_down_exps"] = (e, d, f)
        else:
            mlp = {"ffn_gate": (self.ffn, d), "ffn_up": (self.ffn, d), "ffn_down": (d, self.ffn)}
        attention = {"attn_norm": (d,), "attn_q": (q, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, q)}
        for i in range(self.blocks):
            for name, shape in (attention | {"ffn_norm": (d,)} | mlp).items():
                yield f"blk.{i}.{name}.weight", shape


def one(file: ModelFile, key: str, default: int | None = None) -> int:
    """A number that a file may also give as a list with an entry per block; here every block has the same."""
    m = file.metadata.scoped("llama")
    if not isinstance(m.get(key), list):
        return m.number(key, int, low=1) if default is None else m.number(key, int, default, low=1)
    values = m.numbers(key, int, low=1)
    if len(set(values)) != 1:
        raise Unsupported(str(m.bad(key, values, "golem-llama needs the same in every block")))
    return values[0]


def verify(file: ModelFile, cfg: LlamaConfig) -> None:
    """Raises BadFile naming the number of blocks, or the first tensor that is missing or not of its shape."""
    # First: what a count of billions would have looked for would never end.
    if len(file.weights.blocks) != cfg.blocks:
        raise BadFile(
            f"{file.path}: llama.block_count is {cfg.blocks}, but there are {len(file.weights.blocks)} blocks"
        )
    optional = {"output.weight": (cfg.vocabulary, cfg.width), "rope_freqs.weight": (cfg.rope_dims // 2,)}
    for name, shape in chain(cfg.shapes(), optional.items()):
        weight = file.weights.get(name)
        if weight is None and name not in optional:
            raise BadFile(f"{file.path}: the tensor {name!r} is missing")
        if weight is not None and weight.shape != shape:
            raise BadFile(f"{file.path}: {name} has the shape {weight.shape}, its keys say {shape}")
        bias = file.weights.get(name.removesuffix("weight") + "bias")
        if bias is not None and bias.shape != shape[:1]:
            raise BadFile(f"{file.path}: {bias.name} has the shape {bias.shape}, its matrix {shape}")


def linear(g: Graph, w: Weights, x: Value, name: str) -> Value:
    """A product, with its bias where the file has one."""
    return g.linear(x, getattr(w, name), w.get(f"{name}.bias"))


def attention(g: Graph, cfg: LlamaConfig, weights: Weights, w: Weights, x: Value) -> Value:
    def turned(value: Value) -> Value:
        factors = weights.get("rope_freqs")
        return g.rope(
            value, base=cfg.rope_base, dims=cfg.rope_dims, pairs="neighbours", factors=factors, scale=cfg.rope_scale
        )

    q = linear(g, w, x, "attn_q").heads(cfg.heads)
    k = linear(g, w, x, "attn_k").heads(cfg.kv_heads)
    v = linear(g, w, x, "attn_v").heads(cfg.kv_heads)
    cache = g.store(turned(k), v, KVRing(cfg.kv_heads, cfg.head_dim))
    y = g.attend(turned(q), cache, scale=1 / sqrt(cfg.head_dim))
    return linear(g, w, y, "attn_output")


def feed_forward(g: Graph, w: Weights, x: Value) -> Value:
    return linear(g, w, g.silu(linear(g, w, x, "ffn_gate")) * linear(g, w, x, "ffn_up"), "ffn_down")


def mixture(g: Graph, cfg: LlamaConfig, w: Weights, x: Value) -> Value:
    ids, shares = g.route(g.linear(x, w.ffn_gate_inp), count=cfg.experts_used)
    gate, up = g.expert_linear(x, w.ffn_gate_exps, ids), g.expert_linear(x, w.ffn_up_exps, ids)
    return g.combine(g.expert_linear(g.silu(gate) * up, w.ffn_down_exps, ids), shares)


def block(g: Graph, cfg: LlamaConfig, weights: Weights, w: Weights, x: Value) -> Value:
    x = x + attention(g, cfg, weights, w, g.rms_norm(x, w.attn_norm, eps=cfg.eps))
    n = g.rms_norm(x, w.ffn_norm, eps=cfg.eps)
    return x + (mixture(g, cfg, w, n) if cfg.experts else feed_forward(g, w, n))


def hidden_states(g: Graph, cfg: LlamaConfig, weights: Weights) -> list[Value]:
    """The embedding, then the result of each block: (width,) per column."""
    states = [g.embed(weights.token_embd)]
    for w in weights.blocks:
        states.append(block(g, cfg, weights, w, states[-1]))
    return states


def build(cfg: LlamaConfig, weights: Weights) -> Graph:
    """The graph of a pass: its output "logits" is (vocabulary,) for each scored column."""
    g = Graph()
    x = g.rms_norm(g.take(hidden_states(g, cfg, weights)[-1]), weights.output_norm, eps=cfg.eps)
    g.output("logits", g.linear(x, weights.get("output") or weights.token_embd))
    return g
