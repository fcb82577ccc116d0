"""Norms, with the residual sum before them and the form that a product after them reads."""

from __future__ import annotations

from typing import Any

from golem_core import Fusion, Match, Node, Operand, Pattern, Planner, Value, source
from golem_vulkan.lowering.entrywise import FORMS
from golem_vulkan.steps import NOTHING, Rows, launch, vector, with_alignment
from golem_vulkan.target import Target, power_of_two

KINDS = {"rms_norm": 0, "l2_norm": 1, "layer_norm": 2}
MOST_THREADS = 512


def threads(n: int) -> int:
    """Of a workgroup that norms n entries, four at a time."""
    return min(MOST_THREADS, max(32, power_of_two(-(-n // 8))))


def emit(
    p: Planner,
    node: Node,
    x: Operand,
    out: Operand,
    *,
    form: str = "f32",
    branch: Operand | None = None,
    total: Operand | None = None,
    post: Node | None = None,
) -> None:
    n = node["x"].shape[-1]
    parts = node["x"].size // n
    kind = 0 if branch is None else 2 if post else 1
    y: Any = branch or NOTHING
    s: Any = total or NOTHING
    constants = threads(n), KINDS[node.op.name], kind, FORMS[form]
    launch(
        p, "norm", with_alignment(constants, n, (x, y, s, out)), (parts, p.capacity[out.rows]),
        x, y, s, out, Rows(out.rows), vector(node.args.get("weight")), vector(node.args.get("bias")),
        vector(post["weight"] if post else None),
        n, x.stride, branch.stride if branch else 0, total.stride if total else 0, out.stride, float(node["eps"]),
    )  # fmt: skip


def norm(target: Target, p: Planner, node: Node) -> None:
    emit(p, node, p.read(node["x"]), p.write(node.results[0]))


# ---------------------------------------------------------------- together with the sum before


def emit_residual(p: Planner, m: Match) -> None:
    node, total, post = m["norm"], m.get("sum"), m.get("post")
    (form,) = p.forms(node.results[0])
    if total is None:
        emit(p, node, p.read(node["x"]), p.write(node.results[0], form), form=form)
        return
    branch, carried = total["b"], total["a"]
    if post is not None and source(carried).node is post:
        branch, carried = carried, branch
    x, y = p.read(carried), p.read(post["x"] if post else branch)
    s = p.write(total.results[0], over=x)
    emit(p, node, x, p.write(node.results[0], form), form=form, branch=y, total=s, post=post)


def whole_rows(p: Planner, m: Match) -> bool:
    norms = [m[name] for name in ("norm", "post") if name in m]
    if any(n["weight"] is None or len(n["x"].shape) != 1 or n["eps"] != norms[0]["eps"] for n in norms):
        return False
    return "sum" not in m or (isinstance(m["sum"]["b"], Value) and len(m["sum"].results[0].shape) == 1)


def residual(inner: Pattern | None) -> Fusion:
    pattern = Pattern(("rms_norm",), "norm", {"x": inner} if inner else {})
    return Fusion(pattern, frozenset(FORMS) - {"turned"}, emit_residual, whole_rows)


RESIDUAL = (
    residual(Pattern(("add",), "sum", {"b": Pattern(("rms_norm",), "post")}, keep=True)),
    residual(Pattern(("add",), "sum", keep=True)),
    residual(None),
)
