"""Guessing ahead never shows in an answer: only in how many passes it took, and in what is counted."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import fake_device
import pytest
import recurrent_model
from fake_device import VOCABULARY, ids
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_model import HEAD, Device, build_guess, continuation, engine

from golem_core.engine import GenerationRequest, drafting
from golem_core.engine.roles import Drafting
from golem_core.errors import GolemError, Unsupported
from golem_core.sampling import SamplingParams

PROMPT = [5, 17, 40, 8, 60]


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """Two columns cost what one does."""
    monkeypatch.setattr(drafting, "cost", lambda compiled, columns: 1.0)


def guessing(wrong=(), head=HEAD) -> Drafting:
    return Drafting(partial(recurrent_model.build, hidden=True), partial(build_guess, wrong, head))


def request(prompt=PROMPT, count: int = 40, temperature: float = 0.0, **changes) -> GenerationRequest:
    sampling = SamplingParams(temperature=temperature, seed=7, top_k=20, **changes.pop("sampling", {}))
    return GenerationRequest(list(prompt), count, sampling, **({"ignore_eos": True} | changes))


def drawn(running, asked) -> tuple[list, int, int]:
    """(tokens with their texts and log-probabilities, guessed, confirmed)."""
    generation = running.submit(asked)
    return list(generation), generation.guessed, generation.confirmed


@pytest.mark.parametrize("most", [1, 2, 5])
def test_guesses_that_hold_save_passes(most):
    device = Device()
    with engine(device, drafting=guessing(), draft_n=most) as running:
        generation = running.submit(request())
        assert ids(generation) == continuation(PROMPT, 40)
    passes, alone = device.passes[0].ran, -(-40 // (most + 1))
    assert generation.confirmed == generation.guessed > 0
    assert len(passes) <= alone + 2
    assert sum(passes) == len(PROMPT) + 39


def test_guesses_that_never_hold_change_nothing():
    device = Device()
    with engine(device, drafting=guessing(head=-HEAD), draft_n=2) as running:
        generation = running.submit(request())
        assert ids(generation) == continuation(PROMPT, 40)
    assert (generation.drawn, generation.confirmed) == (40, 0)
    assert generation.guessed == 2 * 37 + 1  # the last tokens have fewer or none after them


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("wrong", [(), range(0, VOCABULARY, 2)], ids=["none wrong", "half wrong"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"logprobs": True, "top_logprobs": 3},
        {"sampling": {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1}},
        {"sampling": {"logit_bias": {3: 2.0, 4: -1.0}}},
        {"ignore_eos": False, "count": 120},
        {"stop": (chr(0x100 + 33),), "count": 120},
    ],
    ids=["plain", "log-probabilities", "penalties", "bias", "end", "stop"],
)
def test_an_answer_is_the_same_with_guesses_and_without(temperature, wrong, changes):
    asked = request(temperature=temperature, **changes)
    with engine() as plain:
        expected, *_ = drawn(plain, asked)
    with engine(drafting=guessing(wrong), draft_n=3) as running:
        got, guessed, _ = drawn(running, asked)
        assert got == expected
        assert guessed > 0
        again, *_ = drawn(running, asked)  # after an end in the middle of a pass the slot is what it should be
        assert again == expected


@settings(max_examples=30, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.integers(1, 12)), min_size=2, max_size=6),
    wrong=st.integers(2, 5),
    most=st.integers(1, 4),
)
def test_conversations_after_one_another_share_a_slot(parts, wrong, most):
    """Each goes on from what another has left, parts from it, or begins anew."""
    sheet = [2 + 7 * i % 90 for i in range(300)]
    with engine(drafting=guessing(range(0, VOCABULARY, wrong)), draft_n=most) as running:
        held: list[int] = []
        for kind, length, count in parts:
            prompt = {0: [*held, 9], 1: [*sheet, length], 2: [*sheet[:280], length, 3], 3: [length] * length}[kind]
            answer = ids(running.submit(request(prompt, count)))
            assert answer == continuation(prompt, count)
            held = prompt + answer


def test_in_company_nothing_is_guessed_and_alone_again_it_is():
    device = Device()
    prompts = [[3, 4, 5], [6, 7], [8, 9, 10, 11]]
    with engine(device, drafting=guessing(), draft_n=2, slots=3) as running:
        generations = [running.submit(request(prompt, 12 + 20 * i)) for i, prompt in enumerate(prompts)]
        for i, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
            assert ids(generation) == continuation(prompt, 12 + 20 * i)
        assert generations[0].guessed == 0
        assert generations[2].confirmed == generations[2].guessed > 0


def test_an_answer_is_not_longer_than_its_budget_nor_than_the_context():
    device = Device()
    with engine(device, drafting=guessing(), draft_n=4, context=16) as running:
        for count in range(1, 9):
            assert ids(running.submit(request(count=count))) == continuation(PROMPT, count)
        assert ids(running.submit(request(count=50))) == continuation(PROMPT, 16 - len(PROMPT))


def test_a_long_prompt_is_read_by_what_guesses_too():
    """In pieces, so that no more rows wait than fit a pass."""
    device, prompt = Device(), [2 + 11 * i % 90 for i in range(150)]
    with engine(device, drafting=guessing(), draft_n=1, width=32) as running:
        generation = running.submit(request(prompt, 10))
        assert ids(generation) == continuation(prompt, 10)
    _, guess = device.passes
    assert max(guess.ran) <= 32
    assert sum(guess.ran) >= len(prompt)
    assert generation.confirmed == generation.guessed > 0


def test_cancelling_between_two_tokens_of_a_pass_ends_the_answer_there():
    with engine(drafting=guessing(), draft_n=4) as running:
        with running.submit(request(count=1000)) as generation:
            assert next(generation).id == continuation(PROMPT, 1)[0]
        assert ids(running.submit(request())) == continuation(PROMPT, 40)


def test_a_failing_pass_fails_the_answer_and_no_other():
    device = Device()
    with engine(device, drafting=guessing(), draft_n=2) as running:
        assert ids(running.submit(request())) == continuation(PROMPT, 40)
        for failing in device.passes:
            failing.fails = True
            with pytest.raises(GolemError, match="device lost"):
                ids(running.submit(request([*PROMPT, 4])))
            failing.fails = False
            assert ids(running.submit(request())) == continuation(PROMPT, 40)


@settings(max_examples=30, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.integers(0, 16), st.lists(st.integers(2, 60), min_size=1, max_size=6), st.integers(12, 30)),
        min_size=2,
        max_size=5,
    ),
    most=st.integers(1, 4),
)
def test_what_was_taken_back_is_not_seen_through_a_sliding_window(parts, most):
    """Answers stop in the middle of a pass; prompts part from them a few positions back, in rings that wrap around."""
    device = fake_device.Device(width=6)
    held: list[int] = []
    told = Drafting(fake_device.graph, lambda: "guess")  # type: ignore[arg-type, return-value]
    with fake_device.engine(device, drafting=told, draft_n=most, context=300) as running:
        for back, tokens, count in parts:
            prompt = held[: max(0, len(held) - back)] + tokens
            whole = fake_device.continuation(prompt, 40, device.window, past_end=True)
            device.oracle.tokens = prompt + whole
            last = whole[count]
            plain = 1 < last < 90  # a character of its own
            expected = whole[: whole.index(last) + 1] if plain else whole
            generation = running.submit(request(prompt, 40, stop=(chr(0x100 + last),) if plain else ()))
            assert ids(generation) == expected
            assert generation.guessed >= generation.confirmed
            held = prompt + expected


# ---------------------------------------------------------------- whether to guess


def test_by_default_a_model_that_can_guesses_one_token():
    with engine(drafting=guessing()) as running:
        assert running.draft_n == 1
        assert running.submit(request()).finish_reason is None
    with engine() as running:
        assert running.draft_n == 0


def test_zero_turns_it_off():
    device = Device()
    with engine(device, drafting=guessing(), draft_n=0) as running:
        assert running.draft_n == 0
        generation = running.submit(request())
        assert ids(generation) == continuation(PROMPT, 40)
    assert generation.guessed == 0 and len(device.passes) == 1


def test_where_it_does_not_pay_it_is_refused_or_left_alone(monkeypatch):
    monkeypatch.setattr(drafting, "cost", lambda compiled, columns: 0.9 * columns)
    with pytest.raises(Unsupported, match=r"-draft-n 2: .* 3 tokens takes 2\.7 times"):
        engine(drafting=guessing(), draft_n=2)
    with engine(drafting=guessing()) as running:
        assert running.draft_n == 0
        assert ids(running.submit(request())) == continuation(PROMPT, 40)


def test_without_anything_to_guess_with_it_is_refused():
    with pytest.raises(Unsupported, match="-draft-n 1: fake has nothing to guess"):
        engine(draft_n=1)


def test_more_guesses_than_a_pass_holds_are_refused():
    with pytest.raises(Unsupported, match="-draft-n 40: 41 tokens are more than the 32"):
        engine(drafting=guessing(), draft_n=40, width=32)


def test_a_graph_that_guesses_must_be_one_that_can_go_back():
    odd = Drafting(partial(recurrent_model.build, hidden=True), recurrent_model.build)
    with pytest.raises(GolemError, match="must not have recurrent states"):
        engine(drafting=odd, draft_n=1)


def test_the_cost_of_a_column_is_measured(monkeypatch):
    """The best of several rounds counts, and one of a fifth of a second in all is enough."""
    monkeypatch.undo()
    ran, clock = [], [0.0]
    monkeypatch.setattr(drafting, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    class Slow:
        saved_bytes = 0

        def run(self, columns):
            ran.append(len(columns))
            clock[0] += 0.01 * (1 + len(columns)) * (2 if len(ran) < 3 else 1)

    assert drafting.cost(Slow(), 3) == pytest.approx(2)  # type: ignore[arg-type]
    assert ran == [1, 3] * 3
