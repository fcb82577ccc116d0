"""The unified Gemma 4: no towers, the language model itself reads patches of pictures and frames of sound.

The same maths as transformers' `Gemma4UnifiedVisionEmbedder` and `Gemma4UnifiedMultimodalEmbedder`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isqrt

import numpy as np

from golem_core import BadFile, Columns, Graph, Keys, MediaGraph, RunGraph, TensorSpec, Weights, check_tensors
from golem_gemma.vision import MOST_ROWS, Pixels, Reader, linear

NORM_EPS, EPS = 1e-5, 1e-6
"""Of the norms over patches, and of the one before the projection; files do not state them."""
FRAME = 640
"""Samples that become one row: 40 milliseconds."""
MOST_FRAMES = 15_000
AT_ONCE = 512


# ---------------------------------------------------------------- pictures


def read_vision(keys: Keys, out: int) -> Reader:
    """The embedder of pictures in a projector for a model whose rows have `out` numbers."""
    weights = keys.file.weights
    norm, table = weights.get("v.patch_norm.1.weight"), weights.get("v.position_embd.weight")
    size = norm.shape[-1] if norm is not None else 0
    side = isqrt(size // 3)
    if size == 0 or 3 * side**2 != size:
        raise BadFile(f"{keys.file.path}: v.patch_norm.1.weight is missing or not one of square patches")
    places = table.shape[1] if table is not None and len(table.shape) == 3 else 1
    kernel = weights.get("v.patch_embd.weight")
    flat = kernel is not None and len(kernel.shape) == 2
    specs = [
        TensorSpec("v.patch_embd.weight", (out, size) if flat else (out, 3, side, side)),
        TensorSpec("v.patch_embd.bias", (out,)),
        TensorSpec("v.position_embd.weight", (2, places, out)),
        TensorSpec("mm.input_projection.weight", (out, out)),
    ]
    for number, width in ((1, size), (2, out), (3, out)):
        specs += [TensorSpec(f"v.patch_norm.{number}.{end}", (width,)) for end in ("weight", "bias")]
    check_tensors(keys.file, specs)
    pixels = Pixels.read(keys, side, 1, places)
    graphs = {"rows": MediaGraph(partial(build_vision, weights, size, out, places), MOST_ROWS)}
    return Reader(graphs, pixels.count, partial(encode_picture, pixels), MOST_ROWS)


def encode_picture(pixels: Pixels, picture: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a picture, float32 (rows, out), from left to right and from top to bottom."""
    return run("rows", picture_columns(pixels, *pixels.patches(pixels.fitted(picture))))["rows"]


def picture_columns(pixels: Pixels, patches: np.ndarray, col: np.ndarray, row: np.ndarray) -> Columns:
    """One column for each patch (n, 3 * patch * patch), whose values lie around 0 to 1."""
    n, place = len(patches), np.stack([col, row + pixels.places], 1)
    return Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"patch": patches, "place": place})


def build_vision(weights: Weights, size: int, out: int, places: int) -> Graph:
    """From a patch (size,) to its row (out,)."""
    g = Graph()
    kernel, table = weights.get("v.patch_embd.weight"), weights.get("v.position_embd.weight")
    assert kernel is not None and table is not None
    norms = [[weights.get(f"v.patch_norm.{n}.{end}") for end in ("weight", "bias")] for n in (1, 2, 3)]
    x = g.layer_norm(g.input("patch", (size,)), *norms[0], eps=NORM_EPS)
    x = g.linear(x, replace(kernel, shape=(out, size)), weights.get("v.patch_embd.bias"))
    x = g.layer_norm(x, *norms[1], eps=NORM_EPS)
    places_of = g.table_rows(replace(table, shape=(2 * places, out)), g.input("place", (2,)))
    flat = g.view(places_of, (2 * out,))
    x = g.layer_norm(x + (g.slice(flat, 0, out) + g.slice(flat, out, 2 * out)), *norms[2], eps=NORM_EPS)
    g.output("rows", linear(g, weights, "mm.input_projection", g.rms_norm(x, eps=EPS)))
    return g


# ---------------------------------------------------------------- recordings


def read_audio(keys: Keys, out: int) -> Reader:
    """The embedder of recordings in a projector for a model whose rows have `out` numbers."""
    check_tensors(keys.file, [TensorSpec("mm.a.input_projection.weight", (out, FRAME))])
    graphs = {"rows": MediaGraph(partial(build_audio, keys.file.weights), AT_ONCE)}
    return Reader(graphs, count_frames, encode_recording, MOST_FRAMES)


def count_frames(samples: np.ndarray) -> int:
    return -(-len(samples) // FRAME)


def encode_recording(samples: np.ndarray, run: RunGraph) -> np.ndarray:
    """The rows of a recording, float32 (rows, out), one for 40 milliseconds."""
    frames = np.zeros((count_frames(samples), FRAME), np.float32)
    frames.reshape(-1)[: len(samples)] = samples
    rows = []
    for first in range(0, len(frames), AT_ONCE):
        here = frames[first : first + AT_ONCE]
        n = len(here)
        rows.append(run("rows", Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"frame": here}))["rows"])
    return np.concatenate(rows)


def build_audio(weights: Weights) -> Graph:
    """From a frame to its row (out,)."""
    g = Graph()
    x = g.rms_norm(g.input("frame", (FRAME,)), eps=EPS)
    g.output("rows", linear(g, weights, "mm.a.input_projection", x))
    return g
