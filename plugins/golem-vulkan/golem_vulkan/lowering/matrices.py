"""Products with up to hundreds of columns on cooperative matrices, which decode weights on the way (`gemm.comp`)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from golem_core import Fusion, Match, Node, Operand, Pattern, Planner, source
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering import entrywise
from golem_vulkan.lowering.entrywise import FORMS
from golem_vulkan.lowering.forms import F32, HALVES, in_fragments, on_matrices
from golem_vulkan.steps import Matrix, Planes, Rows, launch, vector, with_alignment
from golem_vulkan.target import Target, groups_of


class Tile(NamedTuple):
    """Columns and rows of a workgroup's part of a product, and of a subgroup's part of that."""

    columns: int
    rows: int
    part_columns: int
    part_rows: int
    shares: int = 1
    """Of the entries that are summed: each has subgroups of its own, where there are too few workgroups."""

    def subgroups(self) -> int:
        """Of a share."""
        return self.columns // self.part_columns * (self.rows // self.part_rows)

    def within(self, target: Target, blocks: int) -> Tile:
        """With as many shares as a workgroup may have threads for, and as a row has units."""
        most = target.most_threads // (target.subgroup * self.subgroups())
        return self._replace(shares=max(1, min(self.shares, most, blocks)))

    def constants(self, subgroup: int, experts: int) -> tuple[int, ...]:
        """The first of `gemm.comp`."""
        return subgroup * self.shares * self.subgroups(), *self[:4], subgroup, experts, self.shares


MANY = ((Tile(128, 128, 64, 64), 264), (Tile(64, 128, 32, 64), 200), (Tile(64, 64, 32, 32), 0))
"""For more than 128 columns, with how many workgroups there must be."""
FEW, FEWEST = Tile(64, 64, 64, 16, 2), Tile(16, 32, 16, 16, 4)
"""For up to 128 columns, and 16."""
SHORT, SHORTEST = Tile(32, 32, 32, 16, 4), Tile(32, 16, 32, 16, 8)
"""For matrices of up to 4096 and 2048 rows, which leave much of a device idle; the first also for up to 32 columns."""
EXPERTS = ((Tile(32, 64, 32, 16), 2048), (Tile(32, 64, 32, 16, 2), 512), (Tile(32, 32, 32, 16, 4), 0))
"""For products of experts, with how many workgroups of the first there must be."""


def tile_for(columns: int, rows: int) -> Tile:
    """For a product of so many columns with a matrix of so many rows."""
    if columns > 128:
        groups = lambda tile: groups_of(columns, tile.columns) * groups_of(rows, tile.rows)
        return next(tile for tile, least in MANY if groups(tile) >= least)
    if columns <= 16:
        return FEWEST
    return SHORTEST if rows <= 2048 else SHORT if rows <= 4096 or columns <= 32 else FEW


def expert_tile(choices: int, experts: int, rows: int) -> Tile:
    """For `choices` columns that each have one of the experts, matrices of so many rows."""
    first = EXPERTS[0][0]
    groups = most_tiles(choices, experts, first) * groups_of(rows, first.rows)
    return next(tile for tile, least in EXPERTS if groups >= least)


def most_tiles(choices: int, experts: int, tile: Tile) -> int:
    """Each of choices that have one expert."""
    return min(choices, groups_of(choices, tile.columns) + experts)


def emit(target: Target, p: Planner, node: Node, x: Operand, y: Operand, kind: str = "copy", form: str = F32) -> None:
    """`kind`: what is done with the results, which are written in `form`."""
    w, columns = node["weight"], p.capacity[y.rows]
    tile = tile_for(columns, w.rows).within(target, row_units(w))
    constants = with_alignment(tile.constants(target.subgroup, 0), w.rows, (y,))
    launch(
        p, f"gemm_{layout_of(w).name}", (*constants, entrywise.KINDS[kind], FORMS[form]),
        (groups_of(columns, tile.columns), groups_of(w.rows, tile.rows)),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, row_units(w), x.stride, y.stride,
        columns, 0, 0,
    )  # fmt: skip


def emit_by_expert(
    target: Target, p: Planner, node: Node, x: Operand, ids: Operand, y: Operand, kind: str = "copy", form: str = F32
) -> None:
    """The choices of an expert are multiplied together."""
    w, count = node["weight"], node["ids"].size
    experts, outputs, _ = w.shape
    choices = count * p.capacity[y.rows]
    tile = expert_tile(choices, experts, outputs).within(target, row_units(w))
    most = most_tiles(choices, experts, tile)

    def bring_together(place: Operand) -> None:
        launch(p, "order", (256,), (1,), ids, place, Rows(y.rows), count, ids.stride, experts, tile.columns, most)

    room = 16 * (most + 1) + 4 * choices
    stride = groups_of(room, 64 * p.capacity[y.rows]) * 64
    order = p.share((source(node["ids"]), "order", tile.columns), y.rows, stride, bring_together)
    part = 2 if len(node["x"].shape) == 2 else 1
    constants = with_alignment(tile.constants(target.subgroup, part), outputs, (y,))
    launch(
        p, f"gemm_{layout_of(w).name}", (*constants, entrywise.KINDS[kind], FORMS[form]),
        (groups_of(outputs, tile.rows), most),
        Matrix(w), x, y, Rows(y.rows), order, Planes(w), outputs, row_units(w), x.stride, y.stride,
        p.capacity[y.rows], count, most,
    )  # fmt: skip


# ---------------------------------------------------------------- together with what follows


def emit_activated(target: Target, p: Planner, m: Match) -> None:
    act, node = m["act"], m["product"]
    (form,) = p.forms(act.results[0])
    x, y, kind = p.read(node["x"], HALVES), p.write(act.results[0], form), entrywise.activation(act)
    if node.op.name == "linear":
        emit(target, p, node, x, y, kind, form)
    else:
        emit_by_expert(target, p, node, x, p.read(node["ids"]), y, kind, form)


def activatable(target: Target, p: Planner, m: Match) -> bool:
    node, act = m["product"], m["act"]
    whole = act["x"].size == node.results[0].size
    return whole and node["weight"].shape[-2] % 32 == 0 and on_matrices(target, node) and not in_fragments(target, node)


def fusions(target: Target) -> tuple[Fusion, ...]:
    product = Pattern(("linear", "expert_linear"), "product")
    pattern = Pattern(("gelu", "relu", "sigmoid", "silu"), "act", {"x": product})
    return (Fusion(pattern, frozenset({F32, HALVES}), partial(emit_activated, target), partial(activatable, target)),)
