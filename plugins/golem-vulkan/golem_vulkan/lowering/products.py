"""Tables, products, and mixtures of experts."""

from __future__ import annotations

from functools import partial

from golem_core import Fusion, Match, Node, Operand, Pattern, Planner, Unsupported, Weight
from golem_vulkan.formats import layout_of, row_units
from golem_vulkan.lowering import entrywise, matrices, wide
from golem_vulkan.lowering.entrywise import FORMS
from golem_vulkan.lowering.forms import BYTES, F32, NARROW, form, in_fragments, on_matrices
from golem_vulkan.steps import NOTHING, Matrix, Planes, Rows, launch, vector, with_alignment
from golem_vulkan.target import THREADS, Target, groups_of, power_of_two

MOST_SCORES = 4096
"""That the router's workgroup keeps in shared memory."""
MANY_COLUMNS = 24
"""Up to so many, products with quantized weights read the matrix again for every few columns, if there are no
cooperative matrices."""
FEW_ROWS = 256
"""Of a matrix of float numbers, such as a router's: up to so many are multiplied one by one with many columns, too."""
GATED_COLUMNS = 4
"""Of a product with two matrices at most."""
GATED_ROWS = 10240
"""Of each of them at most for several columns: larger ones fill a device better one by one."""
GATED_SIZE = 512
"""Threads of its workgroups."""
CROWD = 256
"""Workgroups that fill a device: with more of them, a thread of a product of many columns has several rows, too."""
MANY_ROWS = 8192
"""Of a matrix: more than that fill a device however they are shared out."""


def embed(target: Target, p: Planner, node: Node) -> None:
    emit_rows(p, node["table"], None, 0, p.write(node.results[0]))


def embed_position(target: Target, p: Planner, node: Node) -> None:
    emit_rows(p, node["table"], None, 0, p.write(node.results[0]), by_position=True)


def table_rows(target: Target, p: Planner, node: Node) -> None:
    ids = p.read(node["ids"])
    emit_rows(p, node["table"], ids, node["ids"].size, p.write(node.results[0]))


def emit_rows(
    p: Planner, table: Weight, ids: Operand | None, count: int, y: Operand, *, by_position: bool = False
) -> None:
    """Rows of a table by `count` ids of each column, or by its token or position."""
    blocks = row_units(table)
    launch(
        p, f"embed_{layout_of(table).name}", (32,), (groups_of(blocks, 32), max(1, count) * p.capacity[y.rows]),
        Matrix(table), y, Rows(y.rows), ids or NOTHING, Planes(table), table.rows, blocks, table.width, y.stride,
        count, ids.stride if ids else int(by_position),
    )  # fmt: skip


def linear(target: Target, p: Planner, node: Node) -> None:
    w = node["weight"]
    x, y = p.read(node["x"], form(target, node, "x")), p.write(node.results[0])
    if on_matrices(target, node):
        if in_fragments(target, node):
            wide.emit(target, p, [wide.Product(node, x, y)])
        else:
            matrices.emit(target, p, node, x, y)
        return
    count, floats = target.capacity[y.rows], layout_of(w).floats
    if count > (NARROW if floats else MANY_COLUMNS) and not (floats and w.rows <= FEW_ROWS):
        emit_plain(p, node, x, y)
        return
    blocks, columns = row_units(w), columns_together(target, count)
    if floats and count > columns and groups_of(w.rows, 4) * groups_of(count, columns) < CROWD:
        columns = 1
    constants, each = shape(target, w.rows, blocks, columns, count)
    launch(
        p, f"matvec_{layout_of(w).name}", constants, (groups_of(w.rows, each), groups_of(count, columns)),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, blocks, w.width,
        x.stride, y.stride, 32 * blocks, 0, 0, 0, p.capacity[y.rows], 1, 0,
    )  # fmt: skip


def emit_plain(p: Planner, node: Node, x: Operand, y: Operand) -> None:
    """Many columns without cooperative matrices."""
    w, columns, layout = node["weight"], p.capacity[y.rows], layout_of(node["weight"])
    where = Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), w.rows, row_units(w)
    if layout.floats:
        groups = groups_of(w.rows, 64), groups_of(columns, 64)
        launch(p, f"gemm_plain_{layout.name}", (256,), groups, *where, w.width, x.stride, y.stride)
        return
    each = next(n for n in (1, 2, 4) if n >= min(4, columns / 16))
    groups, sums = (groups_of(columns, 16 * each), groups_of(w.rows, 64)), 32 * row_units(w)
    launch(p, f"gemm_bytes_{layout.name}", (256, each), groups, *where, x.stride, y.stride, sums)


def emit_gated(target: Target, p: Planner, m: Match) -> None:
    """Both products of a gated feed-forward part, its activation and its product, in the form that is read then."""
    node, act, gate = m["mul"], m["act"], m["gate"]["weight"]
    up = m["up"]["weight"]
    (form,) = p.forms(node.results[0])
    x, y = p.read(m["gate"]["x"], BYTES), p.write(node.results[0], form)
    blocks, room = row_units(gate), p.capacity[y.rows]
    columns = 1 if room == 1 else GATED_COLUMNS
    size = min(GATED_SIZE, target.most_threads)
    lanes = min(32, target.subgroup)
    rows = max(1, 32 * lanes // size)
    constants = 32 // rows * lanes, lanes, rows, columns, entrywise.KINDS[entrywise.activation(act)], FORMS[form]
    launch(
        p, f"gated_{layout_of(gate).name}", with_alignment(constants, gate.rows, (y,)),
        (gate.rows // 32, groups_of(room, columns)),
        Matrix(gate), Matrix(up), x, y, Rows(y.rows), Planes(gate), Planes(up), gate.rows, blocks,
        x.stride, y.stride, 32 * blocks, room,
    )  # fmt: skip


def gateable(target: Target, p: Planner, m: Match) -> bool:
    gate, up = m["gate"], m["up"]
    a, b = gate["weight"], up["weight"]
    alike = a.type == b.type and a.shape == b.shape and len(a.shape) == 2 and gate["x"] is up["x"]
    plain = gate["bias"] is None and up["bias"] is None and form(target, gate, "x") == form(target, up, "x") == BYTES
    columns = p.capacity[p.node_rows(m["mul"])]
    fits = columns == 1 or (columns <= GATED_COLUMNS and a.rows <= GATED_ROWS)
    return alike and plain and fits and a.rows % 32 == 0


def fusions(target: Target) -> tuple[Fusion, ...]:
    act = Pattern(("gelu", "relu", "sigmoid", "silu"), "act", {"x": Pattern(("linear",), "gate")})
    pattern = Pattern(("mul",), "mul", {"a": act, "b": Pattern(("linear",), "up")})
    return (Fusion(pattern, frozenset({F32, BYTES}), partial(emit_gated, target), partial(gateable, target)),)


def conv1d(target: Target, p: Planner, node: Node) -> None:
    """A product for every step, each of which reads the taps' numbers where they lie."""
    w, (steps, outputs), channels = node["weight"], node.results[0].shape, node["x"].shape[1]
    if not layout_of(w).floats:
        raise Unsupported(f"conv1d: {w.name} is of type {w.type}; vulkan takes F32, F16 and BF16")
    x, y = p.read(node["x"]), p.write(node.results[0])
    blocks, room = row_units(w), steps * p.capacity[y.rows]
    columns = columns_together(target, room)
    constants, each = shape(target, outputs, blocks, columns)
    launch(
        p, f"matvec_{layout_of(w).name}", constants, (groups_of(outputs, each), groups_of(room, columns)),
        Matrix(w), x, y, Rows(y.rows), vector(node["bias"]), Planes(w), outputs, blocks, w.width,
        x.stride, y.stride, 0, 0, 0, 0, room, steps, 4 * node["stride"] * channels,
    )  # fmt: skip


def columns_together(target: Target, columns: int) -> int:
    """How many of so many columns a workgroup multiplies at once."""
    most = 4 if target.processor else 8
    return next(n for n in (1, 4, 8) if n >= min(columns, most))


def shape(target: Target, outputs: int, blocks: int, columns: int, count: int = 1) -> tuple[tuple[int, ...], int]:
    """The constants of a product of `count` columns, and how many rows of the matrix a workgroup has.

    As many threads share a row as step together; where there are rows enough to fill the device, a thread has several.
    """
    lanes = min(32, target.subgroup if blocks >= target.subgroup else max(8, power_of_two(blocks)))
    rows = 1 if target.processor or columns > 4 or (columns == 1 and outputs <= MANY_ROWS) else 2
    if not target.processor and outputs > MANY_ROWS:
        lanes, rows = (min(16, lanes), rows) if blocks < 128 else (lanes, 4 if columns <= 4 else 1)
    if columns == 8 and groups_of(count, columns) * groups_of(outputs, 4 * THREADS // lanes) >= CROWD:
        rows = 4
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
    if on_matrices(target, node):
        matrices.emit_by_expert(target, p, node, x, ids, y)
        return
    constants, each = shape(target, w.shape[1], blocks, 1)
    launch(
        p, f"matvec_{layout_of(w).name}", constants, (groups_of(w.shape[1], each), count * p.capacity[y.rows]),
        Matrix(w), x, y, Rows(y.rows), ids, Planes(w), w.shape[1], blocks, w.width, x.stride, y.stride,
        32 * blocks * (count if parts else 1), 2 if parts else 1, count, ids.stride,
        p.capacity[y.rows], 1, 0,
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
