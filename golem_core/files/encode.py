"""Encodes float weights to block formats, for files that carry more than what is to be computed with.

An encoder takes (n, block elements) float32 and gives (n, block bytes) uint8.  Layouts and rounding: ggml,
`quantize_row_q8_0_ref` and `quantize_row_q4_0_ref` of ggml-quants.c.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from golem_core.errors import Unsupported

from .mapped import release_pages
from .quants import dequantize_rows
from .types import TYPES
from .weights import Weight

PIECE = 1 << 19
"""Elements that are encoded at once, so that what is computed on the way stays in the caches."""


def encoded(weight: Weight, type_: str) -> Weight:
    """The same weight in the storage format `type_`, encoded when, and every time that, its data is read.

    So a device that makes its own copy of a weight needs no memory for a second one.  Raises Unsupported for a format
    that there is no encoder for, or that the rows are no whole number of blocks of.
    """
    if type_ not in ENCODERS:
        raise Unsupported(f"{weight.name}: {type_} cannot be encoded, only {', '.join(ENCODERS)}")
    if weight.width % TYPES[type_].block:
        raise Unsupported(
            f"{weight.name}: rows of {weight.width} entries are no whole number of {type_}'s blocks of "
            f"{TYPES[type_].block}"
        )
    return EncodedWeight(weight, type_)


class EncodedWeight(Weight):
    """A weight whose data are made out of `source`, another one, whenever they are asked for."""

    def __init__(self, source: Weight, type_: str):
        for name, value in (("name", source.name), ("type", type_), ("shape", source.shape), ("source", source)):
            object.__setattr__(self, name, value)
        self.source: Weight

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_nbytes

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        kind, encode = TYPES[self.type], ENCODERS[self.type]
        out = np.empty((self.rows, self.row_nbytes), np.uint8)
        step = max(1, PIECE // self.width)

        def piece(start: int) -> None:
            rows = dequantize_rows(self.source, slice(start, start + step))
            out[start : start + step] = encode(rows.reshape(-1, kind.block)).reshape(len(rows), -1)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(piece, range(0, self.rows, step)))
        release_pages(self.source.data)
        return out.reshape(-1)


def _inverse(d: np.ndarray) -> np.ndarray:
    """1 / d, and 0 for a block of zeros."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _q8_0(x: np.ndarray) -> np.ndarray:
    d = np.abs(x).max(1, keepdims=True) / np.float32(127)
    x = x * _inverse(d)
    whole = np.trunc(x)
    whole += np.trunc((x - whole) * 2)  # halves away from zero
    return np.concatenate([d.astype(np.float16).view(np.uint8), whole.astype(np.int8).view(np.uint8)], 1)


def _q4_0(x: np.ndarray) -> np.ndarray:
    d = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1) / np.float32(-8)
    x = x * _inverse(d) + np.float32(8.5)
    q = np.minimum(x, 15, out=x).astype(np.uint8)
    return np.concatenate([d.astype(np.float16).view(np.uint8), q[:, :16] | (q[:, 16:] << 4)], 1)


ENCODERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"Q8_0": _q8_0, "Q4_0": _q4_0}
"""Every format that weights can be encoded to."""
