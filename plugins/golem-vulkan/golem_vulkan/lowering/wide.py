"""Products of a weight with hundreds of columns, both as fragments of float16 (`shaders/fragments.glsl`).

Weights, or slabs of the rows of large ones, are widened into one workspace while what was widened before is multiplied
out of another.  All workspaces of a plan are of one size.  `wide_fusions` has what is done with results on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from golem_core import Buffer, Node, Operand, Planner, Weight, source
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering import entrywise
from golem_vulkan.lowering.forms import (
    F32,
    FRAGMENTS,
    HALF_SCALE,
    SIXTEEN,
    convolves_in_fragments,
    in_fragments,
    on_matrices,
)
from golem_vulkan.lowering.tiles import MOST_ROWS, Tile, cut, slab_bytes
from golem_vulkan.steps import NOTHING, Matrix, Planes, Rows, launch, vector
from golem_vulkan.target import THREADS, Target, groups_of

STRIP = 4
"""Sixteens of rows whose fragments take turns in a widened weight, as `shaders/gemm_fragments.comp` reads them."""
MAP_TILE = (64, 96, 32, 48)
"""Of a convolution: places of a workgroup, and outputs, and the same of a subgroup."""
WIDENED = 4
"""Units of a row of floats that a thread widens its share of."""


@dataclass
class Widening:
    """What a plan has widened: for products to come, in which workspaces of how many bytes, and in which one last."""

    room: int
    sliced: set[Node]
    """Products whose weights are widened slab by slab, those that one step of the graph makes in slabs of as many rows.
    """
    waiting: dict[Node, Operand] = field(default_factory=dict)
    pending: Counter[int] = field(default_factory=Counter)
    """Of each workspace, the products that still read it."""
    owner: dict[Node, int] = field(default_factory=dict)
    multiplied: set[Node] = field(default_factory=set)
    """Products that need no widened weight any more."""
    last: int = -1

    @classmethod
    def of(cls, target: Target, p: Planner) -> Widening:
        if p not in PLANS:
            rooms = [map_slab(target, node["weight"])[1] for node in p.nodes if convolves(target, node)]
            sliced: set[Node] = set()
            matched = {node: [*m.values()] for _, m in p.matches.values() for node in m.values()}
            products = [node for node in p.nodes if fits(target, node)]
            for node in products:
                chain = [each["weight"] for each in matched.get(node, [node]) if fits(target, each)]
                slab = cut(target, p.capacity[p.node_rows(node)], chain)[1]
                if slab < node["weight"].rows:
                    sliced.add(node)
                    rooms.append(64 * row_units(node["weight"]) * slab)
            for node in (each for each in products if each not in sliced):
                most = slab_bytes(target, p.capacity[p.node_rows(node)])
                rooms.append(sum(widened_bytes(each["weight"]) for each in group_of(target, p, node, most, sliced)))
            PLANS[p] = cls(max(rooms), sliced)
            for i in range(2):  # side by side, which leaves no hole between them
                p.workspace(("widened", i), PLANS[p].room)
        return PLANS[p]

    def workspace(self, p: Planner, readers: list[Node]) -> Operand:
        """One that no product to come reads, and not the one that was used last: what writes it may overlap with what
        reads that."""
        self.last = next(i for i in count() if i != self.last and not self.pending[i])
        self.pending[self.last] += len(readers)
        self.owner |= dict.fromkeys(readers, self.last)
        return p.workspace(("widened", self.last), self.room)


PLANS: WeakKeyDictionary[Planner, Widening] = WeakKeyDictionary()


@dataclass(frozen=True)
class Product:
    """A product, and what is done with its results before they are written: `kind` of the sum with `addend`, times
    `factor`, in `form`.

    `addend` and `factor` have rows like those of y; the place of either may be y's.
    """

    node: Node
    x: Operand
    y: Operand
    addend: Operand | None = None
    kind: str = "copy"
    factor: Operand | None = None
    form: str = F32


def emit(target: Target, p: Planner, products: Sequence[Product], scratch: Collection[Buffer] = ()) -> None:
    """Products with equally many rows, slab after slab of all of them.  Buffers of `scratch` hold a slab."""
    rows, columns = products[0].node["weight"].rows, p.capacity[products[0].y.rows]
    tile, slab = cut(target, columns, [each.node["weight"] for each in products])
    for first in range(0, rows, slab):
        count = min(slab, rows - first)
        for each in products:
            sliced = each.node in Widening.of(target, p).sliced
            widened = widen_slab(target, p, each.node, first, count) if sliced else together(target, p, each.node)
            multiply(target, p, each, tile, widened, first, count, scratch)


def multiply(
    target: Target,
    p: Planner,
    product: Product,
    tile: Tile,
    widened: Operand,
    first: int,
    count: int,
    scratch: Collection[Buffer],
) -> None:
    """`count` rows of the weight from `first` on."""
    y, w = product.y, product.node["weight"]
    across, down, *own = tile.shape
    size = target.subgroup * (across // own[0]) * (down // own[1])

    def part(place: Operand | None, each: int = 4) -> Any:
        """Where results of these rows lie, a row in `each` bytes."""
        if place is None or place.buffer in scratch:
            return place or NOTHING
        return replace(place, start=place.start + each * first)

    fragments = product.form == FRAGMENTS
    launch(
        p, "gemm_fragments",
        (size, *tile.shape, entrywise.KINDS[product.kind], entrywise.FORMS[product.form]),
        (groups_of(p.capacity[y.rows], across), groups_of(count, down)),
        widened, product.x, part(y, 2 * SIXTEEN if fragments else 4), Rows(y.rows),
        vector(product.node["bias"], first), part(product.addend), part(product.factor),
        count, row_units(w), SIXTEEN * (y.stride - 4) if fragments else y.stride,
        stride_of(product.addend), stride_of(product.factor), HALF_SCALE * number_of(w),
    )  # fmt: skip


def stride_of(place: Operand | None) -> int:
    return 0 if place is None else place.stride


def together(target: Target, p: Planner, node: Node) -> Operand:
    """The widened weight of a product.  With it come those of the products that read the same, as far as a workspace
    holds them: no product of them then waits for another."""
    plan = Widening.of(target, p)
    plan.multiplied.add(node)
    if node not in plan.waiting:
        group = group_of(target, p, node, plan.room, plan.sliced | plan.multiplied | plan.waiting.keys())
        start, place = 0, plan.workspace(p, group)
        for each in group:
            plan.waiting[each] = replace(place, start=place.start + start)
            widen(p, each["weight"], 0, each["weight"].rows, plan.waiting[each], STRIP)
            start += widened_bytes(each["weight"])
    plan.pending[plan.owner.pop(node)] -= 1
    return plan.waiting.pop(node)


def fits(target: Target, node: Node) -> bool:
    return node.op.name == "linear" and on_matrices(target, node) and in_fragments(target, node)


def convolves(target: Target, node: Node) -> bool:
    return node.op.name == "conv2d" and convolves_in_fragments(target, node)


def map_slab(target: Target, w: Weight) -> tuple[int, int]:
    """The rows of a convolution's weight that are widened at a time, and their bytes."""
    most = max(1, target.slab // (64 * row_units(w) * MAP_TILE[1]))
    rows = min(most, groups_of(w.rows, MAP_TILE[1])) * MAP_TILE[1]
    return rows, 64 * row_units(w) * rows


def group_of(target: Target, p: Planner, node: Node, most: int, without: Collection[Node]) -> list[Node]:
    """A product, and those after it that read the same and whose widened weights lie in so many bytes with its own."""
    group, size = [node], widened_bytes(node["weight"])
    for each in p.readers[source(node["x"])]:
        room = widened_bytes(each["weight"]) if p.order[each] > p.order[node] and fits(target, each) else 0
        if room and each not in without and size + room <= most:
            group.append(each)
            size += room
    return group


def widened_bytes(w: Weight) -> int:
    """Of all rows, and of as many as a workgroup's part may reach beyond them."""
    return 64 * row_units(w) * groups_of(w.rows, MOST_ROWS) * MOST_ROWS


def widen_slab(target: Target, p: Planner, node: Node, first: int, rows: int, strip: int = STRIP) -> Operand:
    """Where `rows` rows of a weight from `first` on lie for the step that follows.

    Fragments of `strip` sixteens of rows take turns.
    """
    place = Widening.of(target, p).workspace(p, [])
    widen(p, node["weight"], first, rows, place, strip)
    return place


def widen(p: Planner, w: Weight, first: int, rows: int, place: Operand, strip: int) -> None:
    blocks, layout = row_units(w), layout_of(w)
    threads = 32 * groups_of(blocks, WIDENED) if layout.floats else 8 * blocks  # for sixteen rows
    launch(
        p, f"widen_{layout.name}", (THREADS, strip), (groups_of(groups_of(rows, 16) * threads, THREADS),),
        Matrix(w), replace(place, writes=True), Planes(w), w.rows, blocks, first, rows,
    )  # fmt: skip


def number_of(w: Weight) -> float:
    """What the numbers of a widened weight are multiplied by to be its own."""
    return 256.0 * w.scale if w.type == "F8_E4M3" else 1.0
