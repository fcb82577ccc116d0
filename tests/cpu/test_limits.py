"""What the CPU refuses before it takes memory or makes threads."""

from __future__ import annotations

import os
from math import prod

import numpy as np
import pytest

from golem_core import BadFile, Columns, GolemError, Graph, KVRing, Weight
from golem_core.cpu import device as cpu
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.memory import usable

from ..graph.weights import random_weight

POSITIONS = 1_024_000  # in whole chunks, however they are divided here


def attending(heads: int, dim: int, window: int | None = None) -> Graph:
    graph = Graph()
    x = graph.view(graph.embed(random_weight(np.random.default_rng(0), "table", "F32", 4, heads * dim)), (heads, dim))
    graph.output("attention", graph.attend(x, graph.store(x, x, KVRing(heads, dim, window)), scale=0.1, window=window))
    return graph


@pytest.mark.parametrize(("context", "slots"), [(POSITIONS, 1), (POSITIONS // 4, 4)])
@pytest.mark.parametrize(
    ("kv", "size", "told"), [("f16", 64 * 2 + 4, "1.1"), ("f32", 64 * 4, "2.1"), ("q8_0", 68, "0.6")]
)
def test_states_larger_than_the_memory_are_refused_with_both_sizes(monkeypatch, context, slots, kv, size, told) -> None:
    needed = 2 * 4 * size * POSITIONS  # keys and values of 4 heads of 64, with their scales
    device = CpuDevice(threads=1, kv=kv)
    monkeypatch.setattr(cpu, "usable", lambda: needed - 1)
    with pytest.raises(GolemError, match=rf"-context.* {told} GB .*{told} GB"):
        device.compile(attending(4, 64), context=context, slots=slots)
    monkeypatch.setattr(cpu, "usable", lambda: needed)
    device.check_states(attending(4, 64), slots, context, 128)
    monkeypatch.setattr(cpu, "usable", lambda: None)  # a system that doesn't tell
    device.check_states(attending(4, 64), slots, 1 << 60, 128)


def test_a_window_needs_no_more_for_a_longer_context(monkeypatch) -> None:
    monkeypatch.setattr(cpu, "usable", lambda: 10 << 20)
    CpuDevice(threads=1).check_states(attending(4, 64, window=1024), 1, 1 << 60, 128)


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the system doesn't tell")
def test_the_memory_of_this_machine_is_known() -> None:
    assert np.log2(usable()) > 28


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/system/golem", "system/memory.max"),
        ("0::/system/golem", "system/golem/memory.max"),
        ("0::/outside", "memory.max"),
        ("0::/x", "unified/x/memory.max"),
        ("4:cpu,memory:/docker/1", "memory/docker/1/memory.limit_in_bytes"),
        ("4:memory:/not/seen/here", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_control_group_counts_as_the_memory(tmp_path, line, file) -> None:
    own, limit = tmp_path / "own", tmp_path / "mounted" / file
    own.write_text(f"7:pids:/\n{line}\n")
    limit.parent.mkdir(parents=True)
    limit.write_text("max\n")
    whole = usable(own, tmp_path / "mounted")
    limit.write_text("123456789\n")
    assert usable(own, tmp_path / "mounted") == 123456789 < whole


def test_a_control_group_without_a_limit_leaves_the_memory_of_the_machine(tmp_path) -> None:
    assert usable(tmp_path / "none", tmp_path) == usable(tmp_path, tmp_path)


@pytest.mark.parametrize("threads", [1000_000, 0, -1])
def test_threads_that_no_machine_has_are_refused(threads) -> None:
    with pytest.raises(GolemError, match=f"-threads {threads}: .* 1 to "):
        CpuDevice(threads=threads)


def test_a_token_without_a_row_is_refused() -> None:
    graph = Graph()
    graph.output("rows", graph.embed(random_weight(np.random.default_rng(0), "table", "Q8_0", 5, 32)))
    compiled = CpuDevice(threads=1).compile(graph, context=16, width=4)
    for token in (-1, 5):
        with pytest.raises(ValueError, match="5 rows"):
            compiled.run(Columns(np.array([0, token]), np.arange(2), np.zeros(2, np.int64), np.array([0])))


def test_lists_leave_out_nothing_that_no_row_has() -> None:
    graph = Graph()
    graph.output("logits", graph.take(graph.embed(random_weight(np.random.default_rng(0), "table", "F32", 5, 32))))
    compiled = CpuDevice(threads=1).compile(graph, context=16, width=4)
    assert compiled.prepare_lists(128, [0, 31]) == 32
    for entry in (-1, 32, 10**9):
        with pytest.raises(ValueError, match="lies outside the 32 of a row"):
            compiled.prepare_lists(4, [3, entry])


@pytest.mark.parametrize("place", ["matrix", "table", "rows", "vector"])
def test_codes_that_are_no_numbers_are_refused_by_the_weights_name(place):
    def weight(*shape: int) -> Weight:
        data = np.zeros(prod(shape), np.uint8)
        data[-3] = 0xFF
        return Weight("blk.7.bad", "F8_E4M3", shape, data)

    g = Graph()
    x = g.input("x", (16,))
    made = {
        "matrix": lambda: g.linear(x, weight(24, 16)),
        "table": lambda: g.embed(weight(8, 16)),
        "rows": lambda: g.table_rows(weight(8, 16), x),
        "vector": lambda: g.add(x, weight(16)),
    }
    g.output("y", made[place]())
    with pytest.raises(BadFile, match=r"'blk\.7\.bad': a code of F8_E4M3 in it is NaN"):
        CpuDevice(threads=1).compile(g)
