"""The forms of values: float32 rows, the 8-bit blocks that products with quantized weights read, and the float16 rows
that cooperative matrices read.

An 8-bit row of n entries is n bytes, then eight bytes for each block of 32: its scale, and the sums of its halves.
"""

from __future__ import annotations

from golem_core import Node, Operand, Planner, Value
from golem_vulkan.formats import layout_of
from golem_vulkan.lowering import entrywise
from golem_vulkan.steps import Rows, launch
from golem_vulkan.target import THREADS, Target, groups_of

F32, BYTES, HALVES = "f32", "bytes", "halves"
NARROW = 8
"""Columns for which a product with cooperative matrices isn't worth it."""
CROWDED = 64
"""Columns from which the choices of experts are brought together by expert."""
WIDE = 32
"""Columns from which attention goes to cooperative matrices."""
MOST_WIDE_DIM = 256
"""Components of a head for which it does."""
HALF_SCALE = 16.0
"""By which numbers of float16 rows are divided."""
MOST_EXPERTS = 2048
"""For which that is done."""


def form(target: Target, node: Node, name: str) -> str:
    """The form in which a node reads an input."""
    if node.op.name == "attend_columns" and name in ("k", "v"):
        dim = node["q"].shape[1]
        wide = target.matrices and target.capacity["all"] >= WIDE and dim % 16 == 0 and dim <= MOST_WIDE_DIM
        return HALVES if wide else F32
    if name != "x" or node.op.name not in ("linear", "expert_linear"):
        return F32
    if on_matrices(target, node):
        return HALVES
    return F32 if layout_of(node["weight"]).floats else BYTES


def on_matrices(target: Target, node: Node) -> bool:
    """Whether a product is one for cooperative matrices: wide, and with weights that float16 holds."""
    weight, columns = node["weight"], target.capacity[node.results[0].rows]
    fits = target.matrices and weight.type != "F32" and weight.width % 32 == 0
    if node.op.name == "expert_linear":  # each expert has a few columns only
        return fits and weight.shape[0] <= MOST_EXPERTS and columns >= CROWDED
    return fits and columns > NARROW


def stride(size: int, form: str) -> int:
    """Bytes of a row of `size` entries."""
    if form == F32:
        return -(-size // 32) * 128
    if form == HALVES:
        return -(-size // 32) * 64
    return -(-size // 32) * 40 + -(-size // 32) % 2 * 8  # a multiple of 16


def convert(p: Planner, value: Value, form: str) -> None:
    rows = p.rows[value]
    x, y = p.read(value, rows=rows), p.write(value, form)
    entrywise.emit(p, x, None, y, value.size, kind="copy", form=form)


def gather(p: Planner, x: Operand, y: Operand) -> None:
    n = y.stride // 4
    launch(
        p, "rearrange", (THREADS, 1), (groups_of(n, THREADS), p.capacity[y.rows]),
        x, y, Rows(y.rows), n, 1, n, n, 0, n, 0, x.stride, y.stride,
    )  # fmt: skip
