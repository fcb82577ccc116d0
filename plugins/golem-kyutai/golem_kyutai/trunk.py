"""The language model: a step reads the text token before and the codes of a frame, and gives logits of a text token.

A column is a step of a stream.  Tensors and maths are those of moshi's `models/lm.py` and `modules/transformer.py`.
"""

from __future__ import annotations

from golem_core import Graph, KVRing, ModelFile, Value, Weight, encoded
from golem_kyutai.checkpoint import Config
from golem_kyutai.mimi import attention_weight

EPS = 1e-8
WEIGHTS = {"bf16": None, "q8_0": "Q8_0", "q4_0": "Q4_0"}
"""How the layers' matrices are kept: as the file has them, or encoded at load."""


def build(cfg: Config, file: ModelFile, weights: str = "bf16") -> Graph:
    """The graph of steps: the token is the text, the input "codes" (codebooks,) the audio; the output is "logits"."""
    w, type_, g = file.weights, WEIGHTS[weights], Graph()
    dim, ffn = cfg.width // cfg.heads, cfg.ffn

    def matrix(weight: Weight) -> Weight:
        return weight if type_ is None else encoded(weight, type_)

    def norm(x: Value, name: str) -> Value:
        return g.rms_norm(x, row(w[name]), eps=EPS)

    codes = g.input("codes", (cfg.codebooks,))
    x = g.embed(w.text_emb)
    for q in range(cfg.codebooks):
        x = x + g.view(g.table_rows(w[f"emb.{q}.weight"], g.slice(codes, q, q + 1)), (cfg.width,))
    for i in range(cfg.layers):
        name = f"transformer.layers.{i}"
        layer = w.scoped(name)
        h = g.linear(norm(x, f"{name}.norm1.alpha"), matrix(attention_weight(layer, "in")))
        q, k, v = (g.slice(h, j * cfg.width, (j + 1) * cfg.width).heads(cfg.heads) for j in range(3))
        q, k = (g.rope(each, base=cfg.base, pairs="neighbours") for each in (q, k))
        cache = g.store(k, v, KVRing(cfg.heads, dim, cfg.context))
        h = g.attend(q, cache, scale=dim**-0.5, window=cfg.context)
        x = x + g.linear(h, matrix(attention_weight(layer, "out")))
        h = g.linear(norm(x, f"{name}.norm2.alpha"), matrix(w[f"{name}.gating.linear_in.weight"]))
        gate, value = g.slice(h, 0, ffn), g.slice(h, ffn, 2 * ffn)
        x = x + g.linear(g.silu(gate) * value, matrix(w[f"{name}.gating.linear_out.weight"]))
    g.output("logits", g.linear(norm(g.take(x), "out_norm.alpha"), w.text_linear))
    return g


def row(weight: Weight) -> Weight:
    """A weight of a single row as a vector."""
    return Weight(weight.name, weight.type, (weight.width,), weight.data)
