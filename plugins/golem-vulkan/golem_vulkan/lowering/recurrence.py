"""Ops that go through the columns of a conversation in order."""

from __future__ import annotations

from dataclasses import replace

from golem_core import Node, Planner, State, Unsupported
from golem_vulkan.lowering.entrywise import rearrange
from golem_vulkan.steps import Rows, launch, vector
from golem_vulkan.target import Target, groups_of

TAPS = range(2, 17)
MOST_KEYS = 512
"""Components of a key: a column of the state stays in the registers of the threads that share it."""
EACH = 16
"""Entries of it that one thread keeps, if there are threads enough."""


def causal_conv1d(target: Target, p: Planner, node: Node) -> None:
    weight = node["weight"]
    features, taps = weight.shape
    if taps not in TAPS:
        raise Unsupported(f"causal_conv1d: {weight.name} has {taps} taps; vulkan takes {TAPS[0]} to {TAPS[-1]}")
    x, y = p.read(node["x"]), p.write(node.results[0])
    launch(
        p, "causal_conv1d", (32, taps), (groups_of(features, 32), p.capacity["runs"]),
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
    (key_heads, dk), (heads, dv) = node["q"].shape, node["v"].shape
    if dk > MOST_KEYS:
        raise Unsupported(f"delta_net: keys of {dk} components; vulkan takes {MOST_KEYS}")
    inputs = [p.read(node[name]) for name in ("q", "k", "v", "decay", "beta")]
    y = p.write(node.results[0])
    lanes = min(target.subgroup, 16)
    while lanes > 1 and lanes // 2 * EACH >= dk:
        lanes //= 2
    size = 64
    launch(
        p, "delta_net", (size, lanes, groups_of(dk, lanes)), (groups_of(dv, size // lanes), heads, p.capacity["runs"]),
        *inputs, y, State(node["state"], writes=True), Rows("runs"), Rows("all"),
        key_heads, heads, dk, dv, *(x.stride for x in (*inputs, y)), float(node["scale"]),
    )  # fmt: skip
