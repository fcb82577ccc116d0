"""The prediction block of Qwen3.5 to 3.8: from a token and what the trunk made of the one before it to the token after.

A block of gated attention behind the trunk, over the token's embedding beside that hidden row; the same maths as
vLLM's `qwen3_5_mtp.py`.  It has keys and values of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from golem_core import Graph, TensorSpec, Weights, block_tensors
from golem_qwen.qwen35 import Qwen35Config, block
from golem_qwen.rotation import Products


def tensors(cfg: Qwen35Config) -> Iterator[TensorSpec]:
    """What the file must hold for the block behind the trunk."""
    i, d = cfg.blocks, cfg.width
    yield from block_tensors(i, cfg.attention_tensors | cfg.feed_forward_tensors(cfg.predicting_ffn))
    yield TensorSpec(f"blk.{i}.nextn.eh_proj.weight", (d, 2 * d))
    yield TensorSpec(f"blk.{i}.nextn.enorm.weight", (d,))
    yield TensorSpec(f"blk.{i}.nextn.hnorm.weight", (d,))
    yield TensorSpec(f"blk.{i}.nextn.shared_head_norm.weight", (d,), optional=True)
    yield TensorSpec(f"blk.{i}.nextn.embed_tokens.weight", (cfg.vocabulary, d), optional=True)
    yield TensorSpec(f"blk.{i}.nextn.shared_head_head.weight", (cfg.vocabulary, d), optional=True)


def build(cfg: Qwen35Config, weights: Weights) -> Graph:
    """The graph of a guess, as `Drafting.guess` wants it: a column is a position of the trunk.

    Its token is the one after that position and its "hidden" (width,) the trunk's row of it.  The outputs, for scored
    columns, are "logits" (vocabulary,) over the token after that and "hidden" (width,) in place of the trunk's.
    """
    g = Graph()
    p = Products(g, cfg.rotation)
    w = weights.blocks[cfg.blocks]
    nextn = w.scoped("nextn")
    token = g.rms_norm(p.embed(nextn.get("embed_tokens") or weights.token_embd), nextn.enorm, eps=cfg.eps)
    before = g.rms_norm(g.input("hidden", (cfg.width,)), nextn.hnorm, eps=cfg.eps)
    x = p.linear(g.concat(token, before), nextn.eh_proj)
    x = g.take(block(g, p, cfg, w, False, x))
    x = g.rms_norm(x, nextn.get("shared_head_norm") or weights.output_norm, eps=cfg.eps)
    g.output("hidden", x)
    g.output("logits", p.linear(x, nextn.get("shared_head_head") or weights.get("output") or weights.token_embd))
    return g
