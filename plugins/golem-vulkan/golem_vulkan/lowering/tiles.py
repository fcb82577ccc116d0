"""How wide products are cut: into workgroups' parts, and weights into slabs of rows that are widened at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from golem_core import Weight
from golem_vulkan.formats import row_units
from golem_vulkan.target import Target, groups_of


@dataclass(frozen=True)
class Tile:
    """A workgroup's part of a product."""

    shape: tuple[int, int, int, int]
    """Its columns and rows, and those of a subgroup's part of it."""
    together: int
    """How many such workgroups a core holds."""
    speed: float
    """How much is done in a time."""
    large: bool = False
    """Only where every core gets as many as it holds."""


TILES = (
    Tile((144, 128, 48, 64), 2, 1.0, large=True),
    Tile((96, 128, 48, 64), 3, 0.97),
    Tile((64, 128, 32, 64), 4, 0.95),
    Tile((64, 64, 32, 32), 8, 0.75),
)
MOST_ROWS = max(tile.shape[1] for tile in TILES)
CORES = 132
"""That tiles are chosen for."""
SLAB, MANY_COLUMNS = 52 << 20, 1024
"""Most bytes of a widened slab where there are so many columns, for which fewer rows fill the device: what passes of
many columns work in grows with these anyway."""


def cut(target: Target, columns: int, weights: Sequence[Weight]) -> tuple[Tile, int]:
    """The tile of products that go together, and how many rows of their weights are widened at a time."""
    row = max(64 * row_units(w) for w in weights)
    return shape(columns, weights[0].rows, row, slab_bytes(target, columns))


def slab_bytes(target: Target, columns: int) -> int:
    return min(target.slab, SLAB) if columns >= MANY_COLUMNS else target.slab


def shape(columns: int, rows: int, row: int, most: int) -> tuple[Tile, int]:
    """The tile that takes the least time, and the rows of a slab: as many as leave the fewest cores idle at its end.

    A widened row has `row` bytes, a slab `most` of them.
    """

    def count(tile: Tile, rows: int) -> int:
        return groups_of(columns, tile.shape[0]) * groups_of(rows, tile.shape[1])

    def rounds(tile: Tile, rows: int) -> int:
        return groups_of(count(tile, rows), CORES * tile.together) * tile.together

    def time(tile: Tile) -> float:
        return rounds(tile, rows) * tile.shape[0] * tile.shape[1] / tile.speed

    fit = [tile for tile in TILES if not tile.large or count(tile, rows) >= CORES * tile.together]
    tile = min(fit, key=time)
    down = tile.shape[1]
    tiles, fitting = groups_of(rows, down), max(1, most // (row * down))
    if tiles > fitting:
        tiles = min(range(fitting, fitting // 2, -1), key=lambda n: rounds(tile, n * down) / n)
    return tile, tiles * down
