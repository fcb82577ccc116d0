"""Gemma 4's vision tower: a picture's patches, each attending to all, pooled to rows of the language model.

The same maths as transformers' `Gemma4VisionModel`; pictures are fitted to whole patches as llama.cpp does it, without
stretching them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, floor, inf, sqrt

import numpy as np

from golem_core import (
    BadFile,
    BadRequest,
    Columns,
    Graph,
    Keys,
    MediaGraph,
    ModelFile,
    RunGraph,
    TensorSpec,
    Value,
    Weight,
    Weights,
    check_tensors,
    resize_picture,
)

LEAST_ROWS, MOST_ROWS = 70, 280
"""Rows of a picture: what it is enlarged to, and shrunk to."""
ROPE_BASE = 100.0


@dataclass(frozen=True)
class Reader:
    """How media become rows: the parts of a `MediaKind` that do not depend on the model's vocabulary."""

    graphs: Mapping[str, MediaGraph]
    count: Callable[[np.ndarray], int]
    encode: Callable[[np.ndarray, RunGraph], np.ndarray]
    most: int


@dataclass(frozen=True)
class Pixels:
    """How a picture is cut: into patches of `patch` pixels a side, of which `pool` a side become one row.

    `places` is how many patches a side may have; `mean` and `std` are of each colour.
    """

    patch: int
    pool: int
    places: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def read(cls, keys: Keys, patch: int, pool: int, places: int) -> Pixels:
        return cls(patch, pool, places, *keys.colours((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))

    @property
    def unit(self) -> int:
        """Pixels of a side that become one row."""
        return self.patch * self.pool

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        """The size that a picture is fitted into, in whole units, of about as many rows as are wanted."""
        unit = self.unit
        w, h = (max(unit, floor(side / unit + 0.5) * unit) for side in (width, height))
        if w * h > MOST_ROWS * unit**2:
            shrink = sqrt(width * height / (MOST_ROWS * unit**2))
            return max(unit, floor(width / shrink / unit) * unit), max(unit, floor(height / shrink / unit) * unit)
        if w * h < LEAST_ROWS * unit**2:
            grow = sqrt(LEAST_ROWS * unit**2 / (width * height))
            return ceil(width * grow / unit) * unit, ceil(height * grow / unit) * unit
        return w, h

    def count(self, picture: np.ndarray) -> int:
        height, width = picture.shape[:2]
        w, h = self.canvas(width, height)
        rows = w * h // self.unit**2
        if rows > MOST_ROWS or max(w, h) // self.patch > self.places:
            raise BadRequest(f"a picture of {width} × {height} pixels is too long and narrow")
        return rows

    def fitted(self, picture: np.ndarray) -> np.ndarray:
        """The picture on its canvas, the rest black, without mean and deviation: float32 (height, width, 3)."""
        height, width = picture.shape[:2]
        w, h = self.canvas(width, height)
        scale = min(w / width, h / height)
        inner = resize_picture(picture, min(ceil(width * scale), w), min(ceil(height * scale), h))
        canvas = np.zeros((h, w, 3), np.uint8)
        top, left = (h - inner.shape[0]) // 2, (w - inner.shape[1]) // 2
        canvas[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return (canvas.astype(np.float32) / 255 - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)

    def patches(self, canvas: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Patches (n, 3 * patch * patch), colour by colour, with the column and the row of each (n,).

        Those that become one row of the language model lie together.
        """
        h, w, _ = canvas.shape
        p, m = self.patch, self.pool
        rows, cols = h // (p * m), w // (p * m)
        cut = canvas.reshape(rows, m, p, cols, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        row, col = np.indices((h // p, w // p))
        order = lambda each: each.reshape(rows, m, cols, m).transpose(0, 2, 1, 3).reshape(-1)
        return np.ascontiguousarray(cut).reshape(-1, 3 * p * p), order(col), order(row)


@dataclass(frozen=True)
class Tower:
    """Facts read from the file."""

    width: int
    out: int
    blocks: int
    heads: int
    ffn: int
    eps: float
    silu: bool
    pixels: Pixels

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @classmethod
    def read(cls, keys: Keys, out: int) -> Tower:
        width, heads = keys.count("vision.embedding_length"), keys.count("vision.attention.head_count")
        if width % heads or width // heads % 4:
            raise BadFile(keys.named("vision.attention.head_count", heads) + f", but embedding_length is {width}")
        table = keys.file.weights.get("v.position_embd")
        places = table.shape[1] if table is not None and len(table.shape) == 3 else 1
        return cls(
            width=width,
            out=out,
            blocks=keys.part_blocks("vision.block_count", "v.blk.{}.ln1.weight"),
            heads=heads,
            ffn=keys.count("vision.feed_forward_length"),
            eps=keys.positive("vision.attention.layer_norm_epsilon", 1e-6),
            silu=keys.meta.flag("use_silu", False),
            pixels=Pixels.read(
                keys, keys.count("vision.patch_size"), keys.count("vision.projector.scale_factor", 3), places
            ),
        )

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, patch = self.width, self.pixels.patch
        yield TensorSpec("v.patch_embd.weight", (d, 3, patch, patch))
        yield TensorSpec("v.position_embd.weight", (2, self.pixels.places, d))
        yield TensorSpec("mm.input_projection.weight", (self.out, d))
        yield TensorSpec("v.std_bias", (d,), optional=True)
        yield TensorSpec("v.std_scale", (d,), optional=True)
        shapes: dict[str, tuple[int, ...]] = {name: (d, d) for name in ("attn_q", "attn_k", "attn_v", "attn_out")}
        shapes |= {name: (d,) for name in ("ln1", "ln2", "attn_post_norm", "ffn_post_norm")}
        shapes |= {"attn_q_norm": (self.head_dim,), "attn_k_norm": (self.head_dim,)}
        shapes |= {"ffn_gate": (self.ffn, d), "ffn_up": (self.ffn, d), "ffn_down": (d, self.ffn)}
        for i in range(self.blocks):
            for name, shape in shapes.items():
                yield TensorSpec(f"v.blk.{i}.{name}.weight", shape)


def read(keys: Keys, out: int) -> Reader:
    """The tower of a projector for a model whose rows have `out` numbers."""
    tower, weights = Tower.read(keys, out), keys.file.weights
    check_tensors(keys.file, tower.tensors())
    check_bounds(keys.file)
    pixels = tower.pixels
    patches = MOST_ROWS * pixels.pool**2
    graphs = {
        "tower": MediaGraph(partial(build, tower, weights), patches),
        "rows": MediaGraph(partial(build_rows, tower, weights), patches, MOST_ROWS),
    }
    return Reader(graphs, pixels.count, partial(encode, tower), MOST_ROWS)


def encode(tower: Tower, picture: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a picture, float32 (rows, out), from left to right and from top to bottom."""
    patches, col, row = tower.pixels.patches(tower.pixels.fitted(picture))
    states = run("tower", columns(tower, patches, col, row))["states"]
    square = np.arange(len(patches)) // tower.pixels.pool**2
    place = np.arange(len(patches)) % tower.pixels.pool**2
    return run("rows", Columns(np.zeros_like(square), place, square, inputs={"states": states}))["rows"]


def columns(tower: Tower, patches: np.ndarray, col: np.ndarray, row: np.ndarray) -> Columns:
    """One column for each patch (n, 3 * patch * patch), whose values lie around 0 to 1."""
    n = len(patches)
    inputs = {
        "patch": 2 * patches - 1,
        "place": np.stack([col, row + tower.pixels.places], 1),
        "at": np.stack([col, row], 1),
    }
    return Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs=inputs)


# ---------------------------------------------------------------- graphs


def bounded(g: Graph, weights: Weights, name: str, x: Value) -> Value:
    """x between the numbers that the file has under `name`, if it has any."""
    low, high = bounds(weights, name)
    return x if (low, high) == (-inf, inf) else g.clip(x, low=low, high=high)


def bounds(weights: Weights, name: str) -> tuple[float, float]:
    """The least and the largest number of `name`, infinite where the file says nothing."""
    low, high = weights.get(f"{name}_min"), weights.get(f"{name}_max")
    number = lambda weight: float(weight.dequantize().reshape(-1)[0])
    return -inf if low is None else number(low), inf if high is None else number(high)


def check_bounds(file: ModelFile) -> None:
    """Raises BadFile naming bounds that no number lies between."""
    for name in dict.fromkeys(re.sub(r"_(min|max)(\.weight)?$", "", each) for each in file.weights):
        low, high = bounds(file.weights, name)
        if not low <= high:
            raise BadFile(f"{file.path}: {name}_min is {low} and {name}_max is {high}; no number lies between them")


def linear(g: Graph, weights: Weights, name: str, x: Value) -> Value:
    """A product whose inputs and results may be bounded."""
    weight = weights.get(name)
    assert weight is not None
    y = g.linear(bounded(g, weights, f"{name}.input", x), weight)
    return bounded(g, weights, f"{name}.output", y)


def turn(g: Graph, x: Value, at: Value) -> Value:
    """Rotates one half of a head by the patch's column and the other by its row, in pairs of its quarters."""
    quarter = x.shape[-1] // 4
    frequencies = tuple(ROPE_BASE ** (-j / quarter) for j in range(quarter))
    return g.rope_at(x, at, frequencies=frequencies * 2, axes=(0,) * quarter + (1,) * quarter, blocks=2)


def attention(g: Graph, tower: Tower, w: Weights, x: Value, at: Value) -> Value:
    q, k, v = (linear(g, w, name, x).heads(tower.heads) for name in ("attn_q", "attn_k", "attn_v"))
    q = turn(g, g.rms_norm(q, w.attn_q_norm, eps=tower.eps), at)
    k = turn(g, g.rms_norm(k, w.attn_k_norm, eps=tower.eps), at)
    return linear(g, w, "attn_out", g.attend_columns(q, k, g.rms_norm(v, eps=tower.eps), scale=1.0))


def feed_forward(g: Graph, tower: Tower, w: Weights, x: Value) -> Value:
    gate, up = linear(g, w, "ffn_gate", x), linear(g, w, "ffn_up", x)
    return linear(g, w, "ffn_down", (g.silu(gate) if tower.silu else g.gelu(gate)) * up)


def hidden_states(g: Graph, tower: Tower, weights: Weights) -> list[Value]:
    """What the patches become at first, then after each block: (width,) per patch."""
    d, table = tower.width, weights.get("v.position_embd.weight")
    assert table is not None
    places = g.table_rows(replace(table, shape=(2 * tower.pixels.places, d)), g.input("place", (2,)))
    flat = g.view(places, (2 * d,))
    patch = g.input("patch", (3 * tower.pixels.patch**2,))
    kernel = weights.get("v.patch_embd.weight")
    assert kernel is not None
    x = g.linear(patch, replace(kernel, shape=(d, 3 * tower.pixels.patch**2)))
    states = [x + (g.slice(flat, 0, d) + g.slice(flat, d, 2 * d))]
    at = g.input("at", (2,))
    for i in range(tower.blocks):
        w, x = weights.scoped(f"v.blk.{i}"), states[-1]
        y = attention(g, tower, w, g.rms_norm(x, w.ln1, eps=tower.eps), at)
        x = x + g.rms_norm(y, w.attn_post_norm, eps=tower.eps)
        y = feed_forward(g, tower, w, g.rms_norm(x, w.ln2, eps=tower.eps))
        states.append(x + g.rms_norm(y, w.ffn_post_norm, eps=tower.eps))
    return states


def build(tower: Tower, weights: Weights) -> Graph:
    """The tower itself: its output "states" has (width,) for each patch."""
    g = Graph()
    g.output("states", hidden_states(g, tower, weights)[-1])
    return g


def build_rows(tower: Tower, weights: Weights) -> Graph:
    """From the states of patches, those of a row together, to the rows: (out,) for each."""
    g = Graph()
    x = g.scale(g.pool(g.input("states", (tower.width,)), "mean"), by=sqrt(tower.width))
    bias, scale = weights.get("v.std_bias"), weights.get("v.std_scale")
    if bias is not None:
        x = x + Weight.of("minus v.std_bias", -bias.dequantize())
    if scale is not None:
        x = x * scale
    g.output("rows", linear(g, weights, "mm.input_projection", g.rms_norm(x, eps=tower.eps)))
    return g
