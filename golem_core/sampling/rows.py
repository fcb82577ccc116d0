"""Reading long rows: the largest values, sums of exponentials, and a weighted choice.

A vocabulary has up to some 260,000 entries and a sampler wants a few dozen of them; everything here reads the
row once or twice, by vectorised code, without sorting it and without copies of its size.
"""

from __future__ import annotations

from math import exp

import numpy as np

NEAR = 16.0
"""Nats below the peak of a row within which its entries are weighed first: those below weigh e^-16 of it at most."""
_LONG = 4096  # entries; shorter rows are weighed whole
_SMALLEST_CUT = 8192  # below this many values one partition of all of them is as quick
_CHUNK = 16384  # exponentials summed at a time: they stay in cache
_BLOCK = 512  # weights summed at a time when choosing


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest of `values` (float, 1-D, without NaN), in descending order of value.

    Equal values are taken, and stand, in ascending order of index.  Entries of minus infinity are never
    among them, so fewer than `count` indices may come back.
    """
    index = _contenders(values, count)
    kept = values if index is None else values[index]
    reachable = np.flatnonzero(kept > -np.inf)
    if len(reachable) < len(kept):
        kept = kept[reachable]
        index = reachable if index is None else index[reachable]
    if count < len(kept):
        threshold = np.partition(kept, len(kept) - count)[len(kept) - count]
        above = np.flatnonzero(kept > threshold)
        tied = np.flatnonzero(kept == threshold)[: count - len(above)]
        order = np.concatenate([above[np.argsort(-kept[above], kind="stable")], tied])
    else:
        order = np.argsort(-kept, kind="stable")
    return order if index is None else index[order]


def _contenders(values: np.ndarray, count: int) -> np.ndarray | None:
    """Ascending indices of a subset that holds the `count` largest values, or None where cutting doesn't pay.

    The array is seen as a matrix.  `count` of its columns have a maximum of at least the count-th largest
    column maximum, so that many values reach it, and no smaller value can be among the `count` largest.
    """
    rows = 64 if count * 256 <= len(values) else 16
    if len(values) < _SMALLEST_CUT or count * rows * 2 > len(values):
        return None
    columns = len(values) // rows
    matrix = values[: rows * columns].reshape(rows, columns)
    rest = values[rows * columns :]
    peaks = matrix.max(axis=0)
    bound = np.partition(peaks, columns - count)[columns - count]
    bound = max(bound, np.finfo(values.dtype).min)  # minus infinity is never wanted
    where = np.flatnonzero(peaks >= bound)
    row, column = np.nonzero(matrix[:, where] >= bound)
    return np.concatenate([row * columns + where[column], rows * columns + np.flatnonzero(rest >= bound)])


def exp_sum(values: np.ndarray, peak: float) -> float:
    """Sum of exp(values - peak) over float32 (n,), added up in float64."""
    total = 0.0
    for start in range(0, len(values), _CHUNK):
        total += float(np.exp(values[start : start + _CHUNK] - peak).sum(dtype=np.float64))
    return total


def draw(logits: np.ndarray, peak: float, share: float) -> int:
    """An index of `logits` (float32 (n,), overwritten), each with its probability by softmax.

    `peak` is the largest logit, and `share` a random number, uniform in 0...1, that decides.

    Most entries of a vocabulary weigh next to nothing together, and are the greater part of the work.  They can't have
    more than a bound says.  As far as the share is certain to be that of the entries near the peak, it is stretched
    out and chooses among these; only beyond that are all weighed, and what is left of the share decides, stretched
    out again.
    """
    near = _near(logits, peak) if len(logits) >= _LONG else None
    if near is None:
        return pick(_weights(logits, peak), share)
    weights = _weights(logits[near], peak)
    mass = float(weights.sum(dtype=np.float64))
    certain = mass / (mass + (len(logits) - len(near)) * exp(-NEAR))
    if share < certain:
        return int(near[pick(weights, share / certain)])
    others = _weights(logits, peak)
    others[near] = 0
    likely = mass / (mass + float(others.sum(dtype=np.float64)))
    if share < likely:
        return int(near[pick(weights, (share - certain) / (likely - certain))])
    return pick(others, (share - likely) / (1 - likely))


def _near(logits: np.ndarray, peak: float) -> np.ndarray | None:
    """Ascending indices of the entries near the peak; None where they are so many that weighing all is as quick."""
    is_near = logits > peak - NEAR
    return None if np.count_nonzero(is_near) > len(logits) // 4 else np.flatnonzero(is_near)


def _weights(logits: np.ndarray, peak: float) -> np.ndarray:
    """exp(logits - peak), in place: fresh megabytes cost more than the arithmetic."""
    logits -= peak
    return np.exp(logits, out=logits)


def pick(weights: np.ndarray, share: float) -> int:
    """The first index whose running sum of `weights` (float32 (n,), none negative) exceeds `share` of the total.

    Running sums are float64.  Those of whole blocks come first, so that only one block of a vocabulary is summed
    entry by entry.  Rounding can't reach past the last entry that has any weight.
    """
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64))
    target = share * blocks[-1]
    block = _first_above(blocks, target)
    start = block * _BLOCK
    sums = np.cumsum(weights[start : start + _BLOCK], dtype=np.float64)
    return start + _first_above(sums, target - (blocks[block - 1] if block else 0.0))


def _first_above(sums: np.ndarray, target: float) -> int:
    index = int(np.searchsorted(sums, target, side="right"))
    return index if index < len(sums) else int(np.searchsorted(sums, sums[-1], side="left"))
