"""The numpy meanings of ops that are easily written another way, and what their shape rules refuse."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest

from golem_core import RUNS, Columns, Graph, GraphError, Reference

from .weights import random_weight


def inputs(**rows: np.ndarray) -> Columns:
    n = len(next(iter(rows.values())))
    return Columns(np.zeros(n), np.arange(n), np.zeros(n), inputs=rows)


@pytest.mark.parametrize(("shape", "taps"), [((4, 6, 3), 3), ((1, 2, 5), 5), ((3, 1, 2), 1)])
def test_a_convolution_sums_over_the_places_around_each(shape, taps):
    rng = np.random.default_rng(1)
    weight, bias = random_weight(rng, "w", "F32", 4, taps * taps * shape[2]), random_weight(rng, "b", "F32", 4)
    g, rows = Graph(), rng.normal(size=(2, *shape)).astype(np.float32)
    g.output("y", g.conv2d(g.input("x", shape), weight, bias))
    y = Reference(g).run(inputs(x=rows))["y"]
    square, (height, width, _) = weight.dequantize().reshape(4, taps, taps, -1), shape
    for n, i, j, o in np.ndindex(2, height, width, 4):
        total = float(bias.dequantize()[o])
        for di, dj in np.ndindex(taps, taps):
            at = i + di - taps // 2, j + dj - taps // 2
            if 0 <= at[0] < height and 0 <= at[1] < width:
                total += float(rows[n, *at].astype(np.float64) @ square[o, di, dj])
        assert y[n, i, j, o] == pytest.approx(total, abs=1e-4)


def test_upsampling_repeats_every_place():
    g, rows = Graph(), np.random.default_rng(2).normal(size=(2, 3, 4, 5)).astype(np.float32)
    g.output("y", g.upsample(g.input("x", (3, 4, 5))))
    y = Reference(g).run(inputs(x=rows))["y"]
    for i, j in np.ndindex(6, 8):
        np.testing.assert_array_equal(y[:, i, j], rows[:, i // 2, j // 2])


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_pair_is_a_complex_number_that_is_turned(pairs, blocks):
    rng = np.random.default_rng(3)
    frequencies, axes = tuple(rng.uniform(0, 1, 6).tolist()), (0, 1, 2, 2, 1, 0)
    x, at = rng.normal(size=(4, 2, 15)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32) * 9
    g = Graph()
    turned = g.rope_at(
        g.input("x", (2, 15)), g.input("at", (3,)), frequencies=frequencies, axes=axes, pairs=pairs, blocks=blocks
    )
    g.output("y", turned)
    y = Reference(g).run(inputs(x=x, at=at))["y"]
    each = 6 // blocks
    for j in range(6):
        first = j // each * 2 * each + (j % each if pairs == "halves" else 2 * (j % each))
        second = first + (each if pairs == "halves" else 1)
        factor = np.exp(1j * at[:, axes[j]].astype(np.float64) * frequencies[j])[:, None]
        want = (x[:, :, first] + 1j * x[:, :, second]) * factor
        np.testing.assert_allclose(y[:, :, first] + 1j * y[:, :, second], want, atol=1e-5)
    np.testing.assert_array_equal(y[:, :, 12:], x[:, :, 12:])


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_turning_by_positions_on_one_axis_is_rope(pairs):
    g = Graph()
    x = g.input("x", (3, 16))
    frequencies = tuple(100.0 ** -(j / 6) for j in range(6))
    how = {"frequencies": frequencies, "axes": (0,) * 6, "pairs": pairs}
    g.output("at", g.rope_at(x, g.input("at", (1,)), **how))
    g.output("rope", g.rope(x, base=100.0, dims=12, pairs=pairs))
    x = np.random.default_rng(4).normal(size=(50, 3, 16))
    found = Reference(g).run(inputs(x=x, at=np.arange(50)[:, None]))
    np.testing.assert_allclose(found["at"], found["rope"], atol=1e-6)


def test_columns_read_the_row_of_their_conversations_first_column():
    g, rng = Graph(), np.random.default_rng(5)
    x, y = g.input("x", (3, 2)), g.input("y", (3, 2))
    first = g.take(g.scale(y, by=2.0), RUNS)
    for name, value in {"sum": x + first, "product": g.mul(first, x), "late": g.take(x) * first, "own": first}.items():
        g.output(name, value)
    rows = {name: rng.normal(size=(6, 3, 2)).astype(np.float32) for name in "xy"}
    slot, position, scored = [2, 2, 2, 0, 1, 1], [4, 5, 6, 0, 3, 4], [5, 1]
    found = Reference(g, slots=3).run(Columns(np.zeros(6), position, slot, scored, rows))
    own = 2 * rows["y"][[0, 3, 4]]
    spread = own[[0, 0, 0, 1, 2, 2]]
    np.testing.assert_array_equal(found["own"], own)
    np.testing.assert_array_equal(found["sum"], rows["x"] + spread)
    np.testing.assert_array_equal(found["product"], rows["x"] * spread)
    np.testing.assert_array_equal(found["late"], (rows["x"] * spread)[scored])


@pytest.mark.parametrize(
    ("build", "refusal"),
    [
        (lambda g, x: g.conv2d(x, weight(4, 2 * 2 * 5)), "takes 20 numbers: no square of odd sides of 5 channels"),
        (lambda g, x: g.conv2d(x, weight(4, 9 * 5 + 1)), "no square of odd sides"),
        (lambda g, x: g.conv2d(x, weight(4, 3)), "no square of odd sides"),
        (lambda g, x: g.conv2d(x, weight(4, 45), weight(1, 4)), "the bias has not one entry per output"),
        (lambda g, x: g.conv2d(g.view(x, (3, 20)), weight(4, 45)), "x is no map"),
        (lambda g, x: g.upsample(g.view(x, (60,))), "x is no map"),
        (lambda g, x: turn(g, x, axes=(0, 1)), "2 axes are named for 3 frequencies"),
        (lambda g, x: turn(g, x, axes=(0, 1, 3)), "at has 3 axes, 0 to 3 are named"),
        (lambda g, x: turn(g, x, blocks=2), "3 pairs are no 2 blocks"),
        (lambda g, x: turn(g, x, pairs="quarters"), "pairs is neither"),
        (lambda g, x: turn(g, x, frequencies=(1.0,) * 11, axes=(0,) * 11), "cannot rotate 22 of 20 components"),
        (lambda g, x: g.add(g.take(x), x), "add: inputs of different row sets"),
        (lambda g, x: g.concat(x, g.take(x, RUNS)), "concat: inputs of different row sets"),
        (lambda g, x: g.take(g.take(x, RUNS)), "has the rows 'runs' already"),
        (lambda g, x: g.linear(x, None), r"^linear\(x=.*, weight=None, .*\): weight is no Weight$"),
        (lambda g, x: g.linear(weight(4, 45), weight(4, 45)), "x is no Value"),
        (lambda g, x: x + 1, "b is no Value and no Weight"),
        (lambda g, x: g.take(x, "all"), "the row sets to take are 'scored' and 'runs'"),
    ],
)
def test_what_cannot_be_meant_is_refused(build, refusal):
    g = Graph()
    with pytest.raises(GraphError, match=refusal):
        build(g, g.input("x", (3, 4, 5)))


def weight(rows: int, width: int):
    return random_weight(np.random.default_rng(0), "w", "F32", rows, width)


def turn(g: Graph, x, **options):
    how = {"frequencies": (1.0, 2.0, 3.0), "axes": (0, 1, 2)} | options
    return g.rope_at(g.view(x, (3, 20)), g.input("at", (3,)), **how)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda g, x: g.layer_norm(x, eps=None), "layer_norm: eps cannot be None"),
        (lambda g, x: g.scale(x, by=float("nan")), "scale: by cannot be nan"),
        (lambda g, x: g.scale(x, by="2"), "scale: by cannot be '2'"),
        (lambda g, x: g.scale(x, by=True), "scale: by cannot be True"),
        (lambda g, x: x.heads(0), "a row has 8 entries, which are not 0 heads"),
        (lambda g, x: g.output("y", None), "output 'y': None is no value of a graph"),
    ],
)
def test_what_no_op_can_be_given_is_refused_as_the_graph_is_built(ask, told):
    g = Graph()
    with pytest.raises(GraphError) as refusal:
        ask(g, g.input("x", (8,)))
    assert str(refusal.value) == told
    g.output("y", g.scale(g.clip(g.input("z", (8,)), low=0, high=float("inf")), by=np.float32(2)))


def test_help_tells_what_an_op_takes():
    assert list(inspect.signature(Graph.attend).parameters) == [
        "g",
        "q",
        "cache",
        "scale",
        "window",
        "softcap",
        "spans",
    ]
    assert list(inspect.signature(Graph().rope).parameters) == list(inspect.signature(Graph.rope).parameters)[1:]
    assert "add(g: 'Graph', a: 'Value', b: 'Value | Weight') -> 'Value'" in pydoc.plain(pydoc.render_doc(Graph))
