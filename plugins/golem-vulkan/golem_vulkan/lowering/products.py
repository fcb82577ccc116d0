"""Tables, products, and mixtures of experts."""

from __future__ import annotations

from golem_core import Node, Operand, Planner, Unsupported
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering.forms import form, on_matrices
from golem_vulkan.steps import Matrix, Planes, Rows, launch, vector
from golem_vulkan.target import THREADS, Target, groups_of, power_of_two

TILES = ((128, 128, 64, 64), (128, 64, 64, 32), (64, 64, 32, 32))
SMALL_TILES = ((64, 32, 32, 16), (32, 64, 16, 32), (16, 64, 16, 16))
"""Columns and rows of a workgroup's part of a wide product, and of a subgroup's part of that."""
FILLED = 100
"""Workgroups that fill a device."""
MOST_SCORES = 4096
"""That the router's workgroup keeps in shared memory."""


def embed(target: Target, p: Planner, node: Node) -> None:
    table, y = node["table"], p.write(node.results[0])
    blocks = row_units(table)
    launch(
        p, f"embed_{layout_of(table).name}", (32,), (groups_of(blocks, 32), p.capacity[y.rows]),
        Matrix(table), y, Rows(y.rows), Planes(table), table.rows, blocks, table.width, y.stride,
    )  # fmt: skip


def linear(target: Target, p: Planner, node: Node) -> None:
    w = node["weight"]
    x, y = p.read(node["x"], form(target, node, "x")), p.write(node.results[0])
    if on_matrices(target, node):
        emit_wide(target, p, node, x, y)
        return
    blocks, columns = row_units(w), columns_together(target, p.capacity[y.rows])
    constants, each = shape(target, blocks, columns)
    launch(
        p, f"matvec_{layout_of(w).name}", constants, (groups_of(w.rows, each), groups_of(p.capacity[y.rows], columns)),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, blocks, w.width,
        x.stride, y.stride, 32 * blocks, 0, 0, 0,
    )  # fmt: skip


def emit_wide(target: Target, p: Planner, node: Node, x: Operand, y: Operand) -> None:
    w, columns = node["weight"], p.capacity[y.rows]
    tile = tile_for(columns, w.rows)
    size = target.subgroup * (tile[0] // tile[2]) * (tile[1] // tile[3])
    launch(
        p, f"gemm_{layout_of(w).name}", (size, *tile, target.subgroup),
        (groups_of(w.rows, tile[1]), groups_of(columns, tile[0])),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, row_units(w), x.stride, y.stride,
        columns,
    )  # fmt: skip


def tile_for(columns: int, rows: int) -> tuple[int, int, int, int]:
    """Columns and rows of a workgroup's tile, and of a subgroup's part of it: large, if enough workgroups are left."""
    for tile in TILES:
        if columns > tile[0] // 2 and groups_of(columns, tile[0]) * groups_of(rows, tile[1]) >= FILLED:
            return tile
    return next(tile for tile in SMALL_TILES if columns >= tile[0] or tile is SMALL_TILES[-1])


def columns_together(target: Target, columns: int) -> int:
    """How many of so many columns a workgroup multiplies at once."""
    most = 4 if target.processor else 8
    return next(n for n in (1, 4, 8) if n >= min(columns, most))


def shape(target: Target, blocks: int, columns: int) -> tuple[tuple[int, ...], int]:
    """The constants of a product, and how many rows of the matrix a workgroup has."""
    lanes = target.subgroup if blocks >= target.subgroup else max(8, power_of_two(blocks))
    lanes = min(lanes, 32)
    rows = 1 if target.processor or columns > 4 else 2
    return (THREADS, lanes, rows, columns), THREADS // lanes * rows


# ---------------------------------------------------------------- mixtures


def route(target: Target, p: Planner, node: Node) -> None:
    scores = node["scores"]
    if scores.size > MOST_SCORES:
        raise Unsupported(f"route: {scores.size} experts; vulkan takes {MOST_SCORES}")
    x, ids, shares = p.read(scores), p.write(node.results[0]), p.write(node.results[1])
    launch(
        p, "route", (target.subgroup,), (1, p.capacity[ids.rows]),
        x, ids, shares, Rows(ids.rows), scores.size, node["count"], x.stride, ids.stride, shares.stride,
        int(not node["normalize"]),
    )  # fmt: skip


def expert_linear(target: Target, p: Planner, node: Node) -> None:
    w, count = node["weight"], node["ids"].size
    x, ids, y = p.read(node["x"], form(target, node, "x")), p.read(node["ids"]), p.write(node.results[0])
    parts, blocks = len(node["x"].shape) == 2, row_units(w)
    if parts and w.width % 32:
        raise Unsupported(f"expert_linear: {w.name} has rows of {w.width}; vulkan takes multiples of 32")
    constants, each = shape(target, blocks, 1)
    launch(
        p, f"matvec_{layout_of(w).name}", constants, (groups_of(w.shape[1], each), count * p.capacity[y.rows]),
        Matrix(w), x, y, Rows(y.rows), ids, Planes(w), w.shape[1], blocks, w.width, x.stride, y.stride,
        32 * blocks * (count if parts else 1), 2 if parts else 1, count, ids.stride,
    )  # fmt: skip


def lookup(target: Target, p: Planner, node: Node) -> None:
    ids, y, n = p.read(node["ids"]), p.write(node.results[0]), node["ids"].size
    launch(
        p, "lookup", (32,), (groups_of(n, 32), p.capacity[y.rows]),
        vector(node["weight"]), ids, y, Rows(y.rows), n, ids.stride, y.stride,
    )  # fmt: skip


def combine(target: Target, p: Planner, node: Node) -> None:
    x, shares, y = p.read(node["x"]), p.read(node["shares"]), p.write(node.results[0])
    count, n = node["x"].shape
    launch(
        p, "combine", (THREADS,), (groups_of(n, THREADS), p.capacity[y.rows]),
        x, shares, y, Rows(y.rows), count, n, x.stride, shares.stride, y.stride,
    )  # fmt: skip
