"""The sampler chain against slow statements of the same rules."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import slow_rules as reference
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from golem_core.errors import BadRequest, GolemError
from golem_core.sampling import (
    STAGES,
    Candidates,
    LogProbs,
    SamplerChain,
    SamplerContext,
    SamplerStage,
    SamplingParams,
)
from golem_core.sampling import rows as long_rows
from golem_core.sampling.penalties import TokenCounts
from golem_core.sampling.rows import draw, largest, pick

# Logits on a coarse grid: many ties, and no borderline that depends on the last bit.
logit = st.integers(-40, 40).map(lambda n: n / 4)
rows = st.lists(logit, min_size=2, max_size=60)


def chain_for(params, vocabulary, prompt=(), stages=STAGES):
    return SamplerChain.build(stages, params, SamplerContext(vocabulary, list(prompt)))


def survivors(params, logits, prompt=()):
    """What the stages leave of a row: {id: logit}."""
    candidates = Candidates(np.array(logits, np.float32))
    context = SamplerContext(len(logits), list(prompt))
    for stage in STAGES:
        if sampler := stage.from_request(params, context):
            sampler.apply(candidates)
    ids = range(len(logits)) if candidates.ids is None else candidates.ids.tolist()
    return dict(zip(ids, candidates.logits.tolist(), strict=True))


@given(rows, st.integers(-1, 70))
def test_top_k_keeps_the_largest_and_prefers_the_lower_id(logits, k):
    assert sorted(survivors(SamplingParams(top_k=k), logits)) == sorted(reference.top_k(logits, range(len(logits)), k))


@given(rows, st.sampled_from([0.0, -1.0, 0.1234, 0.5077, 0.7531, 0.9512, 0.99913, 1.0]), st.integers(0, 30))
def test_top_p_keeps_the_shortest_prefix_that_reaches_the_share(logits, p, k):
    kept = reference.top_p(logits, reference.top_k(logits, range(len(logits)), k), p)
    assert sorted(survivors(SamplingParams(top_p=p, top_k=k), logits)) == sorted(kept)


@given(rows, st.sampled_from([0.0, -0.5, 0.011, 0.0531, 0.31, 1.0]), st.integers(0, 30))
def test_min_p_keeps_what_is_near_the_largest(logits, share, k):
    kept = reference.min_p(logits, reference.top_k(logits, range(len(logits)), k), share)
    assert sorted(survivors(SamplingParams(min_p=share, top_k=k), logits)) == sorted(kept)


@given(
    rows,
    st.lists(st.integers(0, 1), max_size=40),
    st.sampled_from([0.5, 1.0, 1.3]),
    st.sampled_from([-0.5, 0.0, 0.25]),
    st.sampled_from([-1.0, 0.0, 0.5]),
    st.integers(-1, 12),
)
def test_penalties_follow_the_window_of_prompt_and_answer(logits, prompt, repeat, frequency, presence, last_n):
    params = SamplingParams(
        repeat_penalty=repeat, frequency_penalty=frequency, presence_penalty=presence, repeat_last_n=last_n
    )
    stage = next(stage for stage in STAGES if stage.name == "penalties")
    sampler = stage.from_request(params, SamplerContext(len(logits), prompt))
    history = list(prompt)
    for drawn in [0, 1, 1, len(logits) - 1, 0]:
        window = history if last_n < 0 else history[len(history) - min(last_n, len(history)) :]
        expected = reference.penalised(logits, window, repeat, frequency, presence)
        candidates = Candidates(np.array(logits, np.float32))
        if sampler:
            sampler.apply(candidates)
            sampler.accept(drawn)
        history.append(drawn)
        np.testing.assert_allclose(candidates.logits, expected, rtol=1e-6, atol=1e-6)


@given(st.integers(0, 9), st.lists(st.integers(0, 6), max_size=30), st.lists(st.integers(0, 6), max_size=60))
def test_counts_of_a_sliding_window(length, start, pushed):
    counts = TokenCounts(length, start)
    history = list(start)
    for token in pushed:
        counts.push(token)
        history.append(token)
        window = history[len(history) - min(length, len(history)) :]
        assert dict(zip(counts.tokens.tolist(), counts.counts.tolist(), strict=True)) == Counter(window)


def test_penalties_find_their_tokens_among_candidates_already_cut():
    stage = next(stage for stage in STAGES if stage.name == "penalties")
    sampler = stage.from_request(SamplingParams(presence_penalty=2.0), SamplerContext(10, [7, 3, 7, 1]))
    candidates = Candidates(np.array([5, 4, 3], np.float32), ids=np.array([3, 8, 7], np.int32))
    sampler.apply(candidates)
    assert candidates.logits.tolist() == [3, 4, 1]


@given(rows, st.dictionaries(st.integers(0, 1), st.sampled_from([-100.0, 3.5, 100.0, -math.inf]), max_size=2))
@example([0.0, 0.0, 0.0], {0: -math.inf, 1: -math.inf})
def test_logit_bias_is_added_and_minus_infinity_forbids(logits, bias):
    assume(len(logits) > 2 or list(bias.values()) != [-math.inf] * 2)  # something must be left
    expected = [value + bias.get(i, 0.0) for i, value in enumerate(logits)]
    left = survivors(SamplingParams(logit_bias=bias), logits)
    assert [left[i] for i in range(len(logits))] == pytest.approx(expected)


@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 40, 64, 1000, 20000]),
    st.sampled_from([9000, 32000, 131075]),
    st.sampled_from(["smooth", "coarse", "masked", "equal"]),
)
@settings(max_examples=40, deadline=None)
def test_largest_of_a_long_row_equals_a_stable_sort(seed, count, length, kind):
    values = np.random.default_rng(seed).standard_normal(length).astype(np.float32)
    if kind == "coarse":
        values = np.round(values, 1)
    elif kind == "masked":
        values[np.random.default_rng(seed + 1).random(length) < 0.999] = -np.inf
    elif kind == "equal":
        values[:] = 1
    expected = [i for i in np.argsort(-values, kind="stable")[:count] if values[i] > -np.inf]
    assert largest(values, count).tolist() == expected


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_top_p_without_top_k_on_a_long_row(spread):
    values = (np.random.default_rng(3).standard_normal(50_000) * spread).astype(np.float32)
    order = np.argsort(-values, kind="stable")
    mass = np.cumsum(np.exp(values[order].astype(np.float64)))
    count = int(np.argmax(mass >= 0.9 * mass[-1])) + 1
    left = survivors(SamplingParams(top_p=0.9), values)
    assert abs(len(left) - count) <= 1  # the sums of a flat row may differ in the last place
    assert set(order[: count - 1]) <= set(left)


@given(rows, st.sampled_from([0.25, 0.7, 1.0, 1.9]), st.integers(0, 12), st.sampled_from([0.6071, 0.9013, 1.0]))
def test_temperature_shapes_what_the_truncations_left(logits, temperature, k, p):
    kept = reference.top_p(logits, reference.top_k(logits, range(len(logits)), k), p)
    expected = reference.probabilities(logits, kept, temperature)
    left = survivors(SamplingParams(temperature=temperature, top_k=k, top_p=p), logits)
    weights = np.exp(np.array(list(left.values()), np.float64))
    assert dict(zip(left, weights / weights.sum(), strict=True)) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_draws_follow_the_distribution():
    logits = np.array([0.0, 2.0, 1.0, -1.0, 2.0, -math.inf], np.float32)
    chain = chain_for(SamplingParams(temperature=0.8, top_k=4, seed=11), 6)
    expected = reference.probabilities(logits, [1, 4, 2, 0], 0.8)
    drawn = Counter(chain.draw(logits.copy()) for _ in range(20_000))
    assert set(drawn) == set(expected)
    for token, share in expected.items():
        assert abs(drawn[token] / 20_000 - share) < 4 * math.sqrt(share * (1 - share) / 20_000)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=1500), st.integers(0, 64))
def test_pick_is_the_first_index_whose_running_sum_exceeds_the_share(weights, sixtyfourths):
    weights[len(weights) // 2] = 1.0
    target = min(sixtyfourths / 64, 63.5 / 64) * sum(weights)  # all of these are exact in binary
    expected = next(i for i in range(len(weights)) if sum(weights[: i + 1]) > target)
    assert pick(np.array(weights, np.float32), target / sum(weights)) == expected


def test_pick_never_lands_behind_the_last_weight():
    assert pick(np.array([0.0, 1.0, 0.0] * 400 + [0.0] * 600, np.float32), 1.0) == 1198


@pytest.mark.parametrize("near", [0.5, 3.0, 16.0, 100.0])
def test_of_a_long_row_every_entry_has_its_share(near, monkeypatch):
    """Whatever counts as near the peak: as many of evenly spaced shares fall to an entry as its probability says."""
    monkeypatch.setattr(long_rows, "NEAR", near)
    dice, shares = np.random.default_rng(3), 40_000
    row = np.full(5000, -np.inf, np.float32)
    row[::2] = dice.uniform(-18, -2, 2500)
    row[[7, 1000, 4999]] = [0.0, -0.4, -1.0]
    peak = row.max()
    drawn = Counter(draw(row.copy(), peak, (i + 0.5) / shares) for i in range(shares))
    likely = np.exp(row.astype(np.float64))
    likely /= likely.sum()
    counts = np.array([drawn[i] for i in range(len(row))])
    assert np.abs(counts - shares * likely).max() < 4  # an entry has three stretches of shares at most
    assert counts[row == -np.inf].sum() == 0


def test_the_ends_of_the_share_draw_something_possible():
    row = np.full(6000, -np.inf, np.float32)
    row[[5, 300]] = [1.0, -30.0]
    for share, drawn in ((0.0, 5), (0.5, 5), (1 - 1e-12, 5), (np.nextafter(1.0, 0.0), 300)):
        assert draw(row.copy(), np.float32(1.0), share) == drawn


def test_the_same_seed_draws_the_same_tokens_and_another_seed_others():
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)

    def answer(seed):
        chain = chain_for(SamplingParams(seed=seed), 500)
        return [chain.draw(logits.copy()) for _ in range(20)]

    assert answer(5) == answer(5)
    assert answer(-5) == answer(-5)
    assert len({tuple(answer(seed)) for seed in (5, 6, -5, None, None)}) == 5


def test_every_draw_advances_the_generator_once_even_with_one_candidate():
    logits = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    peaked = logits.copy()
    peaked[7] = 1000.0
    one, other = (chain_for(SamplingParams(seed=1, min_p=0.01), 500) for _ in range(2))
    one.draw(logits.copy())
    assert other.draw(peaked.copy()) == 7
    assert [one.draw(logits.copy()) for _ in range(9)] == [other.draw(logits.copy()) for _ in range(9)]


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_greedy_takes_the_largest_logit_and_the_lower_id_on_ties(temperature):
    params = SamplingParams(temperature=temperature, top_k=1, top_p=0.1, min_p=0.5)
    assert chain_for(params, 5).draw(np.array([1, 3, 0, 3, 2], np.float32)) == 1


def test_greedy_still_obeys_bias_and_penalties():
    logits = np.array([1, 3, 2.5, 0], np.float32)
    assert chain_for(SamplingParams(temperature=0, logit_bias={3: 100}), 4).draw(logits.copy()) == 3
    chain = chain_for(SamplingParams(temperature=0, repeat_penalty=1.5, repeat_last_n=1), 4, prompt=[1])
    assert [chain.draw(logits.copy()) for _ in range(3)] == [2, 1, 2]


def test_bias_of_100_is_certain_and_of_minus_100_unreachable():
    logits = np.linspace(-8, 8, 50).astype(np.float32)
    up = chain_for(SamplingParams(logit_bias={0: 100}, seed=1), 50)
    down = chain_for(SamplingParams(logit_bias={49: -100}, seed=1), 50)
    assert {up.draw(logits.copy()) for _ in range(300)} == {0}
    assert 49 not in {down.draw(logits.copy()) for _ in range(300)}


@pytest.mark.parametrize("temperature", [1e-320, 1e-30, 1e-3])
def test_a_very_low_temperature_is_greedy_in_effect(temperature):
    chain = chain_for(SamplingParams(temperature=temperature, seed=2), 5)
    assert chain.draw(np.array([1, 3, 0, 2.5, 2], np.float32)) == 1


class Ban:
    def __init__(self, tokens):
        self.tokens, self.seen = np.array(tokens), []

    def apply(self, candidates):
        _, present = candidates.find(self.tokens)
        candidates.logits[present] = -np.inf

    def accept(self, token):
        self.seen.append(token)


def test_a_stage_of_another_package_takes_its_place_by_position():
    ban = Ban([3, 4])
    stage = SamplerStage("ban", 30, lambda params, context: ban if params.extra.get("ban") else None)
    params = SamplingParams(top_k=1, extra={"ban": True})
    chain = chain_for(params, 5, stages=[*STAGES, stage])
    assert chain.draw(np.array([0, 1, 2, 3, 4], np.float32)) == 2
    assert ban.seen == [2]
    # After top_k it finds nothing left, and says so instead of drawing what is forbidden.
    late = SamplerStage("ban", 45, stage.from_request)
    with pytest.raises(BadRequest, match="'ban'"):
        chain_for(params, 5, stages=[late, *STAGES]).draw(np.array([0, 1, 2, 3, 4], np.float32))


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(top_k=3, top_p=0.5, min_p=0.1)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_an_error(params, bad):
    logits = np.zeros(20_000, np.float32)
    logits[12_345] = bad
    with pytest.raises(GolemError, match=str(bad)):
        chain_for(params, 20_000).draw(logits)


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(top_k=3, top_p=0.5, min_p=0.1)])
def test_nothing_left_to_draw_is_an_error(params):
    with pytest.raises(GolemError, match="minus infinity"):
        chain_for(params, 20_000).draw(np.full(20_000, -np.inf, np.float32))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", math.nan),
        ("min_p", 1.5),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", -1.0),
        ("repeat_last_n", -2),
        ("frequency_penalty", math.nan),
        ("presence_penalty", -math.inf),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: math.inf}),
        ("temperature", 1e300),
        ("repeat_penalty", 1e300),
        ("repeat_penalty", 1e-320),
        ("frequency_penalty", -1e300),
        ("logit_bias", {3: 1e300}),
        ("logit_bias", {3: -1e300}),
        ("logit_bias", dict.fromkeys(range(10), -math.inf)),
        ("logit_bias", {10: 1.0}),
        ("logit_bias", {-1: 1.0}),
    ],
)
def test_values_out_of_range_are_refused_by_name(field, value):
    with pytest.raises(BadRequest, match=field) as caught:
        chain_for(SamplingParams(**{field: value}), 10)
    assert caught.value.param == field


@pytest.mark.parametrize("name", ["repeat_penalty", "frequency_penalty", "presence_penalty"])
def test_the_largest_and_least_penalties_leave_tokens_to_draw(name):
    logits = np.linspace(-300, 300, 10, dtype=np.float32)
    for value in (1e6, 1e-6, *(() if name == "repeat_penalty" else (-1e6,))):
        chain = SamplerChain.build(STAGES, SamplingParams(**{name: value}), SamplerContext(10, list(range(10)) * 60))
        assert 0 <= chain.draw(logits.copy()) < 10


@given(rows)
def test_log_probabilities_are_those_of_the_whole_row(logits):
    row = np.array(logits, np.float32)
    table = LogProbs(row)
    expected = reference.probabilities(logits, range(len(logits)), 1.0)
    assert {i: math.exp(table.of(i)) for i in expected} == pytest.approx(expected, rel=1e-5)
    best = reference.by_logit(logits, range(len(logits)))[:5]
    assert [token for token, _ in table.top(5)] == best
    assert [value for _, value in table.top(5)] == [table.of(token) for token in best]
    assert table.top(0) == []
