"""The text encoder: the language half of Qwen3-VL, run as far as its last tap.

A tap is the residual stream that enters a layer, not normed.  Maths and names are those of transformers'
`modeling_qwen3_vl.py`; for text its three position axes are one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from golem_core import BadRequest, Columns, Device, Graph, KVRing, Pass, Value
from golem_krea2.checkpoint import Files
from golem_krea2.shapes import EncoderShape
from golem_krea2.tensors import Tensors
from golem_krea2.tokens import LIMIT

EPS = 1e-6
BASE = 5_000_000.0
WIDTH = 256
"""Columns of the pass until a longer prompt comes, and then as many as there may be."""


def attention(g: Graph, shape: EncoderShape, t: Tensors, name: str, x: Value) -> Value:
    def heads(which: str, count: int) -> Value:
        return g.linear(x, t[f"{name}.{which}_proj.weight"]).heads(count)

    q = g.rms_norm(heads("q", shape.heads), t[f"{name}.q_norm.weight"], eps=EPS)
    k = g.rms_norm(heads("k", shape.kv), t[f"{name}.k_norm.weight"], eps=EPS)
    q, k = g.rope(q, base=BASE), g.rope(k, base=BASE)
    cache = g.store(k, heads("v", shape.kv), KVRing(shape.kv, shape.dim))
    return g.linear(g.attend(q, cache, scale=1 / sqrt(shape.dim)), t[f"{name}.o_proj.weight"])


def feed_forward(g: Graph, t: Tensors, name: str, x: Value) -> Value:
    gate, up = (g.linear(x, t[f"{name}.{which}_proj.weight"]) for which in ("gate", "up"))
    return g.linear(g.silu(gate) * up, t[f"{name}.down_proj.weight"])


def graph(shape: EncoderShape, t: Tensors, taps: tuple[int, ...]) -> Graph:
    """A column is a token; the output "K" (width,) is the stream entering layer K, for each tap K."""
    g = Graph()
    x = g.embed(t["embed_tokens.weight"])
    for i in range(max(taps) + 1):
        if i in taps:
            g.output(str(i), x)
        if i == max(taps):
            break
        name = f"layers.{i}"
        x = x + attention(g, shape, t, f"{name}.self_attn", norm(g, t, f"{name}.input_layernorm", x))
        x = x + feed_forward(g, t, f"{name}.mlp", norm(g, t, f"{name}.post_attention_layernorm", x))
    return g


def norm(g: Graph, t: Tensors, name: str, x: Value) -> Value:
    return g.rms_norm(x, t[f"{name}.weight"], eps=EPS)


class Encoder:
    """The encoder on a device.  `brackets`: whether a prompt's brackets are taken out as ComfyUI's weights are.

    One thread uses it at a time.  The weights are the device's; `close` gives back what passes need.
    """

    def __init__(
        self,
        files: Files,
        device: Device,
        *,
        brackets: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ):
        """Takes the weights over.  `progress(done, total)` counts their bytes.

        Raises BadFile for a weight that is no number, Unsupported for what the device cannot run.
        """
        self._tokens, self._brackets, self._taps = files.tokens, brackets, files.taps
        self._device, self._progress = device, progress
        self._graph = graph(files.encoder_shape, files.encoder, files.taps)
        self._pass = self._compiled(WIDTH)

    def encode(self, prompt: str) -> np.ndarray:
        """The conditioning of a prompt, float32 (tokens, taps, width), without the tokens before the prompt.

        Raises BadRequest for a prompt of too many tokens, or brackets too deep to be taken out.
        """
        ids, start = self._tokens.prompt(prompt, brackets=self._brackets)
        if len(ids) > LIMIT:
            raise BadRequest(f"prompt: {len(ids)} tokens with what stands around it, at most {LIMIT}", param="prompt")
        if len(ids) > self._pass.width:
            self._pass.close()
            self._pass = self._compiled(LIMIT)
        n = np.arange(len(ids))
        out = self._pass.run(Columns(token=np.array(ids), position=n, slot=0 * n))
        return np.stack([out[str(tap)][start:] for tap in self._taps], 1)

    def close(self) -> None:
        self._pass.close()

    def _compiled(self, width: int) -> Pass:
        return self._device.compile(self._graph, context=width, width=width, progress=self._progress)
