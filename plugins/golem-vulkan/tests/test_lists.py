"""Whole rows and lists side by side, and answers from lists."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from golem_core import SamplingParams, open_model, plugins
from golem_core.engine import Engine, GenerationRequest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from graph.list_rows import columns, compiled, rows_of


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
