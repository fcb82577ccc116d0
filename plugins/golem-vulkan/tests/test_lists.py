"""Lists of the largest entries are those of the whole rows, whatever stands in these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core import Columns, Graph, SamplingParams, Weight, open_model, plugins
from golem_core.engine import Engine, GenerationRequest

MOST = 128


def rows_of(n: int) -> np.ndarray:
    """float32 (9, n): random, tied and odd rows."""
    dice = np.random.default_rng(n)
    rows = dice.normal(size=(9, n)).astype(np.float32) * 4
    rows[1] = np.round(rows[1])
    rows[2] = 1.5
    rows[3] = -np.inf
    rows[4, ::7] = np.nan
    rows[5] = np.sort(rows[5])
    rows[6] = np.where(dice.random(n) < 0.5, np.float32(-0.0), np.float32(0.0))
    rows[7] = np.where(np.arange(n) % 3 == 0, rows[7], -np.inf)
    rows[8, n // 2] = np.inf
    return rows


def compiled(device, rows: np.ndarray, slots: int = 9):
    g = Graph()
    x = g.embed(Weight("table", "F32", rows.shape, rows.reshape(-1).view(np.uint8)))
    g.output("logits", g.scale(g.take(x), by=1.0))
    return device.compile(g, slots=slots, context=16, width=slots)


def columns(tokens: list[int]) -> Columns:
    n = len(tokens)
    return Columns(tokens, np.zeros(n), np.arange(n), np.arange(n))


def want(row: np.ndarray, count: int, without: list[int]) -> tuple[np.ndarray, np.ndarray]:
    kept = np.setdiff1d(np.arange(len(row)), without)
    order = kept[np.lexsort((-row[kept], ~np.isnan(row[kept])))][:count]
    return order, row[order]


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
    for i in (0, 1, 2, 5, 6, 7):
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


def test_every_choice_of_rows(device, monkeypatch):
    """Command buffers for copying are made anew when there are too many of them."""
    monkeypatch.setattr("golem_vulkan.passes.MOST_DOWNLOADS", 5)
    rows = rows_of(64)
    run = compiled(device, rows)
    run.prepare_lists(10, [])
    for choice in range(16):
        lists = [choice >> i & 1 for i in range(4)]
        got = run.run(columns([0, 1, 5, 7]), lists=lists)["logits"]
        np.testing.assert_array_equal(got, rows[[0, 1, 5, 7]][np.array(lists) == 0])
    assert len(run.downloads) <= 5


def test_lists_that_were_not_prepared(device):
    run = compiled(device, rows_of(64))
    with pytest.raises(ValueError, match="no lists of 3 numbers were prepared for 1 scored columns"):
        run.run(columns([0]), lists=[3])
    assert run.prepare_lists(500, []) == 64
    run.prepare_lists(2, [])
    with pytest.raises(ValueError, match="no lists of 3 numbers"):
        run.run(columns([0]), lists=[3])


FIXTURE = Path(__file__).parents[2] / "golem-gemma" / "tests" / "fixtures"


def answers(device, model, asked, lists: bool) -> list[list[tuple]]:
    slots = len(asked)
    with Engine(model, device, context=64 * slots, slots=slots) as engine:
        assert engine._runner._listed > 0
        if not lists:
            engine._runner._listed = 0
        running = [engine.submit(each) for each in asked]
        return [[(t.id, t.text, t.top_logprobs and [i for i, _ in t.top_logprobs]) for t in each] for each in running]


def test_answers_are_those_of_whole_rows(device):
    """Greedy, top-k and other requests, alone and side by side."""
    params = [
        SamplingParams(temperature=0),
        SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02, seed=1),
        SamplingParams(temperature=2.5, top_k=64, seed=2),
        SamplingParams(temperature=1.0, top_p=0.9, seed=3),
        SamplingParams(temperature=0, repeat_penalty=1.3),
    ]
    path = sorted(FIXTURE.glob("gemma3*.gguf"))[0]
    with open_model(path) as file:
        model = plugins.architecture(file.architecture).open(file)
        asked = [GenerationRequest([2, 5, 9, 30 + i], 12, p, top_logprobs=3) for i, p in enumerate(params)]
        for group in ([asked[0]], [asked[1]], asked):
            assert answers(device, model, group, True) == answers(device, model, group, False)
