"""Rows of which the largest entries are listed, and what the lists are."""

from __future__ import annotations

import numpy as np

from golem_core import Columns, Graph, Weight


def rows_of(n: int) -> np.ndarray:
    """float32 (9, n): random, tied and odd rows."""
    dice = np.random.default_rng(n)
    rows = dice.normal(size=(9, n)).astype(np.float32) * 4
    rows[1] = np.round(rows[1])
    rows[2] = 1.5
    rows[3] = -np.inf
    rows[4, ::7] = np.nan
    rows[5] = np.sort(rows[5])
    rows[6] = np.where(dice.random(n) < 0.5, np.float32(-0.0), np.float32(0.0))
    rows[7] = np.where(np.arange(n) % 3 == 0, rows[7], -np.inf)
    rows[8, n // 2] = np.inf
    return rows


def compiled(device, rows: np.ndarray, slots: int = 9):
    g = Graph()
    x = g.embed(Weight("table", "F32", rows.shape, rows.reshape(-1).view(np.uint8)))
    g.output("logits", g.scale(g.take(x), by=1.0))
    return device.compile(g, slots=slots, context=16, width=slots)


def columns(tokens: list[int]) -> Columns:
    n = len(tokens)
    return Columns(tokens, np.zeros(n), np.arange(n), np.arange(n))


def want(row: np.ndarray, count: int, without: list[int]) -> tuple[np.ndarray, np.ndarray]:
    kept = np.setdiff1d(np.arange(len(row)), without)
    order = kept[np.lexsort((-row[kept], ~np.isnan(row[kept])))][:count]
    return order, row[order]
