"""Qwen3.5 to 3.8, text: the facts of a file, and the graph of its forward pass in the order in which data flows.

Most blocks are gated delta nets (arXiv:2412.06464), every fourth or so gated attention with a partial rotation; the
same maths as transformers' `modeling_qwen3_5.py`.  The block behind them, which predicts further tokens, stands in
`prediction.py`.  With pictures, attention turns heads by places on three axes (arXiv:2409.12191), interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from golem_core import (
    BadFile,
    Graph,
    Keys,
    KVRing,
    ModelFile,
    Recurrent,
    TensorSpec,
    Unsupported,
    Value,
    Weights,
    block_tensors,
    given_places,
    or_given,
    rope_frequencies,
)
from golem_qwen.rotation import Products, Rotation

AXES = 3
"""Where a column stands: in time, from the top of its picture and from its left."""
L2_EPS = 1e-6
"""Of the norms of queries and keys in a delta net, whatever the file says of other norms."""


@dataclass(frozen=True)
class DeltaConfig:
    """Facts of the delta nets; queries and keys have `key_heads` heads, values `heads`, all of size `dim`."""

    key_heads: int
    heads: int
    dim: int
    taps: int

    @classmethod
    def read(cls, keys: Keys) -> DeltaConfig:
        key_heads, heads = keys.count("ssm.group_count"), keys.count("ssm.time_step_rank")
        dim, inner, taps = keys.count("ssm.state_size"), keys.count("ssm.inner_size"), keys.count("ssm.conv_kernel")
        if heads % key_heads:
            raise BadFile(keys.named("ssm.group_count", key_heads) + f", which does not divide {heads} value heads")
        if inner != heads * dim:
            message = keys.named("ssm.inner_size", inner)
            raise Unsupported(f"{message}; golem-qwen needs {heads} value heads of the size {dim} of key heads")
        if taps < 2:
            raise BadFile(keys.named("ssm.conv_kernel", taps) + ", a number of at least 2 was expected")
        return cls(key_heads, heads, dim, taps)

    @property
    def inner(self) -> int:
        return self.heads * self.dim

    @property
    def key_features(self) -> int:
        return self.key_heads * self.dim

    @property
    def features(self) -> int:
        """Of queries, keys and values together, in this order."""
        return 2 * self.key_features + self.inner


@dataclass(frozen=True)
class Qwen35Config:
    """Facts read from the file; tuples have one entry per block of the trunk."""

    vocabulary: int
    context: int
    width: int
    eps: float
    ffn: tuple[int, ...]
    recurrent: tuple[bool, ...]  # whether the block is a delta net
    delta: DeltaConfig
    heads: int
    kv_heads: int
    head_dim: int
    rope_base: float
    rope_dims: int
    sections: tuple[int, ...]  # pairs of components that are turned by time, by row and by column
    predicting: bool  # whether there is a block behind the trunk that predicts further tokens
    predicting_ffn: int  # features of its feed-forward
    rotation: Rotation | None

    @classmethod
    def read(cls, file: ModelFile, vocabulary: int) -> Qwen35Config:
        """Raises BadFile or Unsupported naming the key and its value."""
        keys = Keys(file)
        keys.rope_scale(linear=False)
        total, predicting = keys.count("block_count"), keys.count("nextn_predict_layers", 0, low=0)
        if predicting >= total:
            raise BadFile(keys.named("nextn_predict_layers", predicting) + f", but there are {total} blocks")
        blocks = keys.block_count(predicting) - predicting
        heads = only(keys, "attention.head_count")
        kv_heads = only(keys, "attention.head_count_kv", heads)
        keys.check_heads(heads, kv_heads)
        dim = keys.head_dim()
        rope_dims = keys.rope_dims(dim)
        sections = keys.meta.numbers("rope.dimension_sections", int, [], low=0)
        if sum(sections) > rope_dims // 2:
            message = keys.named("rope.dimension_sections", sections)
            raise BadFile(f"{message}, but {rope_dims // 2} pairs of components are rotated")
        ffn = keys.per_block("feed_forward_length", blocks, behind=predicting)
        return cls(
            vocabulary=vocabulary,
            context=keys.count("context_length"),
            width=keys.count("embedding_length"),
            eps=keys.positive("attention.layer_norm_rms_epsilon"),
            ffn=ffn,
            recurrent=recurrent_blocks(keys, blocks, behind=predicting),
            delta=DeltaConfig.read(keys),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            rope_base=keys.positive("rope.freq_base", 1e7),
            rope_dims=rope_dims,
            sections=(*sections, 0, 0, 0, 0)[:4],
            predicting=predicting == 1 and len(file.weights.blocks) == total,
            predicting_ffn=(keys.counts("feed_forward_length") or ffn)[-1],
            rotation=Rotation.read(file),
        )

    @property
    def blocks(self) -> int:
        """Of the trunk."""
        return len(self.recurrent)

    @property
    def attention_tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what a block of attention has besides the feed-forward and its norms."""
        d, dim = self.width, self.head_dim
        return {
            "attn_q": (2 * self.heads * dim, d),
            "attn_k": (self.kv_heads * dim, d),
            "attn_v": (self.kv_heads * dim, d),
            "attn_q_norm": (dim,),
            "attn_k_norm": (dim,),
            "attn_output": (d, self.heads * dim),
        }

    def feed_forward_tensors(self, ffn: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the norms of a block and of its feed-forward of `ffn` features."""
        d = self.width
        return {
            "attn_norm": (d,),
            "post_attention_norm": (d,),
            "ffn_gate": (ffn, d),
            "ffn_up": (ffn, d),
            "ffn_down": (d, ffn),
        }

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, delta = self.width, self.delta
        yield TensorSpec("token_embd.weight", (self.vocabulary, d))
        yield TensorSpec("output.weight", (self.vocabulary, d), optional=True)
        yield TensorSpec("output_norm.weight", (d,))
        delta_net = {
            "attn_qkv": (delta.features, d),
            "attn_gate": (delta.inner, d),
            "ssm_conv1d": (delta.features, delta.taps),
            "ssm_alpha": (delta.heads, d),
            "ssm_beta": (delta.heads, d),
            "ssm_dt.bias": (delta.heads,),
            "ssm_norm": (delta.dim,),
            "ssm_out": (d, delta.inner),
        }
        for i, (recurrent, ffn) in enumerate(zip(self.recurrent, self.ffn, strict=True)):
            mixer = delta_net if recurrent else self.attention_tensors
            yield from block_tensors(i, mixer | self.feed_forward_tensors(ffn))
            if recurrent:
                yield TensorSpec(f"blk.{i}.ssm_a", (delta.heads,))


def only(keys: Keys, key: str, default: int | None = None) -> int:
    """The number of heads of an attention block; a list has it for every block, 0 where the block has no attention."""
    values = keys.counts(key, low=0)
    if values is None:
        return keys.count(key, default)
    found = set(values) - {0}
    if len(found) != 1:
        raise Unsupported(keys.named(key, values) + "; golem-qwen needs the same number in every block of attention")
    return found.pop()


def recurrent_blocks(keys: Keys, blocks: int, behind: int) -> tuple[bool, ...]:
    """Which blocks are delta nets: as the file lists them, or all but every `full_attention_interval`th.

    Raises BadFile where the tensors disagree.
    """
    interval = keys.count("full_attention_interval", 4)
    every = [(i + 1) % interval != 0 for i in range(blocks)]
    recurrent = keys.flags("attention.recurrent_layers", blocks, every, behind)
    for i, each in enumerate(recurrent):
        if (keys.file.weights.get(f"blk.{i}.ssm_out") is not None) != each:
            kind = "a delta net" if each else "attention"
            raise BadFile(f"{keys.file.path}: block {i} is {kind} by its keys, but not by its tensors")
    return recurrent


def turn(g: Graph, cfg: Qwen35Config, x: Value, at: Value | None) -> Value:
    """Rotates the first components of every head by a column's position, or by where `at` (3,) says that it stands."""
    if at is None:
        return g.rope(x, base=cfg.rope_base, dims=cfg.rope_dims)
    axes = [axis_of(cfg.sections, j) for j in range(cfg.rope_dims // 2)]
    each = rope_frequencies(x.shape[-1], base=cfg.rope_base, dims=cfg.rope_dims, factors=None, scale=1.0).tolist()
    turning = tuple(0.0 if axis is None else frequency for axis, frequency in zip(axes, each, strict=True))
    return g.rope_at(x, at, frequencies=turning, axes=tuple(axis or 0 for axis in axes))


def axis_of(sections: tuple[int, ...], pair: int) -> int | None:
    """The axis by which a pair is turned: the three take turns as long as their sections last.

    None: a fourth, on which everything stands at 0.  (ggml, ggml_rope_multi: the interleaved form)
    """
    number = pair % sum(sections)
    axis = number % AXES
    return axis if number < AXES * sections[axis] else None


def attention(g: Graph, p: Products, cfg: Qwen35Config, w: Weights, x: Value, at: Value | None) -> Value:
    """Every query head comes with a gate of its size, which its result is multiplied by."""
    dim = cfg.head_dim
    both = p.linear(x, w.attn_q).heads(cfg.heads)
    q, gate = g.slice(both, 0, dim), g.slice(both, dim, 2 * dim)
    k, v = (p.linear(x, each).heads(cfg.kv_heads) for each in (w.attn_k, w.attn_v))
    q = turn(g, cfg, g.rms_norm(q, w.attn_q_norm, eps=cfg.eps), at)
    k = turn(g, cfg, g.rms_norm(k, w.attn_k_norm, eps=cfg.eps), at)
    cache = g.store(k, v, KVRing(cfg.kv_heads, dim))
    y = g.attend(q, cache, scale=1 / sqrt(dim))
    return p.linear(y * g.sigmoid(g.view(gate, (gate.size,))), w.attn_output)


def delta_net(g: Graph, p: Products, cfg: Qwen35Config, w: Weights, x: Value) -> Value:
    """Short convolutions of queries, keys and values, the gated delta rule, and a gated norm of what it gives."""
    d = cfg.delta
    window = Recurrent((d.taps - 1, d.features))
    mixed, _ = g.causal_conv1d(p.linear(x, w.attn_qkv), w.ssm_conv1d, window)
    mixed = g.silu(mixed)
    q = g.slice(mixed, 0, d.key_features).heads(d.key_heads)
    k = g.slice(mixed, d.key_features, 2 * d.key_features).heads(d.key_heads)
    v = g.slice(mixed, 2 * d.key_features, d.features).heads(d.heads)
    q, k = g.l2_norm(q, eps=L2_EPS), g.l2_norm(k, eps=L2_EPS)
    beta = g.sigmoid(p.linear(x, w.ssm_beta))
    decay = g.softplus(p.linear(x, w.ssm_alpha, w.get("ssm_dt.bias"))) * w.ssm_a
    state = Recurrent((d.heads, d.dim, d.dim))
    y, _ = g.delta_net(q, k, v, decay, beta, state, scale=1 / sqrt(d.dim))
    z = p.linear(x, w.attn_gate).heads(d.heads)
    y = g.rms_norm(y, w.ssm_norm, eps=cfg.eps) * g.silu(z)
    return p.linear(p.grouped(y, w.ssm_out, d.key_heads), w.ssm_out)


def feed_forward(g: Graph, p: Products, w: Weights, x: Value) -> Value:
    return p.linear(g.silu(p.linear(x, w.ffn_gate)) * p.linear(x, w.ffn_up), w.ffn_down)


def block(
    g: Graph, p: Products, cfg: Qwen35Config, w: Weights, recurrent: bool, x: Value, at: Value | None = None
) -> Value:
    """A block of the trunk; `at` is where the columns stand, None: at their positions."""
    normed = g.rms_norm(x, w.attn_norm, eps=cfg.eps)
    x = x + (delta_net(g, p, cfg, w, normed) if recurrent else attention(g, p, cfg, w, normed, at))
    return x + feed_forward(g, p, w, g.rms_norm(x, w.post_attention_norm, eps=cfg.eps))


def hidden_states(g: Graph, p: Products, cfg: Qwen35Config, weights: Weights, media: bool = False) -> list[Value]:
    """The embedding, then the result of each block of the trunk: (width,) per column.

    With `media`, columns may be rows of pictures, and stand where the pass says.
    """
    x = p.embed(weights.token_embd)
    states, at = [or_given(g, x) if media else x], given_places(g, AXES) if media else None
    for i, recurrent in enumerate(cfg.recurrent):
        states.append(block(g, p, cfg, weights.blocks[i], recurrent, states[-1], at))
    return states


def head(g: Graph, p: Products, cfg: Qwen35Config, weights: Weights, x: Value) -> Value:
    return p.linear(g.rms_norm(x, weights.output_norm, eps=cfg.eps), weights.get("output") or weights.token_embd)


def build(cfg: Qwen35Config, weights: Weights, hidden: bool = False, media: bool = False) -> Graph:
    """The graph of a pass: its output "logits" is (vocabulary,) for each scored column.

    With `hidden` there is one more, "hidden", (width,) for every column: what the logits are computed from.  With
    `media`, it is the graph of a model with a projector.
    """
    g = Graph()
    p = Products(g, cfg.rotation)
    x = hidden_states(g, p, cfg, weights, media)[-1]
    if hidden:
        g.output("hidden", g.rms_norm(x, weights.output_norm, eps=cfg.eps))
    g.output("logits", head(g, p, cfg, weights, g.take(x)))
    return g
