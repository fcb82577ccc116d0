"""The vision tower of Qwen3.5 to 3.8: a picture's patches, each attending to all, four of them merged to a row.

The same maths as transformers' `Qwen3_5VisionModel`; pictures are fitted to whole rows as llama.cpp does it, without
stretching them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, isqrt, sqrt

import numpy as np

from golem_core import (
    BadFile,
    BadRequest,
    Columns,
    Graph,
    Keys,
    MediaGraph,
    RunGraph,
    TensorSpec,
    Unsupported,
    Value,
    Weight,
    Weights,
    check_tensors,
    resize_picture,
)

LEAST_ROWS, MOST_ROWS = 8, 4096
"""Rows of a picture: what it is enlarged to, and shrunk to."""
ROPE_BASE = 10_000.0
HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Tower:
    """Facts read from the file.  `patch` pixels a side are a patch, `merge` patches a side a row of `out` numbers;
    `table` positions a side have learned embeddings."""

    width: int
    out: int
    blocks: int
    heads: int
    ffn: int
    eps: float
    patch: int
    merge: int
    table: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def unit(self) -> int:
        """Pixels of a side that become one row."""
        return self.patch * self.merge

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def merged(self) -> int:
        """Numbers of the patches of a row together."""
        return self.merge**2 * self.width

    @classmethod
    def read(cls, keys: Keys, out: int) -> Tower:
        """Raises BadFile or Unsupported naming the key and its value."""
        width, heads = keys.count("vision.embedding_length"), keys.count("vision.attention.head_count")
        if width % heads or width // heads % 4:
            raise BadFile(keys.named("vision.attention.head_count", heads) + f", but embedding_length is {width}")
        blocks = keys.part_blocks("vision.block_count", "v.blk.{}.ln1.weight")
        if any(deep := keys.flags("vision.is_deepstack_layers", blocks, [False] * blocks)):
            raise Unsupported(keys.named("vision.is_deepstack_layers", list(deep)) + "; golem-qwen reads none of these")
        positions = keys.file.weights.get("v.position_embd.weight")
        table = isqrt(positions.shape[0]) if positions is not None else 0
        if positions is not None and table**2 != positions.shape[0]:
            raise BadFile(f"{keys.file.path}: {positions.name} has {positions.shape[0]} rows, which are no square")
        mean, std = keys.colours(HALF, HALF)
        return cls(
            width=width,
            out=out,
            blocks=blocks,
            heads=heads,
            ffn=keys.count("vision.feed_forward_length"),
            eps=keys.positive("vision.attention.layer_norm_epsilon", 1e-6),
            patch=keys.count("vision.patch_size"),
            merge=keys.count("vision.spatial_merge_size", 2),
            table=table,
            mean=mean,
            std=std,
        )

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, merged = self.width, self.merged
        for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
            yield TensorSpec(name, (d, 3, self.patch, self.patch))
        yield TensorSpec("v.patch_embd.bias", (d,))
        yield TensorSpec("v.position_embd.weight", (self.table**2, d))
        matrices = {"attn_qkv": (3 * d, d), "attn_out": (d, d), "ffn_up": (self.ffn, d), "ffn_down": (d, self.ffn)}
        for i in range(self.blocks):
            for name in ("ln1", "ln2"):
                yield from (TensorSpec(f"v.blk.{i}.{name}.{end}", (d,)) for end in ("weight", "bias"))
            for name, shape in matrices.items():
                yield TensorSpec(f"v.blk.{i}.{name}.weight", shape)
                yield TensorSpec(f"v.blk.{i}.{name}.bias", shape[:1])
        yield from (TensorSpec(f"v.post_ln.{end}", (d,)) for end in ("weight", "bias"))
        for number, out in ((0, merged), (2, self.out)):
            yield TensorSpec(f"mm.{number}.weight", (out, merged))
            yield TensorSpec(f"mm.{number}.bias", (out,))

    # ------------------------------------------------------------ pictures

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        """The size that a picture is fitted into, in whole units, of no more and no fewer rows than are wanted."""
        unit = self.unit
        w, h = (max(unit, floor(side / unit + 0.5) * unit) for side in (width, height))
        if w * h > MOST_ROWS * unit**2:
            shrink = sqrt(width * height / (MOST_ROWS * unit**2))
            return max(unit, floor(width / shrink / unit) * unit), max(unit, floor(height / shrink / unit) * unit)
        if w * h < LEAST_ROWS * unit**2:
            grow = sqrt(LEAST_ROWS * unit**2 / (width * height))
            return ceil(width * grow / unit) * unit, ceil(height * grow / unit) * unit
        return w, h

    def grid(self, picture: np.ndarray) -> tuple[int, int]:
        """(rows, columns) of rows that a picture becomes.  Raises BadRequest for one of an impossible shape."""
        height, width = picture.shape[:2]
        w, h = self.canvas(width, height)
        if w * h > MOST_ROWS * self.unit**2:
            raise BadRequest(f"a picture of {width} × {height} pixels is too long and narrow")
        return h // self.unit, w // self.unit

    def count(self, picture: np.ndarray) -> int:
        rows, cols = self.grid(picture)
        return rows * cols

    def places(self, picture: np.ndarray) -> np.ndarray:
        """Of each row its time, which is the same for all, and where it stands from the top and from the left."""
        row, col = (each.reshape(-1) for each in np.indices(self.grid(picture)))
        return np.stack([np.zeros_like(row), row, col], 1)

    def fitted(self, picture: np.ndarray) -> np.ndarray:
        """The picture on its canvas, the rest black, less the mean and by the deviation: float32 (height, width, 3)."""
        height, width = picture.shape[:2]
        w, h = self.canvas(width, height)
        scale = min(w / width, h / height)
        inner = resize_picture(picture, min(ceil(width * scale), w), min(ceil(height * scale), h), how="bilinear")
        canvas = np.zeros((h, w, 3), np.uint8)
        top, left = (h - inner.shape[0]) // 2, (w - inner.shape[1]) // 2
        canvas[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return (canvas.astype(np.float32) / 255 - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)

    def patches(self, canvas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Patches (n, 3 * patch * patch), colour by colour, with the row and the column of each (n, 2).

        Those that become one row of the language model lie together.
        """
        h, w, _ = canvas.shape
        p, m = self.patch, self.merge
        rows, cols = h // (p * m), w // (p * m)
        cut = canvas.reshape(rows, m, p, cols, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        at = np.moveaxis(np.indices((h // p, w // p)), 0, -1)
        at = at.reshape(rows, m, cols, m, 2).transpose(0, 2, 1, 3, 4)
        return np.ascontiguousarray(cut).reshape(-1, 3 * p * p), at.reshape(-1, 2)


def graphs(tower: Tower, weights: Weights) -> dict[str, MediaGraph]:
    patches = MOST_ROWS * tower.merge**2
    return {
        "tower": MediaGraph(partial(build, tower, weights), patches),
        "rows": MediaGraph(partial(build_rows, tower, weights), MOST_ROWS),
    }


def read(keys: Keys, out: int) -> Tower:
    """The tower of a projector for a model whose rows have `out` numbers."""
    tower = Tower.read(keys, out)
    check_tensors(keys.file, tower.tensors())
    return tower


def encode(tower: Tower, weights: Weights, picture: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a picture, float32 (rows, out), from left to right and from top to bottom."""
    patches, at = tower.patches(tower.fitted(picture))
    states = run("tower", columns(tower, weights, patches, at))["states"]
    merged = states.reshape(-1, tower.merged)
    n = len(merged)
    return run("rows", Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"states": merged}))["rows"]


def columns(tower: Tower, weights: Weights, patches: np.ndarray, at: np.ndarray) -> Columns:
    """One column for each patch (n, 3 * patch * patch), with its row and column (n, 2)."""
    n, (rows, cols) = len(patches), at.max(0) + 1
    inputs = {"patch": patches, "position": positions(tower, weights, rows, cols)[at[:, 0], at[:, 1]], "at": at}
    return Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs=inputs)


def positions(tower: Tower, weights: Weights, rows: int, cols: int) -> np.ndarray:
    """The table of positions at the size of a picture's patches: float32 (rows, cols, width)."""
    weight = weights.get("v.position_embd.weight")
    assert weight is not None
    table = weight.dequantize().reshape(tower.table, tower.table, tower.width)
    across = np.einsum("ij,rjd->rid", resampling(tower.table, cols), table, optimize=True)
    return np.einsum("ij,jcd->icd", resampling(tower.table, rows), across, optimize=True)


def resampling(size: int, wanted: int) -> np.ndarray:
    """The matrix (wanted, size) that resizes a line of `size` numbers: bilinear, the first and the last stay where they
    are."""
    at = np.linspace(0, size - 1, wanted)
    return np.maximum(0, 1 - np.abs(np.arange(size) - at[:, None])).astype(np.float32)


# ---------------------------------------------------------------- graphs


def norm(g: Graph, tower: Tower, w: Weights, name: str, x: Value) -> Value:
    return g.layer_norm(x, w.get(f"{name}.weight"), w.get(f"{name}.bias"), eps=tower.eps)


def linear(g: Graph, w: Weights, name: str, x: Value) -> Value:
    weight = w.get(f"{name}.weight")
    assert weight is not None
    return g.linear(x, weight, w.get(f"{name}.bias"))


def turn(g: Graph, x: Value, at: Value) -> Value:
    """Rotates half of the pairs of a head by the patch's row and half by its column."""
    quarter = x.shape[-1] // 4
    frequencies = tuple(ROPE_BASE ** (-j / quarter) for j in range(quarter))
    return g.rope_at(x, at, frequencies=frequencies * 2, axes=(0,) * quarter + (1,) * quarter)


def attention(g: Graph, tower: Tower, w: Weights, x: Value, at: Value) -> Value:
    d, three = tower.width, linear(g, w, "attn_qkv", x)
    q, k, v = (g.slice(three, i * d, (i + 1) * d).heads(tower.heads) for i in range(3))
    y = g.attend_columns(turn(g, q, at), turn(g, k, at), v, scale=1 / sqrt(tower.head_dim))
    return linear(g, w, "attn_out", y)


def hidden_states(g: Graph, tower: Tower, weights: Weights) -> list[Value]:
    """What the patches become at first, then after each block: (width,) per patch."""
    patch = g.input("patch", (3 * tower.patch**2,))
    x = g.linear(patch, kernel(tower, weights), weights.get("v.patch_embd.bias"))
    states = [x + g.input("position", (tower.width,))]
    at = g.input("at", (2,))
    for i in range(tower.blocks):
        w, x = weights.scoped(f"v.blk.{i}"), states[-1]
        x = x + attention(g, tower, w, norm(g, tower, w, "ln1", x), at)
        y = linear(g, w, "ffn_up", norm(g, tower, w, "ln2", x))
        states.append(x + linear(g, w, "ffn_down", g.gelu(y)))
    return states


def kernel(tower: Tower, weights: Weights) -> Weight:
    """What patches are multiplied by: files have a part for each of two frames, and a still picture is both."""
    parts = [weights.get(name) for name in ("v.patch_embd.weight", "v.patch_embd.weight.1")]
    held = sum(part.dequantize() for part in parts if part is not None)
    return Weight.of("v.patch_embd.weight, both", np.reshape(held, (tower.width, -1)))


def build(tower: Tower, weights: Weights) -> Graph:
    """The tower itself: its output "states" has (width,) for each patch."""
    g = Graph()
    g.output("states", norm(g, tower, weights, "v.post_ln", hidden_states(g, tower, weights)[-1]))
    return g


def build_rows(tower: Tower, weights: Weights) -> Graph:
    """From the states of a row's patches together to the row: (out,)."""
    g = Graph()
    x = g.gelu(linear(g, weights, "mm.0", g.input("states", (tower.merged,))), exact=True)
    g.output("rows", linear(g, weights, "mm.2", x))
    return g
