"""Gemma 4's audio tower: two convolutions over bands and frames, then conformer blocks (arXiv:2005.08100).

The same maths as transformers' `Gemma4AudioModel`.  A block's attention looks back 12 frames and weighs distances by
a table of its own; here the weights of distances are entries that queries and keys have besides, so that the product
of both is the whole score: a key's are 1 at its position modulo 12 and 0 elsewhere, a query's are the weights of the
positions that it sees, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import e, log

import numpy as np

from golem_core import (
    BadFile,
    BadRequest,
    Columns,
    Graph,
    Keys,
    KVRing,
    MediaGraph,
    Recurrent,
    RunGraph,
    TensorSpec,
    Value,
    Weight,
    Weights,
    check_tensors,
)
from golem_gemma import sound
from golem_gemma.vision import Reader, check_bounds, linear

EPS = 1e-6
"""Of every norm; the number in the files is not the one that the models were trained with."""
REACH, ROOM = 12, 16
"""Frames that attention looks back, its own included, and the entries that stand for them."""
CAP = 50.0
TAPS = 5
ROWS_A_SECOND = 25
MOST_ROWS = 600 * ROWS_A_SECOND
PIECE_ROWS = 750
AT_ONCE = 4096
"""Columns of a run of a convolution."""


@dataclass(frozen=True)
class Tower:
    """Facts read from the file; `channels` are those after each convolution."""

    width: int
    out: int
    blocks: int
    heads: int
    ffn: int
    channels: tuple[int, int]
    rows: int  # the size of what the last block becomes, before the projection to `out`

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @classmethod
    def read(cls, keys: Keys, out: int) -> Tower:
        width, heads = keys.count("audio.embedding_length"), keys.count("audio.attention.head_count")
        if width % heads or width // heads % 16:
            raise BadFile(keys.named("audio.attention.head_count", heads) + f", but embedding_length is {width}")
        if (bands := keys.count("audio.num_mel_bins", sound.BANDS)) != sound.BANDS:
            raise BadFile(keys.named("audio.num_mel_bins", bands) + f", {sound.BANDS} were expected")
        blocks = keys.part_blocks("audio.block_count", "a.blk.{}.ln2.weight")
        sizes = []
        for name in ("a.conv1d.0.weight", "a.conv1d.1.weight", "a.pre_encode.out.weight"):
            weight = keys.file.weights.get(name)
            sizes.append(0 if weight is None else weight.shape[0])
        ffn = keys.count("audio.feed_forward_length")
        return cls(width, out, blocks, heads, ffn, (sizes[0], sizes[1]), sizes[2])

    def tensors(self) -> Iterator[TensorSpec]:
        """What the file must hold."""
        d, (first, second) = self.width, self.channels
        yield TensorSpec("a.conv1d.0.weight", (first, 1, 3, 3))
        yield TensorSpec("a.conv1d.1.weight", (second, first, 3, 3))
        yield TensorSpec("a.conv1d.0.norm.weight", (first,))
        yield TensorSpec("a.conv1d.1.norm.weight", (second,))
        yield TensorSpec("a.input_projection.weight", (d, sound.BANDS // 4 * second))
        yield TensorSpec("a.pre_encode.out.weight", (self.rows, d))
        yield TensorSpec("a.pre_encode.out.bias", (self.rows,), optional=True)
        yield TensorSpec("mm.a.soft_emb_norm.weight", (self.rows,), optional=True)
        yield TensorSpec("mm.a.input_projection.weight", (self.out, self.rows))
        norms = ("ffn_norm", "ffn_post_norm", "ffn_norm_1", "ffn_post_norm_1", "attn_pre_norm", "attn_post_norm")
        shapes: dict[str, tuple[int, ...]] = {name: (d,) for name in (*norms, "conv_norm", "norm_conv", "ln2")}
        shapes |= {name: (d, d) for name in ("attn_q", "attn_k", "attn_v", "attn_out", "attn_k_rel", "conv_pw2")}
        shapes |= {name: (self.ffn, d) for name in ("ffn_up", "ffn_up_1")}
        shapes |= {name: (d, self.ffn) for name in ("ffn_down", "ffn_down_1")}
        shapes |= {"per_dim_scale": (self.head_dim,), "conv_pw1": (2 * d, d), "conv_dw": (d, TAPS)}
        for i in range(self.blocks):
            for name, shape in shapes.items():
                yield TensorSpec(f"a.blk.{i}.{name}.weight", shape)


def read(keys: Keys, out: int) -> Reader:
    """The tower of a projector for a model whose rows have `out` numbers."""
    tower, weights = Tower.read(keys, out), keys.file.weights
    check_tensors(keys.file, tower.tensors())
    check_bounds(keys.file)
    graphs = {
        "conv 0": MediaGraph(partial(build_convolution, weights, 0), AT_ONCE),
        "conv 1": MediaGraph(partial(build_convolution, weights, 1), AT_ONCE),
        "tower": MediaGraph(partial(build, tower, weights), PIECE_ROWS),
    }
    return Reader(graphs, count, partial(encode, tower), MOST_ROWS)


def halved(n: int) -> int:
    """What a convolution of three taps leaves of n, at every other place."""
    return (n - 1) // 2 + 1


def count(samples: np.ndarray) -> int:
    rows = sum(halved(halved(sound.frames_of(len(piece)))) for piece in sound.pieces(samples))
    if rows == 0:
        raise BadRequest(f"a recording of {len(samples)} samples is too short")
    return rows


def encode(tower: Tower, samples: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a recording, float32 (rows, out), one for 40 milliseconds."""
    return np.concatenate([encode_piece(tower, sound.spectrum(piece), run) for piece in sound.pieces(samples)])


def encode_piece(tower: Tower, bands: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a spectrum (frames, 128), float32 (rows, out)."""
    x = convolved(bands[:, :, None], "conv 0", run)
    x = convolved(x, "conv 1", run)
    return run("tower", columns(x.reshape(len(x), -1)))["rows"]


def convolved(x: np.ndarray, name: str, run: RunGraph) -> np.ndarray:
    """A convolution of 3 frames by 3 bands at every other place of (frames, bands, channels), zeros around."""
    frames, bands, channels = x.shape
    padded = np.zeros((frames + 2, bands + 2, channels), np.float32)
    padded[1:-1, 1:-1] = x
    # (frames', bands', channels, 3, 3): a look at the padded input, cut into columns piece by piece
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))[::2, ::2]
    at_once = max(1, AT_ONCE // windows.shape[1])
    made = []
    for first in range(0, len(windows), at_once):
        patch = windows[first : first + at_once].reshape(-1, channels * 9)
        n = len(patch)
        made.append(run(name, Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"patch": patch}))["cells"])
    return np.concatenate(made).reshape(len(windows), windows.shape[1], -1)


def columns(x: np.ndarray) -> Columns:
    """One column for each row (n, features) of what the convolutions left."""
    at = np.arange(len(x))
    place = np.zeros((len(x), ROOM), np.float32)
    place[at, at % REACH] = 1
    inputs = {"cells": x, "phase": at[:, None] % REACH, "place": place}
    return Columns(np.zeros(len(x)), at, np.zeros(len(x)), inputs=inputs)


# ---------------------------------------------------------------- graphs


def build_convolution(weights: Weights, number: int) -> Graph:
    """One place of a convolution, (channels * 9,) -> (channels,), normed over its channels."""
    g = Graph()
    kernel = weights.get(f"a.conv1d.{number}.weight")
    assert kernel is not None
    size = kernel.shape[1] * 9
    x = g.linear(g.input("patch", (size,)), replace(kernel, shape=(kernel.shape[0], size)))
    g.output("cells", g.relu(g.layer_norm(x, weights.get(f"a.conv1d.{number}.norm.weight"), eps=EPS)))
    return g


def distance_weights(tower: Tower, name: str, projection: Weight) -> Weight:
    """For each position modulo 12 of a query, the matrix from queries (width,) to its entries (heads * ROOM,).

    Entry j of a head is the product with what the projection makes of the distance to the last position that is j
    modulo 12, written as sines and cosines.
    """
    d, heads, dim = tower.width, tower.heads, tower.head_dim
    rates = 1e4 ** (-np.arange(d // 2) / max(1, d // 2 - 1))
    angles = np.arange(REACH)[:, None] * rates
    waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    of_distance = (waves @ projection.dequantize().astype(np.float64).T).reshape(REACH, heads, dim)
    made = np.zeros((REACH, heads, ROOM, heads, dim), np.float32)
    for phase in range(REACH):
        for j in range(REACH):
            for h in range(heads):
                made[phase, h, j, h] = of_distance[(phase - j) % REACH, h]
    return Weight.of(name, made.reshape(REACH, heads * ROOM, heads * dim))


def attention(g: Graph, tower: Tower, w: Weights, x: Value, phase: Value, place: Value) -> Value:
    heads, dim = tower.heads, tower.head_dim
    scale = w.per_dim_scale.dequantize().reshape(-1) * (dim**-0.5 / log(2))
    q = linear(g, w, "attn_q", x).heads(heads) * Weight.of("the scale of queries", scale)
    k = g.scale(linear(g, w, "attn_k", x), by=log(1 + e) / log(2)).heads(heads)
    v = linear(g, w, "attn_v", x).heads(heads)
    by_distance = distance_weights(tower, "the weights of distances", w.attn_k_rel)
    weighed = g.expert_linear(g.view(q, (tower.width,)), by_distance, phase)
    q = g.concat(q, g.view(weighed, (heads, ROOM)))
    cache = g.store(g.concat(k, place), g.concat(v, place), KVRing(heads, dim + ROOM, REACH))
    y = g.view(g.attend(q, cache, scale=1.0, window=REACH, softcap=CAP), (heads, dim + ROOM))
    return linear(g, w, "attn_out", g.view(g.slice(y, 0, dim), (tower.width,)))


def feed_forward(g: Graph, w: Weights, x: Value, end: str) -> Value:
    norm, post = w.get(f"ffn_norm{end}"), w.get(f"ffn_post_norm{end}")
    y = g.silu(linear(g, w, f"ffn_up{end}", g.rms_norm(x, norm, eps=EPS)))
    return x + g.scale(g.rms_norm(linear(g, w, f"ffn_down{end}", y), post, eps=EPS), by=0.5)


def convolution(g: Graph, tower: Tower, w: Weights, x: Value) -> Value:
    d = tower.width
    both = linear(g, w, "conv_pw1", g.rms_norm(x, w.conv_norm, eps=EPS))
    y = g.slice(both, 0, d) * g.sigmoid(g.slice(both, d, 2 * d))
    y, _ = g.causal_conv1d(y, w.conv_dw, Recurrent((TAPS - 1, d)))
    return x + linear(g, w, "conv_pw2", g.silu(g.rms_norm(y, w.norm_conv, eps=EPS)))


def hidden_states(g: Graph, tower: Tower, weights: Weights) -> list[Value]:
    """What the rows become at first, then after each block: (width,) each."""
    cells = g.input("cells", (sound.BANDS // 4 * tower.channels[1],))
    phase, here = g.input("phase", (1,)), g.input("place", (ROOM,))
    place = g.view(here, (1, ROOM))
    for _ in range(tower.heads - 1):
        place = g.view(g.concat(g.view(place, (place.size,)), here), (place.size // ROOM + 1, ROOM))
    states = [linear(g, weights, "a.input_projection", cells)]
    for i in range(tower.blocks):
        w = weights.scoped(f"a.blk.{i}")
        x = feed_forward(g, w, states[-1], "")
        y = attention(g, tower, w, g.rms_norm(x, w.attn_pre_norm, eps=EPS), phase, place)
        x = x + g.rms_norm(y, w.attn_post_norm, eps=EPS)
        x = feed_forward(g, w, convolution(g, tower, w, x), "_1")
        states.append(g.rms_norm(x, w.ln2, eps=EPS))
    return states


def build(tower: Tower, weights: Weights) -> Graph:
    """From the cells of the convolutions to the rows (out,)."""
    g = Graph()
    x = linear(g, weights, "a.pre_encode.out", hidden_states(g, tower, weights)[-1])
    bias, gain = weights.get("a.pre_encode.out.bias"), weights.get("mm.a.soft_emb_norm.weight")
    x = x if bias is None else x + bias
    g.output("rows", linear(g, weights, "mm.a.input_projection", g.rms_norm(x, gain, eps=EPS)))
    return g
