"""Gemma 3's vision tower: a picture at one size, its patches attending to each other, pooled to 256 rows.

The same maths as transformers' `SiglipVisionModel` and `Gemma3MultiModalProjector`.  Pictures are stretched to the
tower's square; no further crops are taken of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import numpy as np

from golem_core import (
    BadFile,
    Columns,
    Graph,
    Keys,
    MediaGraph,
    RunGraph,
    TensorSpec,
    Value,
    Weight,
    Weights,
    check_tensors,
    resize_picture,
)
from golem_gemma.vision import Reader

MEAN = STD = (0.5, 0.5, 0.5)
POOL = 4
"""Patches of a side that become one row."""
MOST_PATCHES = 1 << 14


@dataclass(frozen=True)
class Tower:
    """Facts read from the file.  `swapped`: it has the names of the two feed-forward matrices the other way round."""

    width: int
    out: int
    blocks: int
    heads: int
    ffn: int
    eps: float
    size: int
    patch: int
    pool: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    swapped: bool

    @property
    def side(self) -> int:
        """Patches of a side."""
        return self.size // self.patch

    @property
    def rows(self) -> int:
        return (self.side // self.pool) ** 2

    @classmethod
    def read(cls, keys: Keys, out: int) -> Tower:
        width, heads = keys.count("vision.embedding_length"), keys.count("vision.attention.head_count")
        if width % heads:
            raise BadFile(keys.named("vision.attention.head_count", heads) + f", but embedding_length is {width}")
        blocks = keys.part_blocks("vision.block_count", "v.blk.{}.ln1.weight")
        size, patch = keys.count("vision.image_size"), keys.count("vision.patch_size")
        pool = keys.count("vision.projector.scale_factor", POOL)
        if size % (patch * pool) or (size // patch) ** 2 > MOST_PATCHES:
            raise BadFile(
                keys.named("vision.image_size", size) + f", which {pool} × {pool} patches of {patch} pixels do not fill"
            )
        mean, std = keys.colours(MEAN, STD)
        down = keys.file.weights.get("v.blk.0.ffn_down.weight")
        return cls(
            width=width,
            out=out,
            blocks=blocks,
            heads=heads,
            ffn=keys.count("vision.feed_forward_length"),
            eps=keys.positive("vision.attention.layer_norm_epsilon", 1e-6),
            size=size,
            patch=patch,
            pool=pool,
            mean=mean,
            std=std,
            swapped=down is not None and down.shape[-1] == width,
        )

    @property
    def feed_forward(self) -> tuple[str, str]:
        """The names of the matrices into the feed-forward part and out of it."""
        return ("ffn_down", "ffn_up") if self.swapped else ("ffn_up", "ffn_down")

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d = self.width
        yield TensorSpec("v.patch_embd.weight", (d, 3, self.patch, self.patch))
        yield TensorSpec("v.patch_embd.bias", (d,))
        yield TensorSpec("v.position_embd.weight", (self.side**2, d))
        yield TensorSpec("mm.input_projection.weight", (d, self.out))
        yield TensorSpec("mm.soft_emb_norm.weight", (d,))
        up, down = self.feed_forward
        matrices = {name: (d, d) for name in ("attn_q", "attn_k", "attn_v", "attn_out")}
        matrices |= {up: (self.ffn, d), down: (d, self.ffn)}
        yield from (TensorSpec(f"v.post_ln.{end}", (d,)) for end in ("weight", "bias"))
        for i in range(self.blocks):
            for name in ("ln1", "ln2"):
                yield from (TensorSpec(f"v.blk.{i}.{name}.{end}", (d,)) for end in ("weight", "bias"))
            for name, shape in matrices.items():
                yield TensorSpec(f"v.blk.{i}.{name}.weight", shape)
                yield TensorSpec(f"v.blk.{i}.{name}.bias", shape[:1])


def read(keys: Keys, out: int) -> Reader:
    """The tower of a projector for a model whose rows have `out` numbers."""
    tower, weights = Tower.read(keys, out), keys.file.weights
    check_tensors(keys.file, tower.tensors())
    patches = tower.side**2
    graphs = {
        "tower": MediaGraph(partial(build, tower, weights), patches),
        "rows": MediaGraph(partial(build_rows, tower, weights), patches, tower.rows),
    }
    return Reader(graphs, lambda picture: tower.rows, partial(encode, tower), tower.rows)


def encode(tower: Tower, picture: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a picture, float32 (rows, out), from left to right and from top to bottom."""
    patches, number = cut(tower, picture)
    n = len(patches)
    inputs = {"patch": patches, "place": number[:, None]}
    states = run("tower", Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs=inputs))["states"]
    square, place = np.divmod(np.arange(n), tower.pool**2)
    return run("rows", Columns(np.zeros(n), place, square, inputs={"states": states}))["rows"]


def cut(tower: Tower, picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patches (n, 3 * patch * patch) of a picture, colour by colour, and the number of each in rows of patches (n,).

    Those that become one row of the language model lie together.
    """
    pixels = resize_picture(picture, tower.size, tower.size, how="bilinear").astype(np.float32) / 255
    pixels = (pixels - np.array(tower.mean, np.float32)) / np.array(tower.std, np.float32)
    p, m, rows = tower.patch, tower.pool, tower.side // tower.pool
    patches = pixels.reshape(rows, m, p, rows, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3 * p * p)
    number = np.arange(tower.side**2).reshape(rows, m, rows, m).transpose(0, 2, 1, 3).reshape(-1)
    return np.ascontiguousarray(patches), number


# ---------------------------------------------------------------- graphs


def norm(g: Graph, tower: Tower, w: Weights, name: str, x: Value) -> Value:
    return g.layer_norm(x, w.get(f"{name}.weight"), w.get(f"{name}.bias"), eps=tower.eps)


def linear(g: Graph, w: Weights, name: str, x: Value) -> Value:
    weight = w.get(f"{name}.weight")
    assert weight is not None
    return g.linear(x, weight, w.get(f"{name}.bias"))


def attention(g: Graph, tower: Tower, w: Weights, x: Value) -> Value:
    q, k, v = (linear(g, w, name, x).heads(tower.heads) for name in ("attn_q", "attn_k", "attn_v"))
    return linear(g, w, "attn_out", g.attend_columns(q, k, v, scale=1 / sqrt(tower.width // tower.heads)))


def hidden_states(g: Graph, tower: Tower, weights: Weights) -> list[Value]:
    """What the patches become at first, then after each block: (width,) per patch."""
    d, size = tower.width, 3 * tower.patch**2
    kernel, table = weights.get("v.patch_embd.weight"), weights.get("v.position_embd.weight")
    assert kernel is not None and table is not None
    x = g.linear(g.input("patch", (size,)), replace(kernel, shape=(d, size)), weights.get("v.patch_embd.bias"))
    states = [x + g.view(g.table_rows(table, g.input("place", (1,))), (d,))]
    up, down = tower.feed_forward
    for i in range(tower.blocks):
        w, x = weights.scoped(f"v.blk.{i}"), states[-1]
        x = x + attention(g, tower, w, norm(g, tower, w, "ln1", x))
        y = linear(g, w, up, norm(g, tower, w, "ln2", x))
        states.append(x + linear(g, w, down, g.gelu(y)))
    return states


def build(tower: Tower, weights: Weights) -> Graph:
    """The tower itself: its output "states" has (width,) for each patch."""
    g = Graph()
    g.output("states", norm(g, tower, weights, "v.post_ln", hidden_states(g, tower, weights)[-1]))
    return g


def build_rows(tower: Tower, weights: Weights) -> Graph:
    """From the states of patches, those of a row together, to the rows: (out,) for each."""
    g = Graph()
    pooled = g.pool(g.input("states", (tower.width,)), "mean")
    x = g.rms_norm(pooled, weights.get("mm.soft_emb_norm.weight"), eps=tower.eps)
    g.output("rows", g.linear(x, turned(weights.get("mm.input_projection.weight"))))
    return g


def turned(weight: Weight | None) -> Weight:
    """A matrix that the file has the other way round."""
    assert weight is not None
    return Weight.of(f"{weight.name}, turned", weight.dequantize().T)
