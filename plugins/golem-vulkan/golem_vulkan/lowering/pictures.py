"""What is done with a map (height, width, channels) that one column holds."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from golem_core import Node, Operand, Planner, Unsupported
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering import forms, wide
from golem_vulkan.lowering.entrywise import rearrange
from golem_vulkan.steps import Matrix, Planes, Rows, launch, vector
from golem_vulkan.target import Target, groups_of

TILE = 64
"""Places of a workgroup, and outputs."""


def conv2d(target: Target, p: Planner, node: Node) -> None:
    w, (height, width, channels) = node["weight"], node["x"].shape
    if not layout_of(w).floats:
        raise Unsupported(f"conv2d: {w.name} is of type {w.type}; vulkan takes F32, F16, BF16 and F8_E4M3")
    x, y = p.read(node["x"], forms.form(target, node, "x")), p.write(node.results[0])
    if forms.convolves_in_fragments(target, node):
        emit_fragments(target, p, node, x, y)
        return
    launch(
        p, f"conv2d_{layout_of(w).name}", (256,),
        (groups_of(w.rows, TILE), groups_of(height * width, TILE), p.capacity[y.rows]),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, row_units(w),
        height, width, channels, isqrt(w.width // channels), x.stride, y.stride,
    )  # fmt: skip


def emit_fragments(target: Target, p: Planner, node: Node, x: Operand, y: Operand) -> None:
    w, (height, width, channels) = node["weight"], node["x"].shape
    places, tile_rows, across, down = wide.MAP_TILE
    slab = wide.map_slab(target, w)[0]
    for first in range(0, w.rows, slab):
        rows = min(slab, w.rows - first)
        widened = wide.widen_slab(target, p, node, first, rows, strip=1)
        launch(
            p, "conv2d_fragments", (target.subgroup * (places // across) * (tile_rows // down), *wide.MAP_TILE),
            (groups_of(height * width, places), groups_of(rows, tile_rows), p.capacity[y.rows]),
            widened, x, y, Rows(y.rows), vector(node["bias"]), first, first + rows, w.rows, row_units(w),
            height, width, channels, isqrt(w.width // channels), x.stride, y.stride,
            forms.HALF_SCALE * wide.number_of(w),
        )  # fmt: skip


def upsample(target: Target, p: Planner, node: Node) -> None:
    """Every row of the map goes to two rows, every place of it to two places."""
    x, y, (height, width, channels) = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
    n = height * width * channels
    for i in range(4):
        down, right = divmod(i, 2)
        to = replace(y, start=y.start + 4 * channels * (2 * width * down + right))
        rearrange(p, x, to, n, (width, channels), (width * channels, channels), (4 * width * channels, 2 * channels))
