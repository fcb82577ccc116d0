"""Products of a weight with hundreds of columns, both as fragments of float16 (`shaders/fragments.glsl`).

Slabs of the weight's rows are widened into one of two workspaces while the slab before is multiplied out of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from golem_core import Node, Operand, Planner, Weight
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering.forms import HALF_SCALE
from golem_vulkan.steps import Matrix, Planes, Rows, launch, vector
from golem_vulkan.target import THREADS, Target, groups_of, power_of_two

TILES = (((96, 128, 48, 64), 3, 1.0), ((64, 128, 32, 64), 4, 0.95), ((64, 64, 32, 32), 8, 0.75))
"""Columns and rows of a workgroup's part of a product, and of a subgroup's part of that; how many such workgroups a
core holds; and how much is done in a time."""
CORES = 132
"""That tiles are chosen for."""


def emit(target: Target, p: Planner, node: Node, x: Operand, y: Operand) -> None:
    w, columns, blocks = node["weight"], p.capacity[y.rows], row_units(node["weight"])
    tile, slab = shape(columns, w.rows, 64 * blocks, target.slab)
    size = target.subgroup * (tile[0] // tile[2]) * (tile[1] // tile[3])
    for first, rows, widened in slabs(target, p, w, slab):
        launch(
            p, "gemm_fragments", (size, *tile), (groups_of(columns, tile[0]), groups_of(rows, tile[1])),
            widened, x, replace(y, start=y.start + 4 * first), Rows(y.rows), vector(node["bias"], first), rows, blocks,
            y.stride, HALF_SCALE * number_of(w),
        )  # fmt: skip


def slabs(target: Target, p: Planner, w: Weight, slab: int) -> Iterator[tuple[int, int, Operand]]:
    """Widens so many rows of a weight at a time: the first of them, how many there are, and where they lie."""
    blocks = row_units(w)
    room = power_of_two(64 * blocks * slab)
    for first in range(0, w.rows, slab):
        rows = min(slab, w.rows - first)
        widened = next_workspace(p, room)
        launch(
            p, f"widen_{layout_of(w).name}", (THREADS,), (groups_of(groups_of(rows, 16) * 8 * blocks, THREADS),),
            Matrix(w), replace(widened, writes=True), Planes(w), w.rows, blocks, first, rows,
        )  # fmt: skip
        yield first, rows, widened


def number_of(w: Weight) -> float:
    """What the numbers of a widened weight are multiplied by to be its own."""
    return 256.0 * w.scale if w.type == "F8_E4M3" else 1.0


def next_workspace(p: Planner, room: int) -> Operand:
    """The one that the last product didn't read."""
    last = next((s.args[1] for s in reversed(p.steps) if s.kernel in ("gemm_fragments", "conv2d_fragments")), None)
    places = [p.workspace(("widened", i), room) for i in range(2)]
    return places[int(last is not None and last.buffer is places[0].buffer)]


def shape(columns: int, rows: int, row: int, most: int) -> tuple[tuple[int, int, int, int], int]:
    """The tile that takes the least time, and the rows of a slab: as many as leave the fewest cores idle at its end.

    A widened row has `row` bytes, a slab `most` of them.
    """

    def rounds(tile: tuple[int, int, int, int], rows: int) -> int:
        return groups_of(groups_of(columns, tile[0]) * groups_of(rows, tile[1]), CORES)

    def time(choice: tuple[tuple[int, int, int, int], int, float]) -> float:
        tile, together, speed = choice
        return max(rounds(tile, rows), together) * tile[0] * tile[1] / speed

    tile = min(TILES, key=time)[0]
    tiles, fitting = groups_of(rows, tile[1]), max(1, most // (row * tile[1]))
    if tiles > fitting:
        tiles = min(range(fitting, fitting // 2, -1), key=lambda n: rounds(tile, n * tile[1]) / n)
    return tile, tiles * tile[1]
