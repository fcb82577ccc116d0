"""A device that finds the largest logits by itself changes no answer: rows come home whole only where they must."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import VOCABULARY, Device, Pass, continuation, engine, graph

from golem_core.engine import GenerationRequest, drafting
from golem_core.engine.roles import Drafting
from golem_core.engine.runner import Runner
from golem_core.engine.scheduler import Chunk
from golem_core.errors import GolemError
from golem_core.sampling import STAGES, SamplerStage, SamplingParams, Shortlist

LISTED = 12
PROMPT = [5, 17, 40]
SUPPRESSED = (3, 40, 77)


class Listing(Pass):
    """Gives lists as a device would, and notes what was asked for."""

    def __init__(self, *sizes: int):
        super().__init__(*sizes)
        self.asked: list[list[int]] = []

    def prepare_lists(self, most: int, without) -> int:
        self.without = list(without)
        return min(most, LISTED)

    def save(self, slot: int) -> None: ...

    def restore(self, slot: int, saved) -> None: ...

    def run(self, columns, *, lists=None):
        outputs = super().run(columns)
        if lists is None:
            return outputs
        self.asked.append(list(lists))
        logits = outputs["logits"]
        short = np.array(lists) > 0
        rows = logits[short].copy()
        rows[:, self.without] = -np.inf
        order = np.stack([np.lexsort((-row, ~np.isnan(row))) for row in rows])[:, :LISTED].astype(np.int32)
        total = np.log(np.exp(rows.astype(np.float64)).sum(1)).astype(np.float32)
        return outputs | {
            "logits": logits[~short],
            "list_ids": order,
            "list_values": np.take_along_axis(rows, order, 1),
            "log_total": total,
        }


@dataclass
class ListingDevice(Device):
    def compile(self, graph, *, slots, context, width=None, scored=1, tentative=0):
        if graph == "guess":
            return self.oracle
        compiled = Listing(slots, context, min(self.width, width or self.width), self.window, self.spare)
        self.passes.append(compiled)
        return compiled


@pytest.fixture
def no_totals(monkeypatch):
    """Lists come without what their rows sum up to."""
    run = Listing.run

    def without(self, columns, *, lists=None):
        outputs = run(self, columns, lists=lists)
        outputs.pop("log_total", None)
        return outputs

    monkeypatch.setattr(Listing, "run", without)


def params(**changes) -> SamplingParams:
    return SamplingParams(**({"temperature": 0.9, "seed": 11} | changes))


SHORT = {
    "greedy": params(temperature=0),
    "top-k": params(top_k=8),
    "top-k, then everything": params(top_k=9, top_p=0.8, min_p=0.01),
    "hot": params(top_k=10, temperature=5),
    "as many as there are": params(top_k=LISTED),
}
WHOLE = {
    "no cut": params(),
    "top-p": params(top_p=0.7),
    "penalties": params(temperature=0, repeat_penalty=1.5),
    "bias": params(top_k=5, logit_bias={9: 4.0}),
    "too many": params(top_k=LISTED + 1),
}


def answers(device: Device, asked: list[GenerationRequest], suppress: tuple[int, ...]) -> list[list]:
    """What conversations hear that go on at once."""
    submitted = threading.Event()
    with engine(device, slots=len(asked), context=80 * len(asked), suppress=suppress) as running:
        device.passes[0].before = lambda counts: submitted.wait()
        generations = [running.submit(each) for each in asked]
        submitted.set()
        return [list(generation) for generation in generations]


def request(sampling: SamplingParams, **changes) -> GenerationRequest:
    return GenerationRequest(PROMPT, 30, sampling, ignore_eos=True, **changes)


def assert_same(got: list, want: list) -> None:
    assert [(t.id, t.text) for t in got] == [(t.id, t.text) for t in want]
    for ours, theirs in zip(got, want, strict=True):
        assert (ours.logprob is None) == (theirs.logprob is None)
        if theirs.logprob is not None:
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-5)
        assert [token for token, _ in ours.top_logprobs] == [token for token, _ in theirs.top_logprobs]
        assert dict(ours.top_logprobs) == pytest.approx(dict(theirs.top_logprobs), abs=1e-5)


@pytest.mark.parametrize("suppress", [(), SUPPRESSED])
@pytest.mark.parametrize("sampling", [*SHORT.values(), *WHOLE.values()], ids=[*SHORT, *WHOLE])
def test_one_conversation(sampling, suppress):
    device = ListingDevice()
    for changes in ({}, {"logprobs": True}, {"top_logprobs": 5}):
        asked = [request(sampling, **changes)]
        (got,), (want,) = answers(device, asked, suppress), answers(Device(), asked, suppress)
        assert_same(got, want)
    lists = [count for each in device.passes for asked in each.asked for count in asked]
    assert bool(lists) == (sampling in SHORT.values())


def test_only_the_rows_that_must_come_home_whole():
    device = ListingDevice()
    asked = [request(each, top_logprobs=2) for each in (*SHORT.values(), *WHOLE.values())]
    for got, want in zip(answers(device, asked, SUPPRESSED), answers(Device(), asked, SUPPRESSED), strict=True):
        assert_same(got, want)
    assert any(0 < sum(map(bool, lists)) < len(lists) for lists in device.passes[0].asked)


def test_more_likely_tokens_than_are_listed():
    device = ListingDevice()
    asked = [request(params(top_k=3), top_logprobs=LISTED + 1)]
    assert_same(answers(device, asked, ())[0], answers(Device(), asked, ())[0])
    assert not device.passes[0].asked


@pytest.mark.parametrize("changes", [{"logprobs": True}, {"top_logprobs": 2}])
@pytest.mark.usefixtures("no_totals")
def test_a_device_that_sums_nothing_up(monkeypatch, changes):
    """Rows come home whole where log-probabilities are wanted, and only there."""
    monkeypatch.setattr(Listing, "log_totals", False, raising=False)
    device = ListingDevice()
    asked = [request(params(top_k=3, seed=1)), request(params(temperature=0), **changes)]
    for got, want in zip(answers(device, asked, ()), answers(Device(), asked, ()), strict=True):
        assert_same(got, want)
    both = [lists for lists in device.passes[0].asked if len(lists) == 2]
    assert both and all(sorted(lists) == [0, 3] for lists in both)


def test_every_column_of_guesses_is_listed(monkeypatch):
    monkeypatch.setattr(drafting, "cost", lambda compiled, columns: 1.0)
    device = ListingDevice()
    answer = continuation(PROMPT, 30, device.window, past_end=True)
    device.oracle.tokens = PROMPT + answer
    told = Drafting(graph, lambda: "guess")  # type: ignore[arg-type, return-value]
    with engine(device, drafting=told, draft_n=2) as running:
        generation = running.submit(request(params(temperature=0)))
        assert [token.id for token in generation] == answer
    assert 0 < generation.confirmed < generation.guessed
    asked = device.passes[0].asked
    assert {tuple(lists) for lists in asked} == {(1,), (1, 1), (1, 1, 1)}


def test_lists_outlive_the_memory_that_a_device_uses_again():
    ids, values = np.arange(LISTED, dtype=np.int32)[None], np.linspace(3, 1, LISTED, dtype=np.float32)[None]

    class Reusing(Listing):
        def run(self, columns, *, lists=None):
            rows = np.zeros((0, VOCABULARY), np.float32)
            return {"logits": rows, "list_ids": ids, "list_values": values, "log_total": np.ones(1, np.float32)}

    conversation = SimpleNamespace(
        slot=SimpleNamespace(index=0), position=0, whole=[], waiting=3, most=2, with_logprobs=False,
        rows=lambda count: [], upcoming=lambda count: PROMPT[:count],
    )  # fmt: skip
    runner = Runner(Reusing(1, 64, 8, 8, 0), 1, VOCABULARY)
    (row,), _ = runner.run([Chunk(conversation, 3)])  # type: ignore[arg-type]
    assert isinstance(row, Shortlist)
    ids[:], values[:] = 7, 0
    assert row.ids[:3].tolist() == [0, 1, 2] and row.values[0] == 3


@pytest.mark.parametrize("changes", [{}, {"logprobs": True}])
@pytest.mark.usefixtures("no_totals")
def test_a_device_that_forgets_the_total(changes):
    with engine(ListingDevice()) as running, pytest.raises(GolemError, match="failed on the device: 'log_total'"):
        list(running.submit(request(params(temperature=0), **changes)))


def test_a_sampler_that_looks_at_everything_gets_everything():
    class Look:
        def apply(self, candidates):
            assert len(candidates) == VOCABULARY

    stage = SamplerStage("look", 5, lambda params, context: Look())
    with engine(ListingDevice(), stages=(*STAGES, stage)) as running:
        assert len(list(running.submit(request(params(top_k=4))))) == 30


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_row_that_is_no_row(monkeypatch, poison):
    """The same error whether the row came home or a list of it."""
    run = Pass.run

    def spoiled(self, columns):
        outputs = run(self, columns)
        outputs["logits"][:, 50] = poison
        return outputs

    monkeypatch.setattr(Pass, "run", spoiled)
    words = []
    for device in (Device(), ListingDevice()):
        with engine(device) as running, pytest.raises(GolemError) as error:
            list(running.submit(request(params(temperature=0))))
        words.append(str(error.value))
    assert words[0] == words[1]


def test_a_device_that_forgets_a_row():
    class Forgetful(Listing):
        def run(self, columns, *, lists=None):
            outputs = super().run(columns, lists=lists)
            return outputs if lists is None else outputs | {"list_ids": outputs["list_ids"][:0]}

    device = ListingDevice()
    compiled = device.compile("", slots=1, context=64)
    compiled.__class__ = Forgetful
    device = replace(device)
    device.compile = lambda *args, **sizes: compiled  # type: ignore[method-assign]
    with engine(device) as running, pytest.raises(GolemError, match="the pass failed on the device"):
        list(running.submit(request(params(temperature=0))))
