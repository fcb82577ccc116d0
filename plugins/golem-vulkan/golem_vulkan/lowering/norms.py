"""Norms, with the residual sum before them, the modulation after them, and the form that a product then reads."""

from __future__ import annotations

from functools import partial

from golem_core import RUNS, Fusion, Match, Node, Operand, Pattern, Planner, Value, source
from golem_vulkan.lowering.entrywise import FORMS
from golem_vulkan.lowering.forms import F32, TURNED
from golem_vulkan.steps import NOTHING, Nothing, Rows, launch, vector, with_alignment
from golem_vulkan.target import Target, power_of_two

KINDS = {"rms_norm": 0, "l2_norm": 1, "layer_norm": 2}
MOST_THREADS = 512


def threads(target: Target, n: int) -> int:
    """Of a workgroup that norms n entries, four at a time."""
    return min(MOST_THREADS, target.most_threads, max(32, power_of_two(-(-n // 8))))


def emit(
    target: Target,
    p: Planner,
    node: Node,
    x: Operand,
    out: Operand,
    *,
    form: str = "f32",
    also: tuple[Operand, str] | None = None,
    branch: Operand | None = None,
    total: Operand | None = None,
    post: Node | None = None,
    gate: Operand | None = None,
    modulation: tuple[Operand, Operand] | None = None,
) -> None:
    """`also`: where the result goes in a second form; `post`: the norm that the branch goes through before it is added;
    `gate`: what it is multiplied by instead, and `modulation`: scale and shift of the result, all with the rows "runs".
    """
    n = node["x"].shape[-1]
    parts = node["x"].size // n
    kind = 0 if branch is None else 2 if post else 3 if gate else 1
    y, s, g = (each or NOTHING for each in (branch, total, gate))
    second, second_form = also or (NOTHING, form)
    scale, shift = modulation or (NOTHING, NOTHING)
    forms = FORMS[form], int(modulation is not None), FORMS[second_form]
    constants = threads(target, n), KINDS[node.op.name], kind, *forms
    places = x, y, s, out, second, g, scale, shift
    launch(
        p, "norm", with_alignment(constants, n, places), (parts, p.capacity[out.rows]),
        x, y, s, out, Rows(out.rows), vector(node.args.get("weight")), vector(node.args.get("bias")),
        g if gate else vector(post["weight"] if post else None), scale, shift, second,
        n, x.stride, stride_of(y), stride_of(s), out.stride, float(node["eps"]),
        stride_of(g), stride_of(scale), stride_of(shift), stride_of(second),
    )  # fmt: skip


def stride_of(place: Operand | Nothing) -> int:
    return place.stride if isinstance(place, Operand) else 0


def norm(target: Target, p: Planner, node: Node) -> None:
    emit(target, p, node, p.read(node["x"]), p.write(node.results[0]))


# ---------------------------------------------------------------- together with the sum before


def emit_residual(target: Target, p: Planner, m: Match) -> None:
    node, total, post, gated = m["norm"], m.get("sum"), m.get("post"), m.get("gated")
    result, modulation = node.results[0], None
    if "shift" in m:
        result, scaled = m["shift"].results[0], m["scale"]
        modulation = p.read(of_runs(scaled)[1]), p.read(of_runs(m["shift"])[1])
    forms = p.forms(result)
    form = min(forms) if len(forms) == 1 and TURNED not in forms else F32
    second = min(forms - {form, F32, TURNED}, default=None)

    def outs() -> tuple[Operand, tuple[Operand, str] | None]:
        return p.write(result, form), None if second is None else (p.write(result, second), second)

    if total is None:
        x = p.read(node["x"])
        out, also = outs()
        emit(target, p, node, x, out, form=form, also=also, modulation=modulation)
        return
    branch, carried = total["b"], total["a"]
    if source(carried).node in (post, gated):
        branch, carried = carried, branch
    branch, gate = of_runs(gated) if gated else (branch, None)
    x, y = p.read(carried), p.read(post["x"] if post else branch)
    s, g = p.write(total.results[0], over=x), None if gate is None else p.read(gate)
    out, also = outs()
    emit(
        target, p, node, x, out, form=form, also=also,
        branch=y, total=s, post=post, gate=g, modulation=modulation,
    )  # fmt: skip


def of_runs(node: Node) -> tuple[Value, Value]:
    """The inputs of a sum or product of columns with rows of their conversations, in this order."""
    a, b = node["a"], node["b"]
    return (b, a) if a.rows == RUNS else (a, b)


def whole_rows(p: Planner, m: Match) -> bool:
    norms = [m[name] for name in ("norm", "post") if name in m]
    if any(n["weight"] is None or len(n["x"].shape) != 1 or n["eps"] != norms[0]["eps"] for n in norms):
        return False
    return "sum" not in m or (isinstance(m["sum"]["b"], Value) and len(m["sum"].results[0].shape) == 1)


def residual(target: Target, inner: Pattern | None, *, modulated: bool = False, kept: bool = False) -> Fusion:
    """`kept`: the result is read in several forms, float32 among them."""
    ops = ("rms_norm",) if modulated else ("layer_norm", "rms_norm")
    pattern = Pattern(ops, "norm", {"x": inner} if inner else {}, keep=kept)
    if modulated:
        pattern = Pattern(("mul",), "scale", {"a": pattern}, spread=True)
        pattern = Pattern(("add",), "shift", {"a": pattern}, spread=True)
    return Fusion(pattern, frozenset(FORMS) - {TURNED}, partial(emit_residual, target), whole_rows)


GATED = Pattern(("add",), "sum", {"b": Pattern(("mul",), "gated", spread=True)}, keep=True)
POST = Pattern(("add",), "sum", {"b": Pattern(("rms_norm",), "post")}, keep=True)
SUM = Pattern(("add",), "sum", keep=True)


def fusions(target: Target) -> tuple[Fusion, ...]:
    """The norms with what comes before and after them, the largest patterns first."""
    return (
        *(residual(target, inner, modulated=True) for inner in (GATED, SUM, None)),
        *(residual(target, inner) for inner in (GATED, POST, SUM, None)),
        *(residual(target, inner, kept=True) for inner in (POST, SUM, None)),
    )
