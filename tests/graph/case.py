"""A row of the table of ops, and what rows are made with.

A row builds a graph whose outputs are compared between a device and the numpy reference, over a list of
passes.  `x(g, ...)` makes activations out of an embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from golem_core import Columns, Graph, Value

from .weights import random_weight

TOKENS = 50


def columns(counts: list[tuple[int, int, int]], scored: list[int] | None = None, seed: int = 0) -> Columns:
    """A pass of runs (slot, first position, length) with random tokens; by default every column is scored."""
    rng = np.random.default_rng(seed)
    n = sum(length for _, _, length in counts)
    position = np.concatenate([np.arange(first, first + length) for _, first, length in counts])
    slot = np.concatenate([np.full(length, slot) for slot, _, length in counts])
    return Columns(rng.integers(0, TOKENS, n), position, slot, np.arange(n) if scored is None else scored)


def of_lengths(*lengths: int) -> list[Columns]:
    return [columns([(0, 0, n)], seed=n) for n in lengths]


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[Graph, np.random.Generator], None]
    passes: list[Columns] = field(default_factory=lambda: of_lengths(1, 3, 17))
    tolerance: float = 2e-6
    """Of the largest entry of the reference."""
    half_tolerance: float | None = None
    """Instead, on a device that keeps keys and values in 16 bits."""
    byte_tolerance: float | None = None
    """Instead, on a device that keeps keys and values in 8 bits; None where it is not tried."""


def x(g: Graph, rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Value:
    value = g.embed(random_weight(rng, "table", "F32", TOKENS, int(np.prod(shape)), scale=scale))
    return g.view(value, shape) if len(shape) > 1 else value


CASES: list[Case] = []


def case(name: str, **options):
    def add(build: Callable[[Graph, np.random.Generator], None]):
        CASES.append(Case(name, build, **options))
        return build

    return add


SEVERAL = [
    columns([(0, 0, 20), (1, 0, 7)], seed=1),
    columns([(2, 0, 33)], seed=2),
    columns([(1, 7, 1), (0, 20, 1), (2, 33, 1)], seed=3),
    columns([(0, 21, 40), (1, 8, 1)], seed=4),
    columns([(0, 61, 1)], seed=5),
]

STRETCHES = [*SEVERAL, columns([(1, 9, 2), (2, 34, 1), (0, 62, 5)], scored=[1, 2, 7], seed=6)]
"""Runs longer and shorter than a window, of slots that come and go, some rows of which are asked for."""
