"""The diffusion transformer, in the order in which data flows: text rows, time, the main blocks, the last layer.

A text row is made once for a prompt; a step of the sampler is one pass over text and patches.  Maths and names are
those of ComfyUI's `ldm/krea2/model.py` and of diffusers' `Krea2Transformer2DModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from golem_core import Columns, Device, Graph, Pass, Value, Weight
from golem_krea2.checkpoint import Files
from golem_krea2.lora import PROJECTOR, Lora, Products
from golem_krea2.rows import embedding, patches, unpatched
from golem_krea2.shapes import DiTShape, Heads
from golem_krea2.tensors import Tensors

EPS = 1e-5
THETA = 1000.0
BIASED = frozenset({"first", "tmlp.0", "tmlp.2", "tproj.1", "txtmlp.1", "txtmlp.3", "last.linear"})
STEP = 64
"""Columns by which a pass is made wider when more are needed."""
TOKENS = 64
"""Tokens whose taps go through a pass together."""
KEPT = 4
"""Prompts whose text rows are remembered."""


class Network:
    """What the graphs read: products with the LoRA's change, and norms and modulations with 1 added to the scales."""

    def __init__(self, g: Graph, shape: DiTShape, tensors: Tensors, lora: Lora | None):
        self.g, self.shape, self.tensors = g, shape, tensors
        self.products = Products(g, tensors, lora, BIASED)

    def norm(self, x: Value, name: str) -> Value:
        """x / sqrt(mean(x²) + eps) * (1 + scale)."""
        return self.g.rms_norm(x, self.tensors.derived(f"1 + {name}.scale", self._plus_one), eps=EPS)

    def table(self, name: str, parts: int, scales: tuple[int, ...]) -> Weight:
        """A table of modulation as one vector, with 1 added to those of its parts that scale."""

        def make(key: str) -> Weight:
            values = self.tensors.values(name).reshape(parts, -1).copy()
            values[list(scales)] += 1
            return Weight.of(key, values.reshape(-1))

        return self.tensors.derived(f"1 + {name}", make)

    def _plus_one(self, key: str) -> Weight:
        return Weight.of(key, 1 + self.tensors.values(key.removeprefix("1 + ")))


# ---------------------------------------------------------------- blocks


def attention(n: Network, heads: Heads, name: str, x: Value, turn: Callable[[Value], Value]) -> Value:
    """Over all columns of the conversation, without a mask; the result is gated entry by entry."""
    g = n.g
    q, k, v, gate = n.products(x, f"{name}.wq", f"{name}.wk", f"{name}.wv", f"{name}.gate")
    q = turn(n.norm(q.heads(heads.count), f"{name}.qknorm.qnorm"))
    k = turn(n.norm(k.heads(heads.kv), f"{name}.qknorm.knorm"))
    out = g.attend_columns(q, k, v.heads(heads.kv), scale=1 / sqrt(heads.dim))
    return n.products.one(out * g.sigmoid(gate), f"{name}.wo")


def feed_forward(n: Network, name: str, x: Value) -> Value:
    gate, up = n.products(x, f"{name}.gate", f"{name}.up")
    return n.products.one(n.g.silu(gate) * up, f"{name}.down")


def text_block(n: Network, name: str, x: Value) -> Value:
    x = x + attention(n, n.shape.text, f"{name}.attn", n.norm(x, f"{name}.prenorm"), lambda heads: heads)
    return x + feed_forward(n, f"{name}.mlp", n.norm(x, f"{name}.postnorm"))


def main_block(n: Network, name: str, x: Value, time: Value, turn: Callable[[Value], Value]) -> Value:
    """`time` (6 * width,) of the whole picture scales, shifts and gates both halves."""
    g, width = n.g, n.shape.main.width
    time = time + n.table(f"{name}.mod.lin", 6, scales=(0, 3))
    m = [g.slice(time, i * width, (i + 1) * width) for i in range(6)]
    h = n.norm(x, f"{name}.prenorm") * m[0] + m[1]
    x = x + attention(n, n.shape.main, f"{name}.attn", h, turn) * m[2]
    h = n.norm(x, f"{name}.postnorm") * m[3] + m[4]
    return x + feed_forward(n, f"{name}.mlp", h) * m[5]


# ---------------------------------------------------------------- graphs


def layerwise(shape: DiTShape, tensors: Tensors, lora: Lora | None = None) -> Graph:
    """A conversation is a token and a column one of its taps: input "x" (text width,), output "x" (text width,)."""
    g = Graph()
    n = Network(g, shape, tensors, lora)
    x = g.input("x", (shape.text.width,))
    for i in range(2):
        x = text_block(n, f"txtfusion.layerwise_blocks.{i}", x)
    g.output("x", x)
    return g


def refiner(shape: DiTShape, tensors: Tensors, lora: Lora | None = None) -> Graph:
    """A column is a token: inputs "x" (taps, text width) and "shares" (taps,), output "text" (width,)."""
    g = Graph()
    n = Network(g, shape, tensors, lora)
    x = g.combine(g.input("x", (shape.taps, shape.text.width)), g.input("shares", (shape.taps,)))
    for i in range(2):
        x = text_block(n, f"txtfusion.refiner_blocks.{i}", x)
    x = n.products.one(n.norm(x, "txtmlp.0"), "txtmlp.1")
    g.output("text", n.products.one(g.gelu(x), "txtmlp.3"))
    return g


def step(shape: DiTShape, tensors: Tensors, lora: Lora | None = None) -> Graph:
    """A column is a text token or a patch.

    Inputs: "patch" (4 * channels,), zeros for a token; "text" (width,), a text row less the bias of `first`, zeros for
    a patch; "at" (3,), where a column is in time, height and width; "time" (time,), the embedding of sigma, the same
    for all.  The output "v" (4 * channels,) is a patch of the velocity; what stands there for a token is not read, for
    rows of the patches alone would lie in memory of their own, beside those of all columns.
    """
    g = Graph()
    n = Network(g, shape, tensors, lora)
    at = g.input("at", (3,))
    axes, frequencies = rotations(shape)

    def turn(heads: Value) -> Value:
        return g.rope_at(heads, at, frequencies=frequencies, axes=axes, pairs="neighbours")

    time = g.take(g.input("time", (shape.time,)), "runs")
    t = n.products.one(g.gelu(n.products.one(time, "tmlp.0")), "tmlp.2")
    modulation = n.products.one(g.gelu(t), "tproj.1")
    x = n.products.one(g.input("patch", (4 * shape.channels,)), "first") + g.input("text", (shape.main.width,))
    for i in range(shape.blocks):
        x = main_block(n, f"blocks.{i}", x, modulation, turn)
    time = g.concat(t, t) + n.table("last.modulation.lin", 2, scales=(0,))
    width = shape.main.width
    x = n.norm(x, "last.norm") * g.slice(time, 0, width) + g.slice(time, width, 2 * width)
    g.output("v", n.products.one(x, "last.linear"))
    return g


def rotations(shape: DiTShape) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Axis and radians per position of every pair of neighbouring components of a head."""
    axes, frequencies = [], []
    for axis, dims in enumerate(shape.axes):
        for i in range(dims // 2):
            axes.append(axis)
            frequencies.append(THETA ** (-2 * i / dims))
    return tuple(axes), tuple(frequencies)


class DiT:
    """The network on a device, with a LoRA or without.  One thread uses it at a time.

    The weights are the device's once they are taken over; `close` gives back what passes need.
    """

    def __init__(
        self,
        files: Files,
        device: Device,
        lora: Lora | None = None,
        *,
        columns: int = STEP,
        progress: Callable[[int, int], None] | None = None,
    ):
        """Takes the weights over, ready for pictures of so many columns, text and patches; wider ones take a moment
        more.  `progress(done, total)` counts bytes of weights.

        Raises BadFile for a weight that is no number, Unsupported for what the device cannot run.
        """
        self.shape, self.device, self.lora = files.dit_shape, device, lora
        self._tensors, self._progress = files.dit, progress
        self._passes: dict[str, Pass] = {}
        self._graphs: dict[str, Graph] = {}
        self._texts: dict[tuple[bytes, float], np.ndarray] = {}
        self._given: list[tuple[np.ndarray, int, np.ndarray]] = []
        self._bias = self._tensors.values("first.bias")
        self._step(columns)
        self._layerwise()
        self._refiner(STEP)
        self._close_text()

    def text(self, c: np.ndarray, strength: float = 1.0) -> np.ndarray:
        """The text rows float32 (tokens, width) of a conditioning c (tokens, taps, text width)."""
        key = c.tobytes(), strength if self.lora is not None and self.lora.changes_text else 0.0
        if key not in self._texts:
            while len(self._texts) >= KEPT:
                del self._texts[next(iter(self._texts))]
            self._texts[key] = self._text(np.asarray(c, np.float32), strength)
        return self._texts[key]

    def velocity(self, z: np.ndarray, sigma: float, text: np.ndarray, strength: float = 1.0) -> np.ndarray:
        """dz/dsigma, float32 like the latent z (channels, h, w), h and w even; denoised is z - sigma * velocity."""
        _, h, w = z.shape
        tokens, count = len(text), h // 2 * (w // 2)
        columns = tokens + count
        patch = np.zeros((columns, 4 * self.shape.channels), np.float32)
        patch[tokens:] = patches(z)
        at = np.zeros((columns, 3), np.float32)
        at[tokens:, 1:] = np.indices((h // 2, w // 2)).reshape(2, -1).T
        time = np.broadcast_to(embedding(sigma, self.shape.time), (columns, self.shape.time))
        inputs = {"patch": patch, "at": at, "time": time, "text": self._text_rows(text, columns)}
        out = self._run(self._step(columns), columns, strength, inputs)
        return unpatched(out["v"][tokens:], h, w)

    def forget_texts(self) -> None:
        """Makes text rows again when they are asked for."""
        self._texts.clear()

    def close(self) -> None:
        for each in self._passes.values():
            each.close()
        self._passes, self._graphs, self._texts, self._given = {}, {}, {}, []

    def _text(self, c: np.ndarray, strength: float) -> np.ndarray:
        tokens, taps, width = c.shape
        first, second = self._layerwise(), self._refiner(tokens)
        x = np.empty_like(c)
        for start in range(0, tokens, TOKENS):
            some = c[start : start + TOKENS]
            slots = np.repeat(np.arange(len(some)), taps)
            rows = {"x": some.reshape(-1, width)}
            out = self._run(first, len(slots), strength, rows, position=np.tile(np.arange(taps), len(some)), slot=slots)
            x[start : start + TOKENS] = out["x"].reshape(some.shape)
        shares = self._tensors.values(f"{PROJECTOR}.weight")[0]
        if self.lora is not None:
            shares = self.lora.projector(shares, strength)
        rows = {"x": x, "shares": np.broadcast_to(shares, (tokens, taps))}
        text = self._run(second, tokens, strength, rows)["text"].copy()
        self._close_text()
        return text

    def _close_text(self) -> None:
        """Gives back the memory of the passes that only a new prompt needs."""
        for name in ("layerwise", "refiner"):
            self._passes.pop(name).close()

    def _text_rows(self, text: np.ndarray, columns: int) -> np.ndarray:
        """The input "text": made once for the steps of a picture, so that a device need not copy it again."""
        for known, count, rows in self._given:
            if known is text and count == columns:
                return rows
        rows = np.zeros((columns, self.shape.main.width), np.float32)
        rows[: len(text)] = text - self._bias
        rows.flags.writeable = False
        self._given = [*self._given[-1:], (text, columns, rows)]
        return rows

    def _layerwise(self) -> Pass:
        columns = TOKENS * self.shape.taps
        return self._pass("layerwise", lambda: layerwise(self.shape, self._tensors, self.lora), columns, TOKENS)

    def _refiner(self, tokens: int) -> Pass:
        return self._pass("refiner", lambda: refiner(self.shape, self._tensors, self.lora), tokens)

    def _step(self, columns: int) -> Pass:
        return self._pass("step", lambda: step(self.shape, self._tensors, self.lora), columns)

    def _pass(self, name: str, graph: Callable[[], Graph], columns: int, slots: int = 1) -> Pass:
        """The pass of that name, made again where it is too narrow; its graph is made once, by which a device may know
        what it has worked out."""
        known = self._passes.get(name)
        if known is None or known.width < columns:
            if known is not None:
                known.close()
                del self._passes[name]
            width = columns if slots > 1 else -(-columns // STEP) * STEP
            if name not in self._graphs:
                self._graphs[name] = graph()
            self._passes[name] = known = self.device.compile(
                self._graphs[name], slots=slots, context=width, width=width, scored=1, progress=self._progress
            )
        return known

    def _run(
        self,
        compiled: Pass,
        columns: int,
        strength: float,
        inputs: dict[str, np.ndarray],
        position: np.ndarray | None = None,
        slot: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        if self.lora is not None:
            inputs["strength"] = np.full((columns, 1), strength, np.float32)
        zeros = np.zeros(columns, np.int64)
        return compiled.run(
            Columns(
                token=zeros,
                position=np.arange(columns) if position is None else position,
                slot=zeros if slot is None else slot,
                scored=np.zeros(0, np.int64),
                inputs=inputs,
            )
        )
