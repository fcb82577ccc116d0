"""Rotations by numbers that a pass is given."""

from __future__ import annotations

from functools import partial

import numpy as np

from golem_core import Fusion, Match, Node, Pattern, Planner
from golem_vulkan.lowering.attention import check_dim, threads
from golem_vulkan.lowering.entrywise import FORMS
from golem_vulkan.lowering.forms import F32, FRAGMENTS, SIXTEEN
from golem_vulkan.steps import Constant, Rows, launch, vector, with_alignment
from golem_vulkan.target import Target

MOST_HEADS, MANY_COLUMNS = 8, 64
"""Heads that a workgroup turns one after another, all by the same directions, where there are so many columns."""
BITS = 12
"""Of a product's factors, so that float32 holds the product."""


def pairs_of(node: Node) -> Constant:
    """Of each pair: its frequency in turns as three float32 of which the first two have 12 bits, and the bits of its
    axis; float32 (pairs, 4)."""
    left = np.asarray(node["frequencies"], np.float64) / (2 * np.pi)
    parts = []
    for _ in range(2):
        fraction, exponent = np.frexp(left)
        part = np.ldexp(np.trunc(np.ldexp(fraction, BITS)), exponent - BITS)
        parts.append(part)
        left = left - part
    axes = np.asarray(node["axes"], np.uint32).view(np.float32)
    return Constant(np.stack([*parts, left, axes], 1, dtype=np.float32, casting="same_kind"))


def rope_at(target: Target, p: Planner, node: Node) -> None:
    emit_rope_at(target, p, {"rope": node}, F32)


def emit_in_form(target: Target, p: Planner, m: Match) -> None:
    (form,) = p.forms(m["rope"].results[0])
    emit_rope_at(target, p, m, form)


def emit_rope_at(target: Target, p: Planner, m: Match, form: str) -> None:
    node, norm = m["rope"], m.get("norm")
    heads, dim = node["x"].shape
    check_dim("rope_at", dim)
    x, at = p.read(norm["x"] if norm else node["x"]), p.read(node["at"])
    y, blocks = p.write(node.results[0], form), node["blocks"]
    columns = p.capacity[y.rows]
    together = next(n for n in range(MOST_HEADS if columns >= MANY_COLUMNS else 1, 0, -1) if heads % n == 0)
    size = threads(-(-dim // 4))
    alone = size == target.subgroup and dim <= 4 * size
    constants = size, int(node["pairs"] == "neighbours"), int(norm is not None), FORMS[form], together, int(alone)
    launch(
        p, "rope_at", with_alignment(constants, dim, (x, y)),
        (heads // together, columns),
        x, at, y, Rows(y.rows), pairs_of(node), vector(norm["weight"] if norm else None),
        dim, 2 * len(node["frequencies"]) // blocks, blocks, x.stride, at.stride, y.stride,
        float(norm["eps"]) if norm else 0.0,
    )  # fmt: skip


def in_fours(p: Planner, m: Match) -> bool:
    """Whether heads of fragments are whole ones: what reads fragments takes no others."""
    return p.forms(m["rope"].results[0]) == {F32} or m["rope"]["x"].shape[1] % SIXTEEN == 0


def fusions(target: Target) -> tuple[Fusion, ...]:
    normed = Pattern(("rope_at",), "rope", {"x": Pattern(("rms_norm",), "norm")})
    emit = partial(emit_in_form, target)
    return (
        Fusion(normed, frozenset({F32, FRAGMENTS}), emit, in_fours),
        Fusion(Pattern(("rope_at",), "rope"), frozenset({FRAGMENTS}), emit, in_fours),
    )
