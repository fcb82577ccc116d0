"""Graphs without states: texts end to end, what is handed in with a pass, and one row for each text."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph, GraphError, Reference
from golem_core.cpu.device import CpuDevice

from .weights import random_weight

WIDTH, HEADS = 96, 3


@pytest.fixture(scope="module")
def device():
    device = CpuDevice(threads=2)
    yield device
    device.close()


def encoder(window: int | None) -> Graph:
    dice, g = np.random.default_rng(3), Graph()

    def weight(name: str, *shape: int, kind: str = "F32"):
        return random_weight(dice, name, kind, *shape, scale=0.2)

    x = g.embed(weight("table", 50, WIDTH))
    for _ in range(2):
        q, k, v = (g.linear(x, weight(n, WIDTH, WIDTH, kind="Q8_0")).heads(HEADS) for n in "qkv")
        a = g.attend_columns(g.rope(q, base=1e4), g.rope(k, base=1e4), v, scale=0.2, window=window)
        x = g.layer_norm(x + a, weight("n", WIDTH), weight("b", WIDTH), eps=1e-5)
        x = g.layer_norm(x + g.linear(g.gelu(x, exact=True), weight("w", WIDTH, WIDTH)), eps=1e-5)
    g.output("mean", g.pool(x, "mean"))
    g.output("first", g.pool(x, "first"))
    return g


def texts(lengths: list[int], names: list[int]) -> Columns:
    """Text `name` of the given length in the slot of its place; its tokens follow from its name."""
    tokens = [np.random.default_rng(name).integers(0, 50, n) for name, n in zip(names, lengths, strict=True)]
    return Columns(
        np.concatenate(tokens), np.concatenate([np.arange(n) for n in lengths]), np.repeat(range(len(names)), lengths)
    )


@pytest.mark.parametrize("window", [None, 8])
def test_a_text_is_the_same_to_the_last_bit_alone_and_in_any_company(device, window):
    compiled = device.compile(encoder(window), slots=64, width=4096)
    lengths = [1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 300]
    names = list(range(len(lengths)))
    alone = []
    for n, name in zip(lengths, names, strict=True):
        alone.append({key: rows[0].copy() for key, rows in compiled.run(texts([n], [name])).items()})
    for order in (names, names[::-1], names[5:] + names[:5], names * 4):
        rows = compiled.run(texts([lengths[i] for i in order], order))
        for place, name in enumerate(order):
            for key, want in alone[name].items():
                np.testing.assert_array_equal(rows[key][place], want, err_msg=f"{lengths[name]} columns, {key}")


def test_rows_of_runs_come_in_the_order_of_the_columns_and_are_what_the_reference_says(device):
    g = encoder(8)
    compiled = device.compile(g, slots=4, width=64)
    columns = Columns(np.arange(9) % 50, [0, 1, 2, 0, 1, 2, 3, 0, 1], [3, 3, 3, 0, 0, 0, 0, 2, 2])
    got, want = compiled.run(columns), Reference(g, slots=4, round_input=device.round_input).run(columns)
    for name in want:
        assert got[name].shape == (3, WIDTH)
        np.testing.assert_allclose(got[name], want[name], atol=2e-5)


def test_inputs_that_are_not_the_graphs_are_refused_by_name(device):
    g = Graph()
    g.output("y", g.silu(g.input("pixels", (3, 4))))
    compiled, reference = device.compile(g, width=8), Reference(g)
    zeros = np.zeros(2, np.int64)

    def columns(inputs: dict[str, np.ndarray]) -> Columns:
        return Columns(zeros, [0, 1], zeros, inputs=inputs)

    good = np.ones((2, 3, 4))
    for run in (compiled.run, reference.run):
        assert run(columns({"pixels": good}))["y"].shape == (2, 3, 4)
        with pytest.raises(GraphError, match="'pixels': the pass has no rows"):
            run(columns({}))
        with pytest.raises(GraphError, match=r"'pixels': rows of shape \[4, 3\]"):
            run(columns({"pixels": np.ones((2, 4, 3))}))
        with pytest.raises(GraphError, match="'sounds': the graph has no such input"):
            run(columns({"pixels": good, "sounds": good}))
    with pytest.raises(GraphError, match="'pixels': 3 rows for 2 columns"):
        columns({"pixels": np.ones((3, 3, 4))})
    with pytest.raises(GraphError, match="input of that name already"):
        g.input("pixels", (3,))
