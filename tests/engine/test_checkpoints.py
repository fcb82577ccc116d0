"""Recurrent states, which cannot be rewound: what is saved of them, and that answers never show it."""

from __future__ import annotations

import threading
from unittest import mock

import pytest
from fake_device import Ring, greedy, ids
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_model import REFUSED, Device, build_refusing, continuation, engine

from golem_core.engine import checkpoints
from golem_core.engine.checkpoints import Checkpoints
from golem_core.engine.slots import SlotPool
from golem_core.errors import GolemError


class States:
    """The states of one slot are the position at which they stand."""

    position = 0

    def save(self, slot):
        return self.position

    def restore(self, slot, saved):
        self.position = saved or 0


def saved_at(*lengths, most=3):
    states = States()
    kept = Checkpoints(states, 0, most)
    for states.position in lengths:
        kept.save(states.position)
    return kept, states


def test_going_on_where_the_states_stand_restores_nothing():
    kept, states = saved_at(300)
    states.position = 500
    assert kept.resume(held=500, limit=500) == 500
    assert states.position == 500 and kept.lengths == [300]


def test_a_parting_goes_back_to_the_longest_checkpoint_before_it_and_drops_the_later_ones():
    kept, states = saved_at(300, 1024, 2048)
    assert kept.resume(held=2500, limit=1500) == 1024
    assert states.position == 1024 and kept.lengths == [300, 1024]
    assert kept.resume(held=1024, limit=1023) == 300
    assert kept.resume(held=300, limit=299) == 0
    assert states.position == 0 and kept.lengths == []


def test_the_same_prompt_again_does_not_go_on_because_its_last_token_is_fed():
    kept, states = saved_at(300)
    states.position = 400
    assert kept.resume(held=400, limit=399) == 300


def test_a_checkpoint_whose_ring_is_overwritten_does_not_serve():
    kept, _ = saved_at(300, 400)
    assert kept.resume(held=500, limit=450, allowed=lambda length: length != 400) == 300
    pool = SlotPool(1, [Ring(24, 8)], recurrent=States(), checkpoints=3)
    slot = pool.slots[0]
    slot.resume([1] * 2000)
    slot.wrote([1] * 1024)
    slot.wrote([1] * 976)
    assert slot.resume([1] * 1100 + [2]) == 0


def test_the_least_recently_used_checkpoint_gives_way():
    kept, states = saved_at(300, 400, 500)
    assert kept.resume(held=600, limit=550) == 500
    states.position = 700
    kept.save(700)
    assert kept.lengths == [400, 500, 700]
    kept, states = saved_at(300, 400, 500)
    states.position = 300
    kept.save(300)  # counts as use
    states.position = 600
    kept.save(600)
    assert kept.lengths == [300, 500, 600]


def test_partings_and_round_positions_are_saved():
    kept, _ = saved_at()
    assert kept.stops(0, 600, 603) == [600]
    assert kept.stops(0, 600, 2048) == [600, 1024, 2048]
    assert kept.stops(1024, 1024, 2047) == []
    assert kept.stops(0, 255, 300) == [] and kept.stops(0, 256, 300) == [256]
    assert kept.stops(0, 300, 300) == [] and kept.stops(0, 1024, 1030) == [1024]
    assert saved_at(most=0)[0].stops(0, 600, 2048) == []


# ---------------------------------------------------------------- in the engine


def test_a_sheet_with_changing_questions_is_read_twice_and_then_no_more():
    sheet = [2 + n % 90 for n in range(600)]
    fed = []
    with engine(checkpoints=2) as running:
        for question in range(4):
            prompt = [*sheet, 5 + question, 6, 7]
            generation = running.submit(greedy(prompt, 4, ignore_eos=True))
            assert ids(generation) == continuation(prompt, 4)
            fed.append(generation.fed)
    assert fed == [603, 603, 3, 3]


def test_the_next_turn_feeds_only_what_is_new():
    prompt = list(range(2, 40))
    with engine(checkpoints=0) as running:
        answer = ids(running.submit(greedy(prompt, 12, ignore_eos=True)))
        generation = running.submit(greedy([*prompt, *answer, 20, 21], 3, ignore_eos=True))
        assert ids(generation) == continuation([*prompt, *answer, 20, 21], 3)
    assert (generation.cached_tokens, generation.fed) == (len(prompt) + 11, 3)


def test_a_long_prompt_is_saved_on_the_way_and_an_idle_slot_forgets_that_too():
    device = Device()
    with engine(device, cache_ttl=60.0) as running:
        prompt = [2 + n % 90 for n in range(2500)]
        ids(running.submit(greedy(prompt, 1)))
        assert device.compiled.kept == 2
        other = [*prompt[:2100], 3]
        generation = running.submit(greedy(other, 3, ignore_eos=True))
        assert ids(generation) == continuation(other, 3) and generation.cached_tokens == 2048
        running._pool._clock = lambda: 1e9
        generation = running.submit(greedy(other, 3, ignore_eos=True))
        assert ids(generation) == continuation(other, 3) and generation.cached_tokens == 0


def test_a_failed_pass_leaves_nothing_of_the_slot():
    device = Device()
    with engine(device) as running:
        prompt = [2 + n % 90 for n in range(1100)]
        ids(running.submit(greedy(prompt, 2)))
        device.compiled.fails = True
        with pytest.raises(GolemError, match="device lost"):
            ids(running.submit(greedy([*prompt, 4], 2)))
        device.compiled.fails = False
        generation = running.submit(greedy([*prompt, 4], 2, ignore_eos=True))
        assert ids(generation) == continuation([*prompt, 4], 2) and generation.cached_tokens == 0


def test_an_op_that_raises_in_the_middle_of_a_pass_fails_the_requests_in_that_pass_only():
    device, gate = Device(), threading.Event()
    with engine(device, build_refusing, slots=2, context=256, width=8) as running:
        run = device.compiled.run
        passes = []

        def watched(columns):
            gate.wait()
            passes.append((set(columns.slot.tolist()), REFUSED in columns.token))
            return run(columns)

        device.compiled.run = watched
        prompts = [[5 + n, 6, 7] for n in range(6)]
        prompts[2] = [3, 4] * 10 + [REFUSED]
        generations = [running.submit(greedy(prompt, 12, ignore_eos=True)) for prompt in prompts]
        gate.set()
        failed = []
        for number, generation in enumerate(generations):
            try:
                answer = ids(generation)
            except GolemError as error:
                assert "not to my taste" in str(error)
                failed.append(number)
            else:
                expected = continuation(prompts[number], 12)
                assert REFUSED not in expected[:-1] and answer == expected
        # Whoever shared the broken pass fails with it: one other conversation at most.
        assert 2 in failed and len(failed) == len(next(slots for slots, broke in passes if broke))
        assert sum(broke for _, broke in passes) == 1
        for prompt in prompts[3:]:
            assert ids(running.submit(greedy(prompt, 12, ignore_eos=True))) == continuation(prompt, 12)


def test_a_state_that_cannot_be_restored_fails_its_conversation_only():
    device = Device()
    with engine(device) as running:
        restore, device.compiled.restore = device.compiled.restore, lambda slot, saved: 1 // 0
        with pytest.raises(GolemError, match="could not be restored"):
            ids(running.submit(greedy([5, 6], 2)))
        device.compiled.restore = restore
        assert ids(running.submit(greedy([5, 6], 2, ignore_eos=True))) == continuation([5, 6], 2)


def test_the_model_of_these_tests_notices_a_state_that_was_not_put_back():
    device = Device()
    with engine(device) as running:
        ids(running.submit(greedy([5, 6, 7], 2)))
        device.compiled.restore = lambda slot, saved: None
        assert ids(running.submit(greedy([8, 9], 4, ignore_eos=True))) != continuation([8, 9], 4)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_answers_with_checkpoints_are_those_without_any_cache(data):
    """Several at once, on slots that hold what others left, some cancelled: every path through the bookkeeping."""
    slots = data.draw(st.integers(1, 3), "slots")
    sizes = {"slots": slots, "context": 64 * slots, "checkpoints": data.draw(st.integers(0, 3), "checkpoints")}
    earlier: list[list[int]] = [[]]
    interval, least = data.draw(st.integers(1, 9), "interval"), data.draw(st.integers(1, 9), "least")
    with (
        mock.patch.multiple(checkpoints, INTERVAL=interval, WORTH_SAVING=least),
        engine(width=data.draw(st.integers(1, 12), "width"), **sizes) as running,
    ):
        for _ in range(data.draw(st.integers(1, 4), "rounds")):
            prompts = []
            for _ in range(data.draw(st.integers(1, 4), "company")):
                last = data.draw(st.sampled_from(earlier), "beginning")
                kept = last[: data.draw(st.integers(0, len(last)), "kept")]
                prompts.append((kept + data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=30)))[:50])
            generations = [running.submit(greedy(prompt, 5, ignore_eos=True)) for prompt in prompts]
            if data.draw(st.booleans(), "cancelled"):
                generations.pop().cancel()
            for prompt, generation in zip(prompts, generations, strict=False):
                answer = ids(generation)
                assert answer == continuation(prompt, 5)
                assert generation.cached_tokens + generation.fed == len(prompt)
                earlier.append(prompt + answer)
