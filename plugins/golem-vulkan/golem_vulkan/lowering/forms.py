"""The forms of values: float32 rows, the 8-bit blocks that products with quantized weights read, the float16 rows
that cooperative matrices read, and the same as fragments, sixteen rows together (`shaders/fragments.glsl`), or turned:
entries by rows, as attention reads values.

An 8-bit row of n entries is n bytes, then eight bytes for each block of 32: its scale, and the sums of its halves.
"""

from __future__ import annotations

from golem_core import Node, Operand, Planner, Unsupported, Value
from golem_vulkan.formats import layout_of
from golem_vulkan.lowering import entrywise
from golem_vulkan.steps import Rows, launch
from golem_vulkan.target import THREADS, Target, groups_of

F32, BYTES, HALVES, FRAGMENTS, TURNED = "f32", "bytes", "halves", "fragments", "turned"
NARROW = 8
"""Columns for which a product with cooperative matrices isn't worth it."""
FRAGMENTED = 192
"""Columns for which it is worth it to widen a weight to float16 fragments first."""
SIXTEEN = 16
"""Rows of a fragment."""
MOST_FRAGMENT_DIM = 512
"""Components of a head that attention mixes in registers; of more than 128 the driver puts some elsewhere."""
MOST_FRAGMENTED = 1 << 16
"""Entries of a row: so far kernels may read beyond the rows that there are (`passes.BEHIND`)."""
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
    if node.op.name == "attend_columns" and attends_in_fragments(target, node):
        return TURNED if name == "v" else FRAGMENTS
    if node.op.name == "attend_columns" and name in ("k", "v"):
        dim = node["q"].shape[1]
        wide = target.matrices and target.capacity["all"] >= WIDE and dim % 16 == 0 and dim <= MOST_WIDE_DIM
        return HALVES if wide else F32
    if node.op.name == "conv2d" and convolves_in_fragments(target, node):
        return HALVES
    if name != "x" or node.op.name not in ("linear", "expert_linear"):
        return F32
    if on_matrices(target, node):
        return FRAGMENTS if in_fragments(target, node) else HALVES
    return F32 if layout_of(node["weight"]).floats else BYTES


def on_matrices(target: Target, node: Node) -> bool:
    """Whether a product is one for cooperative matrices: wide, and with weights that float16 holds."""
    weight, columns = node["weight"], target.capacity[node.results[0].rows]
    fits = target.matrices and weight.type != "F32" and weight.width % 32 == 0
    if node.op.name == "expert_linear":  # each expert has a few columns only
        return fits and weight.shape[0] <= MOST_EXPERTS and columns >= CROWDED
    return fits and columns > NARROW


def attends_in_fragments(target: Target, node: Node) -> bool:
    heads, dim = node["q"].shape
    wide = target.fragments and target.capacity["all"] >= FRAGMENTED
    return wide and dim % SIXTEEN == 0 and heads * dim % 32 == 0 and dim <= MOST_FRAGMENT_DIM


def convolves_in_fragments(target: Target, node: Node) -> bool:
    (height, width, channels), weight = node["x"].shape, node["weight"]
    return target.fragments and weight.type != "F32" and channels % SIXTEEN == 0 and height * width >= SIXTEEN


def in_fragments(target: Target, node: Node) -> bool:
    """Whether a product on matrices reads both factors as fragments."""
    columns = target.capacity[node.results[0].rows]
    fits = columns >= FRAGMENTED and node["weight"].width <= MOST_FRAGMENTED
    return target.fragments and node.op.name == "linear" and fits


def stride(size: int, form: str) -> int:
    """Bytes of a row of `size` entries.  Raises Unsupported for more than kernels count."""
    if 4 * size >= 1 << 32:
        raise Unsupported(f"a value of {4 * size / 1e9:.2f} GB for each column; vulkan takes {(1 << 32) / 1e9:.2f}")
    if form == F32:
        return -(-size // 32) * 128
    if form == HALVES:
        return -(-size // 32) * 64
    if form in (FRAGMENTS, TURNED):  # the former unlike any other form's, so that it is known by it
        return -(-size // 32) * 64 + 4
    return -(-size // 32) * 40 + -(-size // 32) % 2 * 8  # a multiple of 16


def convert(p: Planner, value: Value, form: str) -> None:
    rows = p.rows[value]
    x, y = p.read(value, rows=rows), p.write(value, form)
    entrywise.emit(p, x, None, y, value.size, kind="copy", form=form)


def gather(p: Planner, x: Operand, y: Operand) -> None:
    if y.stride % 16 == 4:
        blocks = y.stride // 64
        launch(
            p, "gather_fragments", (THREADS,), (groups_of(8 * blocks, THREADS), p.capacity[y.rows]),
            x, y, Rows(y.rows), blocks,
        )  # fmt: skip
        return
    n = y.stride // 4
    launch(
        p, "rearrange", (THREADS, 1), (groups_of(n, THREADS), p.capacity[y.rows]),
        x, y, Rows(y.rows), n, 1, n, n, 0, n, 0, x.stride, y.stride,
    )  # fmt: skip
