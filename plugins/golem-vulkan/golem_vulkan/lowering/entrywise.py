"""Ops that treat entries one by one, and those that only put them elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from golem_core import Fusion, Match, Node, Operand, Pattern, Planner, Value, Weight, source
from golem_vulkan.steps import NOTHING, Given, Rows, Vector, launch, with_alignment
from golem_vulkan.target import THREADS, Target, groups_of

KINDS = {
    "copy": 0, "gelu": 1, "silu": 2, "sigmoid": 3, "softplus": 4, "softcap": 5, "scale": 6, "gelu_erf": 7,
    "relu": 8, "elu": 9, "clip": 10,
}  # fmt: skip
WITH = {"add": 1, "mul": 2}
POOLS = {"mean": 0, "first": 1, "last": 2}
FORMS = {"f32": 0, "bytes": 1, "halves": 2, "fragments": 3, "turned": 4}


def emit(
    p: Planner,
    a: Operand,
    b: Operand | Weight | None,
    y: Operand,
    n: int,
    *,
    kind: str = "copy",
    with_: str | None = None,
    last: int = 1,
    by: float = 0.0,
    most: float = 0.0,
    form: str = "f32",
) -> None:
    """y = kind(a), or that plus or times b: another value, a vector of `last` entries or a number.

    Of a value of the rows "runs" every column reads its conversation's.
    """
    other: Any = NOTHING
    shape, b_stride = 0, 0
    if isinstance(b, Weight):
        other, shape = Vector(b), 2 if prod(b.shape) == 1 else 1
    elif b is not None:
        other, b_stride = b, b.stride
    of_run = isinstance(b, Operand) and b.rows != y.rows
    constants = (THREADS, KINDS[kind], WITH[with_] if with_ else 0, shape, FORMS[form], int(of_run))
    constants = with_alignment(constants, n, (a, other, y))
    launch(
        p, "entrywise", constants, (groups_of(groups_of(n, 4), THREADS), p.capacity[y.rows]),
        a, other, y, Rows(y.rows), n, last, a.stride, b_stride, y.stride, float(by), float(most),
    )  # fmt: skip


def unary(target: Target, p: Planner, node: Node) -> None:
    x, y = p.read(node["x"]), p.write(node.results[0])
    args = node.args
    by = next((args[name] for name in ("by", "cap", "low") if name in args), 0.0)
    emit(p, x, None, y, node["x"].size, kind=activation(node), by=by, most=args.get("high", 0.0))


def activation(node: Node) -> str:
    return "gelu_erf" if node.args.get("exact") else node.op.name


def binary(target: Target, p: Planner, node: Node) -> None:
    a, b = node["a"], node["b"]
    x = p.read(a)
    other = b if isinstance(b, Weight) else p.read(b)
    y = p.write(node.results[0])
    if isinstance(other, Operand) and x.rows != y.rows:
        x, other = other, x
    emit(p, x, other, y, a.size, with_=node.op.name, last=a.shape[-1])


def slice_(target: Target, p: Planner, node: Node) -> None:
    x, y, full = p.read(node["x"]), p.write(node.results[0]), node["x"].shape[-1]
    n = node["stop"] - node["start"]
    moved = Operand(x.buffer, x.rows, x.stride, x.start + 4 * node["start"])
    rearrange(p, moved, y, node.results[0].size, (1, n), (full, 0), (n, 0))


def transpose(target: Target, p: Planner, node: Node) -> None:
    x, y, (a, b, *rest) = p.read(node["x"]), p.write(node.results[0]), node["x"].shape
    inner = prod(rest)
    rearrange(p, x, y, node["x"].size, (a, inner), (inner, b * inner), (a * inner, inner))


def concat(target: Target, p: Planner, node: Node) -> None:
    parts, y = [p.read(node[name]) for name in "ab"], p.write(node.results[0])
    full, start = node.results[0].shape[-1], 0
    for x, name in zip(parts, "ab", strict=True):
        n = node[name].shape[-1]
        rearrange(p, x, replace(y, start=y.start + 4 * start), node[name].size, (1, n), (n, 0), (full, 0))
        start += n


def rearrange(
    p: Planner,
    x: Operand,
    y: Operand,
    n: int,
    sizes: tuple[int, int],
    steps: tuple[int, int],
    to: tuple[int, int],
) -> None:
    """Entry (a, b, c), b and c below `sizes`, goes from a * steps[0] + b * steps[1] + c to where `to` says likewise."""
    launch(
        p, "rearrange", (THREADS, 0), (groups_of(n, THREADS), p.capacity[y.rows]),
        x, y, Rows(y.rows), n, *sizes, *steps, *to, x.stride, y.stride,
    )  # fmt: skip


def input_(target: Target, p: Planner, node: Node) -> None:
    """The rows come from memory that the host writes before the pass."""
    y, n = p.write(node.results[0]), node.results[0].size
    launch(
        p, "rearrange", (THREADS, 1), (groups_of(n, THREADS), p.capacity[y.rows]),
        Given(node["name"]), y, Rows(y.rows), n, 1, n, n, 0, n, 0, 4 * n, y.stride,
    )  # fmt: skip


def pool(target: Target, p: Planner, node: Node) -> None:
    x, y, n = p.read(node["x"], rows="all"), p.write(node.results[0]), node["x"].size
    launch(
        p, "pool", (THREADS, POOLS[node["how"]]), (groups_of(n, THREADS), p.capacity[y.rows]),
        x, y, Rows("runs"), n, x.stride, y.stride,
    )  # fmt: skip


def hadamard(target: Target, p: Planner, node: Node) -> None:
    x, y, block = p.read(node["x"]), p.write(node.results[0]), node["block"]
    launch(
        p, "hadamard", (THREADS,), (node["x"].size // block, p.capacity[y.rows]),
        x, y, Rows(y.rows), block, x.stride, y.stride, float(block**-0.5),
    )  # fmt: skip


# ---------------------------------------------------------------- together with what follows


def emit_gated(p: Planner, m: Match) -> None:
    node, act = m["mul"], m["act"]
    (form,) = p.forms(node.results[0])
    other = node["b"] if source(node["a"]).node is act else node["a"]
    x, y = p.read(act["x"]), p.read(other)
    emit(p, x, y, p.write(node.results[0], form), node.results[0].size, kind=activation(act), with_="mul", form=form)


def two_values(p: Planner, m: Match) -> bool:
    return isinstance(m["mul"]["a"], Value) and isinstance(m["mul"]["b"], Value)


def emit_activated(p: Planner, m: Match) -> None:
    node = m["act"]
    (form,) = p.forms(node.results[0])
    x = p.read(node["x"])
    emit(p, x, None, p.write(node.results[0], form), node["x"].size, kind=activation(node), form=form)


ACTIVATED = Fusion(Pattern(("gelu", "silu"), "act"), frozenset(FORMS) - {"f32"}, emit_activated)
GATED = Fusion(
    Pattern(("mul",), "mul", {"a": Pattern(("gelu", "relu", "sigmoid", "silu"), "act")}),
    frozenset(FORMS),
    emit_gated,
    two_values,
)
