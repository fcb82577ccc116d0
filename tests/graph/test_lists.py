"""Lists of the largest entries are those of the whole rows, whatever stands in these, on every device."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Graph, Weight
from golem_core.cpu.device import CpuDevice

from .list_rows import columns, compiled, rows_of, want

MOST = 128


@pytest.fixture(scope="module")
def device(device):
    if not hasattr(compiled(device, rows_of(64)), "prepare_lists"):
        pytest.skip(f"{device.name}: its passes list nothing")
    return device


@pytest.mark.parametrize("without", [[], [0, 5, 31, 32, 250]], ids=["all", "some left out"])
@pytest.mark.parametrize("n", [253, 4096, 20001])
def test_lists_are_those_of_the_rows(device, n, without):
    rows = rows_of(n)
    run = compiled(device, rows)
    assert run.prepare_lists(MOST, without) == MOST
    for count in (1, 20, 64, 100, MOST):
        found = run.run(columns(list(range(len(rows)))), lists=[count] * len(rows))
        assert len(found["logits"]) == 0
        for i, row in enumerate(rows):
            ids, values = want(row, count, without)
            got = found["list_values"][i, :count]
            np.testing.assert_array_equal(got, values)
            there = values > -np.inf
            there |= np.isnan(values)
            np.testing.assert_array_equal(found["list_ids"][i, :count][there], ids[there])
    assert ("log_total" in found) == getattr(run, "log_totals", True)
    for i in (0, 1, 2, 5, 6, 7) if "log_total" in found else ():
        kept = np.delete(rows[i].astype(np.float64), without)
        assert found["log_total"][i] == pytest.approx(np.log(np.exp(kept - kept.max()).sum()) + kept.max(), abs=1e-5)


def test_other_rows_come_home_whole(device):
    rows = rows_of(1000)
    run = compiled(device, rows)
    run.prepare_lists(40, [])
    for lists in ([0, 5, 0, 0, 40, 1], [3, 0, 3, 0, 0, 0], [0] * 6, [2] * 6):
        tokens = [0, 1, 2, 5, 6, 7]
        found = run.run(columns(tokens), lists=lists)
        picked = np.array(lists) > 0
        np.testing.assert_array_equal(found["logits"], rows[tokens][~picked])
        for i, token in enumerate(np.array(tokens)[picked]):
            np.testing.assert_array_equal(found["list_values"][i, :2], want(rows[token], 2, [])[1])
    np.testing.assert_array_equal(run.run(columns(tokens))["logits"], rows[tokens])


def test_lists_that_were_not_prepared(device):
    run = compiled(device, rows_of(64))
    with pytest.raises(ValueError, match="no lists of 3 numbers were prepared for 1 scored columns"):
        run.run(columns([0]), lists=[3])
    assert run.prepare_lists(500, []) == 64
    run.prepare_lists(2, [])
    with pytest.raises(ValueError, match="no lists of 3 numbers"):
        run.run(columns([0]), lists=[3])


def test_lists_of_one_buffer_stay_while_the_other_is_written():
    rows = rows_of(1000)
    run = compiled(CpuDevice(threads=2), rows)
    run.prepare_lists(40, [])
    assert run.buffers == 2
    for tokens in ([0, 1, 5], [6, 7, 2], [7, 0, 6]):
        others = tokens[::-1]
        first = run.run(columns(tokens), 0, lists=[40, 0, 7])
        second = run.run(columns(others), 1, lists=[0, 9, 40])
        np.testing.assert_array_equal(first["logits"], rows[tokens[1:2]])
        np.testing.assert_array_equal(second["logits"], rows[others[:1]])
        for i, (found, at, token) in enumerate(
            [(first, 0, tokens[0]), (first, 1, tokens[2]), (second, 0, others[1]), (second, 1, others[2])]
        ):
            count = [40, 7, 9, 40][i]
            ids, values = want(rows[token], count, [])
            np.testing.assert_array_equal(found["list_values"][at, :count], values)
            np.testing.assert_array_equal(found["list_ids"][at, :count], ids)


def test_rows_that_are_not_only_the_scored_ones_are_not_listed(device):
    g = Graph()
    g.output("logits", g.scale(g.embed(Weight("t", "F32", (4, 32), np.zeros(4 * 32 * 4, np.uint8))), by=1.0))
    assert device.compile(g, slots=2, context=16, width=2).prepare_lists(8, []) == 0
    g = Graph()
    g.output("embedding", g.take(g.embed(Weight("t", "F32", (4, 32), np.zeros(4 * 32 * 4, np.uint8)))))
    assert device.compile(g, slots=2, context=16, width=2).prepare_lists(8, []) == 0


def test_a_number_of_lists_that_is_not_that_of_the_rows(device):
    run = compiled(device, rows_of(64))
    run.prepare_lists(3, [])
    with pytest.raises(ValueError, match="no lists of 3 numbers were prepared for 1 scored columns"):
        run.run(columns([0]), lists=[3, 3])


def test_rows_that_are_listed_side_by_side_do_not_mix(device):
    rows = np.random.default_rng(0).normal(size=(64, 63)).astype(np.float32)
    run = compiled(device, rows, slots=64)
    run.prepare_lists(63, [])
    order = np.argsort(-rows, axis=1, kind="stable")
    for _ in range(50):
        found = run.run(columns(list(range(64))), lists=[63] * 64)
        np.testing.assert_array_equal(found["list_ids"], order)
