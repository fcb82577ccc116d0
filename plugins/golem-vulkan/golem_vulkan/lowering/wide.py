"""Products of a weight with hundreds of columns, both as fragments of float16 (`shaders/fragments.glsl`).

Weights, or slabs of the rows of large ones, are widened into one workspace while what was widened before is multiplied
out of another.  All workspaces of a plan are of one size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from weakref import WeakKeyDictionary

from golem_core import Fusion, Match, Node, Operand, Pattern, Planner, Value, Weight, source
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering.forms import F32, FRAGMENTS, HALF_SCALE, convolves_in_fragments, in_fragments, on_matrices
from golem_vulkan.steps import NOTHING, Matrix, Planes, Rows, launch, vector
from golem_vulkan.target import THREADS, Target, groups_of


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
    Tile((144, 256, 48, 64), 1, 1.0, large=True),
    Tile((96, 128, 48, 64), 3, 0.97),
    Tile((64, 128, 32, 64), 4, 0.95),
    Tile((64, 64, 32, 32), 8, 0.75),
)
MOST_ROWS = max(tile.shape[1] for tile in TILES)
STRIP = 4
"""Sixteens of rows whose fragments take turns in a widened weight, as `shaders/gemm_fragments.comp` reads them."""
MAP_TILE = (64, 96, 32, 48)
"""Of a convolution: places of a workgroup, and outputs, and the same of a subgroup."""
CORES = 132
"""That tiles are chosen for."""
WIDENED = 4
"""Units of a row of floats that a thread widens its share of."""


@dataclass
class Widening:
    """What a plan has widened: for products to come, in which workspaces of how many bytes, and in which one last."""

    room: int
    waiting: dict[Node, Operand] = field(default_factory=dict)
    pending: Counter[int] = field(default_factory=Counter)
    """Of each workspace, the products that still read it."""
    owner: dict[Node, int] = field(default_factory=dict)
    last: int = -1

    @classmethod
    def of(cls, target: Target, p: Planner) -> Widening:
        if p not in PLANS:
            products = [most_widened(target, p, node) for node in p.nodes if fits(target, node)]
            maps = [map_slab(target, node["weight"])[1] for node in p.nodes if convolves(target, node)]
            PLANS[p] = cls(max(products + maps))
        return PLANS[p]

    def workspace(self, p: Planner, readers: list[Node]) -> Operand:
        """One that no product to come reads, and not the one that was used last: what writes it may overlap with what
        reads that."""
        self.last = next(i for i in count() if i != self.last and not self.pending[i])
        self.pending[self.last] += len(readers)
        self.owner |= dict.fromkeys(readers, self.last)
        return p.workspace(("widened", self.last), self.room)


PLANS: WeakKeyDictionary[Planner, Widening] = WeakKeyDictionary()


def emit(target: Target, p: Planner, node: Node, x: Operand, y: Operand, addend: Operand | None = None) -> None:
    """`addend`: rows like those of y, which may be those of y, that are added to the product."""
    w, columns, row = node["weight"], p.capacity[y.rows], 64 * row_units(node["weight"])
    tile, slab = shape(columns, w.rows, row, target.slab)
    across, down, *own = tile.shape
    size = target.subgroup * (across // own[0]) * (down // own[1])
    whole = slab >= w.rows
    pieces = [(0, w.rows, together(target, p, node))] if whole else slabs(target, p, w, slab, STRIP)
    for first, rows, widened in pieces:
        launch(
            p, "gemm_fragments", (size, *tile.shape), (groups_of(columns, across), groups_of(rows, down)),
            widened, x, replace(y, start=y.start + 4 * first), Rows(y.rows), vector(node["bias"], first),
            replace(addend, start=addend.start + 4 * first) if addend else NOTHING,
            rows, row_units(w), y.stride, HALF_SCALE * number_of(w),
        )  # fmt: skip


def emit_sum(target: Target, p: Planner, m: Match) -> None:
    """A product and what is added to it, where that lies if nobody else reads it."""
    node, (before, _) = m["product"], operands(m)
    assert isinstance(before, Value)
    x, addend = p.read(node["x"], FRAGMENTS), p.read(before)
    emit(target, p, node, x, p.write(m["sum"].results[0], over=addend), addend)


def operands(m: Match) -> tuple[Value | Weight, Value]:
    """What is added to the product, and the product."""
    a, b = m["sum"]["a"], m["sum"]["b"]
    return (b, a) if source(a).node is m["product"] else (a, b)


def summable(target: Target, p: Planner, m: Match) -> bool:
    before, product = operands(m)
    whole = isinstance(before, Value) and before.size == source(before).size == product.size
    return whole and source(product).size == product.size and fits(target, m["product"])


def fusions(target: Target) -> tuple[Fusion, ...]:
    pattern = Pattern(("add",), "sum", {"b": Pattern(("linear",), "product")}, keep=True)
    return (Fusion(pattern, frozenset({F32}), partial(emit_sum, target), partial(summable, target)),)


def together(target: Target, p: Planner, node: Node) -> Operand:
    """The widened weight of a product.  With it come those of the products that read the same, as far as a workspace
    holds them: no product of them then waits for another."""
    plan = Widening.of(target, p)
    if node not in plan.waiting:
        group = group_of(target, p, node, plan.room, plan.waiting)
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


def group_of(target: Target, p: Planner, node: Node, most: int, without: Collection[Node] = ()) -> list[Node]:
    """A product, and those after it that read the same and whose widened weights lie in so many bytes with its own."""
    group, size = [node], widened_bytes(node["weight"])
    for each in p.readers[source(node["x"])]:
        room = widened_bytes(each["weight"]) if p.order[each] > p.order[node] and fits(target, each) else 0
        if room and each not in without and size + room <= most:
            group.append(each)
            size += room
    return group


def most_widened(target: Target, p: Planner, node: Node) -> int:
    """Bytes of a workspace for a product: for its weight and those that come with it, or for a slab of it."""
    w, row = node["weight"], 64 * row_units(node["weight"])
    slab = shape(p.capacity[p.node_rows(node)], w.rows, row, target.slab)[1]
    if slab < w.rows:
        return row * slab
    return sum(widened_bytes(each["weight"]) for each in group_of(target, p, node, target.slab))


def widened_bytes(w: Weight) -> int:
    """Of all rows, and of as many as a workgroup's part may reach beyond them."""
    return 64 * row_units(w) * groups_of(w.rows, MOST_ROWS) * MOST_ROWS


def slabs(target: Target, p: Planner, w: Weight, slab: int, strip: int = 1) -> Iterator[tuple[int, int, Operand]]:
    """Widens so many rows of a weight at a time: the first of them, how many there are, and where they lie.

    Fragments of `strip` sixteens of rows take turns.
    """
    plan = Widening.of(target, p)
    for first in range(0, w.rows, slab):
        rows, place = min(slab, w.rows - first), plan.workspace(p, [])
        widen(p, w, first, rows, place, strip)
        yield first, rows, place


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
