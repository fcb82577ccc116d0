"""Ops that go through the columns of a conversation in order."""

from __future__ import annotations

from dataclasses import replace

from golem_core import Node, Operand, Planner, State, Unsupported
from golem_vulkan.lowering.entrywise import rearrange
from golem_vulkan.steps import Rows, launch, vector, with_alignment
from golem_vulkan.target import Target, groups_of, power_of_two

TAPS = range(2, 17)
MOST_PARTS, LEAST_PART = 16, 8
"""Into how many parts a convolution cuts a conversation's columns, and how many columns are worth one."""
MOST_KEYS = 512
"""Components of a key: a column of the state stays in the registers of the threads that share it."""
EACH = 16
"""Entries of it that one thread keeps, if there are threads enough."""
STEPS, FACTORS = 8, 20
"""Columns of a chunk, and what is computed of each before, as in `shaders/delta_chunks.glsl`."""
MOST_STEPS = 15
"""Columns of a run that go one after another; longer runs go in chunks."""
MOST_CHUNKED_KEYS = 128
"""Components of a key for which they do: what threads keep in registers then."""
VALUES = 2
"""Of the state's columns, those that the same threads go through chunks with."""


def causal_conv1d(target: Target, p: Planner, node: Node) -> None:
    weight = node["weight"]
    features, taps = weight.shape
    if taps not in TAPS:
        raise Unsupported(f"causal_conv1d: {weight.name} has {taps} taps; vulkan takes {TAPS[0]} to {TAPS[-1]}")
    x, y = p.read(node["x"]), p.write(node.results[0])
    parts = max(1, min(MOST_PARTS, target.most_threads // 32, power_of_two(p.capacity["all"]) // LEAST_PART))
    launch(
        p, "causal_conv1d", (32 * parts, taps, parts), (groups_of(features, 32), p.capacity["runs"]),
        x, y, vector(weight), vector(node["bias"]), State(node["window"], writes=True), Rows("runs"),
        Rows("all"),
        features, x.stride, y.stride,
    )  # fmt: skip


def prepend(target: Target, p: Planner, node: Node) -> None:
    (length, channels), before = node["x"].shape, node["past"].shape[0]
    x, y = p.read(node["x"]), p.write(node.results[0])
    n, own = before * channels, length * channels
    launch(
        p, "prepend", (32,), (groups_of(n, 32), p.capacity["runs"]),
        x, y, State(node["past"], writes=True), Rows("runs"), Rows("all"),
        n, own - n, channels, int(node["start"] == "first"), x.stride, y.stride,
    )  # fmt: skip
    behind = replace(y, start=y.start + 4 * n)
    rearrange(p, x, behind, own, (1, own), (own, 0), (own, 0))


def delta_net(target: Target, p: Planner, node: Node) -> None:
    """Runs of many columns in chunks, the others, and columns that may be taken back, one column after another."""
    (key_heads, dk), (heads, dv) = node["q"].shape, node["v"].shape
    if dk > MOST_KEYS:
        raise Unsupported(f"delta_net: keys of {dk} components; vulkan takes {MOST_KEYS}")
    q, k, v, decay, beta = (p.read(node[name]) for name in ("q", "k", "v", "decay", "beta"))
    y, state, scale = p.write(node.results[0]), State(node["state"], writes=True), float(node["scale"])
    runs, rows = p.capacity["runs"], (Rows("runs"), Rows("all"))
    chunked = p.capacity["all"] > MOST_STEPS and dk % 4 == 0 and dk <= MOST_CHUNKED_KEYS
    lanes = min(target.subgroup, 16)
    while lanes > 1 and lanes // 2 * EACH >= dk:
        lanes //= 2
    size = 64
    launch(
        p, "delta_net", (size, lanes, groups_of(dk, lanes), MOST_STEPS if chunked else 0xFFFFFFFF),
        (groups_of(dv, size // lanes), heads, runs),
        q, k, v, decay, beta, y, state, *rows,
        key_heads, heads, dk, dv, *(x.stride for x in (q, k, v, decay, beta, y)), scale,
    )  # fmt: skip
    if not chunked:
        return
    stride = 4 * FACTORS * heads
    factors = Operand(p.buffer(stride * p.capacity["all"]), y.rows, stride, writes=True)
    launch(
        p, "delta_factors", with_alignment((STEPS * STEPS, dk // 4, MOST_STEPS), dk, (q, k)),
        (groups_of(p.capacity["all"], STEPS), key_heads, runs),
        q, k, decay, beta, factors, *rows,
        key_heads, heads, dk, q.stride, k.stride, decay.stride, beta.stride, stride, scale,
    )  # fmt: skip
    launch(
        p, "delta_chunks", with_alignment((size, groups_of(dk, 4 * STEPS), VALUES, MOST_STEPS), dk, (q, k)),
        (groups_of(dv, size // STEPS * VALUES), heads, runs),
        q, k, v, y, state, replace(factors, writes=False), *rows,
        key_heads, heads, dk, dv, q.stride, k.stride, v.stride, y.stride, stride, scale,
    )  # fmt: skip
    p.release(factors.buffer)
