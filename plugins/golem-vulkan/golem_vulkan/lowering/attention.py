"""Rotations, what goes into rings, and attention over them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from golem_core import (
    Fusion,
    Match,
    Node,
    Operand,
    Pattern,
    Planner,
    State,
    Unsupported,
    rope_frequencies,
)
from golem_vulkan.lowering import entrywise, forms
from golem_vulkan.steps import NOTHING, Constant, Positions, Rows, Values, launch, vector, with_alignment
from golem_vulkan.target import THREADS, Target, groups_of, power_of_two

PAIRS = {"halves": 1, "neighbours": 2}
MOST_DIM = 1024
"""Components of a head that fit the kernels' shared memory."""
MOST_HEADS = 8
"""Query heads for which a workgroup reads a key once."""
MOST_QUERIES = 2048
"""Entries of the queries that it keeps in shared memory."""
TILE = 32
"""Positions at a time."""
MOST_MIXED = 4096
"""Entries of mixes that it does."""
MOST_SHARES = 64
BUSY = 264
"""Workgroups that keep a device busy."""
LEAST_SHARE = 32
"""Positions of a cache that are worth a workgroup of their own."""
WIDE_SHAPE, LARGE_HEADS = (64, 32), (32, 32)
"""Rows of a workgroup on cooperative matrices, and positions at a time, as its shared memory holds them: for heads of
up to 128 components, and for larger ones."""
RING = 10
"""The specialization constant that says how rings keep keys and values."""
EVERYTHING = 0xFFFFFFFF
"""The window of attention that sees every position."""


def turns(node: Node) -> tuple[Constant, int]:
    """The frequencies of a rotation as fractions of 2^64 turns a position, low word first; how many components turn."""
    factors = node["factors"]
    radians = rope_frequencies(
        node["x"].shape[-1],
        base=node["base"],
        dims=node["dims"],
        factors=None if factors is None else factors.dequantize(),
        scale=node["scale"],
    )
    fraction = np.longdouble(radians) / (2 * np.longdouble(np.pi)) % 1
    high = np.floor(fraction * 2**32)
    low = np.floor((fraction * 2**32 - high) * 2**32)
    return Constant(np.stack([low, high], 1).astype(np.uint32)), 2 * len(radians)


def rotation(rope: Node | None) -> tuple[int, Any, int]:
    """PAIRS, the frequencies and the components that turn."""
    if rope is None:
        return 0, NOTHING, 0
    frequencies, dims = turns(rope)
    return PAIRS[rope["pairs"]], frequencies, dims


def threads(dim: int) -> int:
    return min(THREADS, max(32, power_of_two(dim)))


def check_dim(name: str, dim: int) -> None:
    if dim > MOST_DIM:
        raise Unsupported(f"{name}: heads of {dim} components; vulkan takes {MOST_DIM}")


def in_bytes(target: Target) -> int:
    return int(target.kv == "q8_0")


def with_ring(target: Target, *constants: int) -> tuple[int, ...]:
    """The constants of a kernel, and how rings keep keys and values (`ring.glsl`)."""
    return (*constants, *[0] * (RING - len(constants)), in_bytes(target))


def rope(target: Target, p: Planner, node: Node) -> None:
    emit_rope(p, {"rope": node})


def emit_rope(p: Planner, m: Match) -> None:
    node, norm = m["rope"], m.get("norm")
    heads, dim = node["x"].shape
    check_dim("rope", dim)
    forms_read = p.forms(node.results[0])
    form = forms.HALVES if forms_read == {forms.HALVES} else forms.F32
    x, y = p.read(norm["x"] if norm else node["x"]), p.write(node.results[0], form)
    pairs, frequencies, dims = rotation(node)
    launch(
        p, "rope", (threads(dim), pairs, int(norm is not None), entrywise.FORMS[form]), (heads, p.capacity[y.rows]),
        x, y, Rows(y.rows), frequencies, vector(norm["weight"] if norm else None),
        dim, dims, x.stride, y.stride, float(norm["eps"]) if norm else 0.0,
    )  # fmt: skip


def store(target: Target, p: Planner, node: Node) -> None:
    emit_store(target, p, {"store": node})


def emit_store(target: Target, p: Planner, m: Match) -> None:
    node, rope, norm = m["store"], m.get("rope"), m.get("norm")
    ring, first = node["ring"], norm or rope
    check_dim("store", ring.dim)
    if in_bytes(target) and ring.dim % 32:
        raise Unsupported(f"store: heads of {ring.dim} components; with -kv q8_0 vulkan takes multiples of 32")
    k, v = p.read(first["x"] if first else node["k"]), p.read(node["v"])
    pairs, frequencies, dims = rotation(rope)
    launch(
        p, "store", with_ring(target, threads(ring.dim), pairs, int(norm is not None)),
        (ring.heads, p.capacity[k.rows]),
        k, v, State(ring, writes=True), Values(ring), Rows(k.rows), frequencies,
        vector(norm["weight"] if norm else None),
        ring.heads, ring.dim, dims, Positions(ring), k.stride, v.stride, float(norm["eps"]) if norm else 0.0,
    )  # fmt: skip


def attend(target: Target, p: Planner, node: Node, form: str = forms.F32) -> None:
    ring, dim, window = node["cache"].ring, node["q"].shape[1], node["window"]
    if dim % 8:
        raise Unsupported(f"attend: heads of {dim} components; vulkan takes multiples of 8")
    seen = min(window or target.context, target.context)
    places, numbers = (State(ring), Values(ring)), (window or EVERYTHING, Positions(ring), 0)
    if goes_wide(target, p, node):
        emit_wide(p, target, node, "attend_wide", ring.heads, places, numbers, form)
        return
    emit_attend(target, p, node, "attend", ring.heads, places, numbers, seen, form)


def goes_wide(target: Target, p: Planner, node: Node) -> bool:
    """Whether attention is one for cooperative matrices (and not for fragments)."""
    if node.op.name == "attend_columns":
        return forms.form(target, node, "k") == forms.HALVES
    dim, columns = node["q"].shape[1], p.capacity[p.node_rows(node)]
    return target.matrices and columns >= forms.WIDE and dim % 16 == 0 and dim <= forms.MOST_WIDE_DIM


def emit_wide(
    p: Planner,
    target: Target,
    node: Node,
    kernel: str,
    kv_heads: int,
    places: tuple[Any, Any],
    numbers: tuple[Any, ...],
    form: str,
) -> None:
    """On cooperative matrices, for many columns; `places` and `numbers` as for `emit_attend`; `form`: of the result."""
    heads, dim = node["q"].shape
    group, (rows, tile) = heads // kv_heads, WIDE_SHAPE if dim <= 128 else LARGE_HEADS
    together = next(n for n in (8, 4, 2, 1) if group % n == 0)
    q, y = p.read(node["q"]), p.write(node.results[0], form)
    cap = node.args.get("softcap")
    spans, scale = int(node.args.get("spans", False)), float(node["scale"])
    if kernel == "attend_columns_wide":
        scale *= forms.HALF_SCALE
    constants = target.subgroup * rows // 16, together, dim, rows, int(cap is not None), target.subgroup, spans, tile
    constants = with_ring(target, *constants, 0, entrywise.FORMS[form])
    launch(
        p, kernel, constants, (heads // together, groups_of(p.capacity[y.rows], rows // together)),
        q, *places, y, Rows(y.rows), kv_heads, group // together, *numbers, q.stride, y.stride, scale,
        float(cap or 0.0),
    )  # fmt: skip


def attend_columns(target: Target, p: Planner, node: Node, to: str = forms.F32) -> None:
    (kv_heads, dim), window = node["k"].shape, node["window"]
    if dim % 4:
        raise Unsupported(f"attend_columns: heads of {dim} components; vulkan takes multiples of 4")
    if forms.attends_in_fragments(target, node):
        emit_fragments(target, p, node)
        return
    form = forms.form(target, node, "k")
    k, v = (p.read(node[name], form, rows="all") for name in "kv")
    numbers = EVERYTHING if window is None else window, k.stride, v.stride
    if form == forms.HALVES:
        emit_wide(p, target, node, "attend_columns_wide", kv_heads, (k, v), numbers, to)
        return
    seen = p.capacity["all"] if window is None else min(2 * window + 1, p.capacity["all"])
    emit_attend(target, p, node, "attend_columns", kv_heads, (k, v), numbers, seen)


def emit_fragments(target: Target, p: Planner, node: Node) -> None:
    (heads, dim), kv_heads, window = node["q"].shape, node["k"].shape[0], node["window"]
    q, y = p.read(node["q"], forms.FRAGMENTS), p.write(node.results[0])
    k, v = p.read(node["k"], forms.FRAGMENTS, rows="all"), p.read(node["v"], forms.TURNED, rows="all")
    narrow, together = dim <= 128, 4
    scale = float(node["scale"]) * forms.HALF_SCALE**2 / math.log(2)
    launch(
        p, "attend_fragments",
        (target.subgroup * together, dim, 64 if narrow else 32, int(narrow), 2 if narrow else 1),
        (heads, groups_of(p.capacity[y.rows], forms.SIXTEEN * together)),
        q, k, v, y, Rows(y.rows), heads, kv_heads, EVERYTHING if window is None else window,
        p.capacity["all"] // forms.SIXTEEN, y.stride, scale,
    )  # fmt: skip


def emit_attend(
    target: Target,
    p: Planner,
    node: Node,
    kernel: str,
    kv_heads: int,
    places: tuple[Any, Any],
    numbers: tuple[Any, ...],
    seen: int,
    form: str = forms.F32,
) -> None:
    """`places` of keys and values; `numbers`: the window, and how keys and values lie; `seen`: positions at most;
    `form`: of the result, float32 unless there are several shares to be merged."""
    heads, dim = node["q"].shape
    together = heads_together(heads // kv_heads, dim)
    q, y = p.read(node["q"]), p.write(node.results[0], form)
    columns = p.capacity[y.rows]
    shares = shares_of(heads, kv_heads, dim, columns, seen)
    to = y
    if shares > 1:
        stride = 4 * heads * shares * (dim + 2)
        to = Operand(p.buffer(stride * columns), y.rows, stride, writes=True)
    cap = node.args.get("softcap")
    loads = dim // (4 if kernel == "attend_columns" else 8)
    parts = max(1, min(THREADS // loads, MOST_MIXED // (together * dim), TILE))
    constants = THREADS, together, dim, TILE, int(cap is not None), int(node.args.get("spans", False)), parts
    launch(
        p, kernel, with_ring(target, *constants), (heads // together, columns, shares),
        q, *places, to, Rows(y.rows), kv_heads, heads // kv_heads // together, *numbers,
        q.stride, to.stride, shares, float(node["scale"]), float(cap or 0.0),
    )  # fmt: skip
    if shares > 1:
        launch(
            p, "attend_merge", with_alignment((max(32, power_of_two(dim // 4)), entrywise.FORMS[form]), dim, (y,)),
            (heads, columns),
            Operand(to.buffer, y.rows, to.stride), y, Rows(y.rows), heads, dim, shares, y.stride,
        )  # fmt: skip
        p.release(to.buffer)


def shares_of(heads: int, kv_heads: int, dim: int, columns: int, seen: int) -> int:
    """Into how many shares the positions of each head are cut, so that there are workgroups enough."""
    groups = heads // heads_together(heads // kv_heads, dim) * columns
    return max(1, min(groups_of(BUSY, groups), groups_of(seen, LEAST_SHARE), MOST_SHARES))


def heads_together(group: int, dim: int) -> int:
    """How many of the query heads that share a key head a workgroup takes: as its shared memory holds."""
    fitting = range(min(MOST_HEADS, group, max(1, MOST_QUERIES // dim)), 0, -1)
    return next(n for n in fitting if group % n == 0)


# ---------------------------------------------------------------- together with what comes before

TURNED_NORM = Pattern(("rope",), "rope", {"x": Pattern(("rms_norm",), "norm")})


def store_of(target: Target, inner: Pattern) -> Fusion:
    return Fusion(Pattern(("store",), "store", {"k": inner}), frozenset(), partial(emit_store, target))


def emit_halves(target: Target, p: Planner, m: Match) -> None:
    node = m["attend"]
    (attend if node.op.name == "attend" else attend_columns)(target, p, node, forms.HALVES)


def merges(target: Target, p: Planner, m: Match) -> bool:
    """Whether attention has several shares of whole blocks of entries, whose merging writes these."""
    node = m["attend"]
    ring, (heads, dim) = node["cache"].ring, node["q"].shape
    columns, seen = p.capacity[p.node_rows(node)], min(node["window"] or target.context, target.context)
    wide = goes_wide(target, p, node)
    return dim % 32 == 0 and not wide and shares_of(heads, ring.heads, dim, columns, seen) > 1


def fusions(target: Target) -> tuple[Fusion, ...]:
    merged = Fusion(
        Pattern(("attend",), "attend"),
        frozenset({forms.BYTES}),
        lambda p, m: attend(target, p, m["attend"], forms.BYTES),
        partial(merges, target),
    )
    halves = Fusion(
        Pattern(("attend", "attend_columns"), "attend"),
        frozenset({forms.HALVES}),
        partial(emit_halves, target),
        lambda p, m: goes_wide(target, p, m["attend"]),
    )
    return (
        store_of(target, TURNED_NORM),
        store_of(target, Pattern(("rope",), "rope")),
        Fusion(TURNED_NORM, frozenset({forms.F32, forms.HALVES}), emit_rope),
        Fusion(Pattern(("rope",), "rope"), frozenset({forms.HALVES}), emit_rope),
        merged,
        halves,
    )
