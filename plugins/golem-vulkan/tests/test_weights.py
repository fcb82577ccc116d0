"""Weights arrive whole however they are cut into pieces, and may stay in the host's memory."""

from __future__ import annotations

import numpy as np
from golem_vulkan import memory, plugin, weights
from golem_vulkan.device import VulkanDevice

from golem_core import Columns, Graph, Weight


def test_a_weight_larger_than_the_staging_buffers(device, monkeypatch):
    monkeypatch.setattr(weights, "STAGING", 1 << 16)
    table = np.random.default_rng(1).normal(size=(1001, 96)).astype(np.float32)
    told: list[tuple[int, int]] = []
    g = Graph()
    g.output("y", g.embed(Weight("table", "F32", table.shape, table.reshape(-1).view(np.uint8))))
    run = device.compile(g, width=16, scored=16, progress=lambda *at: told.append(at))
    tokens = [0, 1000, 341, 342, 700, 3]
    got = run.run(Columns(tokens, np.arange(6), np.zeros(6)))["y"]
    np.testing.assert_array_equal(got, table[tokens])
    assert told[-1] == (table.nbytes, table.nbytes)


def test_experts_in_the_hosts_memory_give_the_same(device, said, capsys):
    opened = VulkanDevice(device.adapter.index, host_experts=True)
    dice = np.random.default_rng(2)
    table, up = (dice.normal(size=shape).astype(np.float32) for shape in ((8, 64), (4, 16, 64)))
    results = []
    for each in (device, opened):
        g = Graph()
        x = g.embed(Weight("table", "F32", table.shape, table.reshape(-1).view(np.uint8)))
        ids, _ = g.route(g.slice(x, 0, 4), count=2)
        g.output("y", g.expert_linear(x, Weight("up", "F32", up.shape, up.reshape(-1).view(np.uint8)), ids))
        run = each.compile(g, width=8, progress=lambda *at: None)
        results.append(run.run(Columns(np.arange(8), np.arange(8), np.zeros(8)))["y"].copy())
    np.testing.assert_array_equal(*results)
    assert "0.00 GB of weights, 0.00 GB of states" in capsys.readouterr().err
    assert opened.weights.arenas["host"].buffers and not device.weights.arenas["host"].buffers
    opened.close()


def test_what_is_needed_is_told_once(device, said, capsys):
    for _ in range(2):
        opened = plugin.open_device({"device": f"vulkan:{device.adapter.index}"})
        for rows in (11, 100_000):
            g = Graph()
            data = np.zeros(rows * 32 * 4, np.uint8)
            g.output("y", g.embed(Weight("table", "F32", (rows, 32), data)))
            opened.compile(g, width=8, progress=lambda *at: None)
        opened.close()
    software, told = [], []
    for line in capsys.readouterr().err.splitlines():
        (told if "of weights" in line else software).append(line)
    assert [line.partition(": ")[2][:18] for line in told] == ["0.00 GB of weights", "0.01 GB of weights"]
    assert len(software) == (device.adapter.kind == "processor")


def test_a_pass_that_is_closed_leaves_the_weights(device):
    table = np.random.default_rng(3).normal(size=(8, 64)).astype(np.float32)
    weight = Weight("table", "F32", table.shape, table.reshape(-1).view(np.uint8))

    def graph() -> Graph:
        g = Graph()
        g.output("y", g.embed(weight))
        return g

    known, taken = len(device.passes), device.weights
    first = device.compile(graph(), width=8)
    arenas = list(taken.arenas["device"].buffers)
    first.close()
    assert len(device.passes) == known and not any(arena.buffers for arena in first.memory.values())
    again = device.compile(graph(), width=8)
    np.testing.assert_array_equal(again.run(Columns([5], [0], [0]))["y"], table[[5]])
    assert taken.arenas["device"].buffers == arenas


def test_rows_that_cannot_be_written_to_are_copied_once(device):
    g = Graph()
    g.output("y", g.scale(g.input("x", (4,)), by=2.0))
    run = device.compile(g, width=8)

    def doubled(rows: np.ndarray) -> np.ndarray:
        n = len(rows)
        return run.run(Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs={"x": rows}))["y"].copy()

    rows, others = (np.random.default_rng(seed).normal(size=(8, 4)).astype(np.float32) for seed in (4, 5))
    np.testing.assert_array_equal(doubled(rows), 2 * rows)
    rows += 1  # in place: what may change is copied every time
    np.testing.assert_array_equal(doubled(rows), 2 * rows)
    rows -= 3
    rows.flags.writeable = False
    np.testing.assert_array_equal(doubled(rows), 2 * rows)
    run.given["x"].bytes[:] = 0
    np.testing.assert_array_equal(doubled(rows), 0 * rows)
    np.testing.assert_array_equal(doubled(others[:3]), 2 * others[:3])
    np.testing.assert_array_equal(doubled(rows), 2 * rows)


def test_what_a_large_weight_leaves_free_goes_to_small_ones(device, monkeypatch):
    monkeypatch.setattr(memory, "ARENA", 1 << 20)
    arenas, sizes = memory.Arenas(device.gpu, "device"), [700 << 10, 600 << 10, 300 << 10, 200 << 10]
    blocks = [arenas.take(size, sum(sizes[i + 1 :])) for i, size in enumerate(sizes)]
    assert [block.offset for block in blocks] == [0, 0, 700 << 10, 600 << 10]
    assert len(arenas.buffers) == 2 and blocks[2].buffer is blocks[0].buffer and blocks[3].buffer is blocks[1].buffer
    arenas.close()
    assert arenas.take(64).offset == 0
    arenas.close()
