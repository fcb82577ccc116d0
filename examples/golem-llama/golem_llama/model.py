"""Llama: the facts of a file, and the graph of its forward pass in the order in which data flows.

Files of the architecture `llama` are Llama 1 to 3, SmolLM2, Mixtral and many others: pre-norm blocks, rotary
positions in neighbouring pairs, grouped keys and values (arXiv:2302.13971, arXiv:2401.04088).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from golem_core import BadFile, Graph, Keys, KVRing, ModelFile, TensorSpec, Unsupported, Value, Weights, block_tensors


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
        keys = Keys(file)
        blocks, width = keys.block_count(), keys.count("embedding_length")
        heads = only(keys, "attention.head_count", blocks)
        kv_heads = only(keys, "attention.head_count_kv", blocks, heads)
        keys.check_heads(heads, kv_heads)
        head_dim = keys.head_dim(default=width // heads)
        experts, used = keys.count("expert_count", 0, low=0), keys.count("expert_used_count", 0, low=0)
        if experts and not 0 < used <= experts:
            raise BadFile(keys.named("expert_used_count", used) + f", but there are {experts} experts")
        return cls(
            vocabulary=vocabulary,
            context=keys.count("context_length"),
            width=width,
            blocks=blocks,
            ffn=only(keys, "feed_forward_length", blocks),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            eps=keys.positive("attention.layer_norm_rms_epsilon"),
            rope_base=keys.positive("rope.freq_base", 10_000.0),
            rope_dims=keys.rope_dims(head_dim),
            rope_scale=keys.rope_scale(linear=True),
            experts=experts,
            experts_used=used,
        )

    def tensors(self) -> Iterator[TensorSpec]:
        """What a file must hold, and what it may: a matrix (outputs, inputs) of a block may have a bias."""
        d, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("output_norm.weight", (d,))
        yield TensorSpec("output.weight", (self.vocabulary, d), optional=True)
        yield TensorSpec("rope_freqs.weight", (self.rope_dims // 2,), optional=True)
        matrices = {"attn_q": (q, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, q)}
        others: dict[str, tuple[int, ...]] = {"attn_norm": (d,), "ffn_norm": (d,)}
        if self.experts:
            e, f = self.experts, self.ffn
            others |= {"ffn_gate_inp": (e, d), "ffn_gate_exps": (e, f, d), "ffn_up_exps": (e, f, d)}
            others["ffn_down_exps"] = (e, d, f)
        else:
            matrices |= {"ffn_gate": (self.ffn, d), "ffn_up": (self.ffn, d), "ffn_down": (d, self.ffn)}
        for i in range(self.blocks):
            yield from block_tensors(i, others | matrices)
            for name, shape in matrices.items():
                yield TensorSpec(f"blk.{i}.{name}.bias", shape[:1], optional=True)


def only(keys: Keys, key: str, blocks: int, default: int | None = None) -> int:
    """A number that a file may also give as a list with an entry per block; here every block has the same."""
    values = keys.per_block(key, blocks, None if default is None else [default] * blocks)
    if len(set(values)) != 1:
        raise Unsupported(keys.named(key, list(values)) + "; golem-llama needs the same in every block")
    return values[0]


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
