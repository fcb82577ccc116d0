"""One conversation at a time: what is answered, how it ends, and what the slot saves."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from fake_device import END, GREEDY, VOCABULARY, Device, Tokenizer, continuation, engine, greedy, ids, logits_after
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.engine import GenerationRequest
from golem_core.errors import BadRequest, GolemError
from golem_core.sampling import STAGES, SamplerStage, SamplingParams

PROMPT = [5, 9, 14]


def text_of(tokens):
    return b"".join(Tokenizer().piece(token) for token in tokens).decode()


def prompt_whose_answer(test, count=12):
    """A prompt whose greedy answer of `count` tokens passes `test` and is made of whole characters."""
    for first in range(2, VOCABULARY):
        for second in range(2, VOCABULARY):
            answer = continuation([first, second], count, 8)
            if test(answer) and not set(Tokenizer.euro) & set(answer):
                return [first, second]
    raise AssertionError("no such prompt")


def test_the_budget_ends_an_answer_with_length():
    prompt = prompt_whose_answer(lambda answer: END not in answer)
    with engine() as running:
        generation = running.submit(greedy(prompt, 5))
        assert ids(generation) == continuation(prompt, 5, 8)
    assert generation.finish_reason == "length"
    assert (generation.prompt_tokens, generation.cached_tokens, generation.fed, generation.drawn) == (2, 0, 2, 5)
    assert generation.slot == 0
    assert generation.prompt_seconds > 0 and generation.draw_seconds > 0 and generation.queued >= 0


def test_an_end_token_ends_an_answer_with_stop_and_adds_no_text():
    prompt = prompt_whose_answer(lambda answer: answer[-1] == END and 3 < len(answer) < 12)
    expected = continuation(prompt, 12, 8)
    with engine() as running:
        generation = running.submit(greedy(prompt, 12))
        tokens = list(generation)
    assert [token.id for token in tokens] == expected
    assert tokens[-1].text == "" and "".join(token.text for token in tokens) == text_of(expected[:-1])
    assert generation.finish_reason == "stop"
    assert generation.drawn == len(expected)


def test_an_end_token_drawn_with_the_last_of_the_budget_is_a_stop():
    prompt = prompt_whose_answer(lambda answer: answer[-1] == END and len(answer) == 6)
    with engine() as running:
        generation = running.submit(greedy(prompt, 6))
        assert ids(generation)[-1] == END
    assert generation.finish_reason == "stop"


def test_ignore_eos_goes_on():
    prompt = prompt_whose_answer(lambda answer: answer[-1] == END and len(answer) < 9)
    with engine() as running:
        generation = running.submit(greedy(prompt, 12, ignore_eos=True))
        assert ids(generation) == continuation(prompt, 12, 8, past_end=True)
    assert generation.finish_reason == "length"


def test_a_full_context_ends_an_answer_with_length():
    prompt = prompt_whose_answer(lambda answer: END not in answer)
    with engine(context=8) as running:
        generation = running.submit(greedy(prompt, 100))
        answer = ids(generation)
        assert answer == continuation(prompt, len(answer), 8)
        # Seven positions are fed; the next one would be the eighth and leave no room.
        assert len(prompt) + len(answer) == 8
        assert generation.finish_reason == "length"
        longest = running.submit(greedy([3] * 7, 100))
        assert len(ids(longest)) == 1
        assert longest.finish_reason == "length"


def test_suppressed_tokens_are_never_drawn():
    first = continuation(PROMPT, 1, 8)[0]
    with engine(suppress=(first,)) as running:
        assert ids(running.submit(greedy(PROMPT, 1))) != [first]
        token = next(running.submit(greedy(PROMPT, 1, top_logprobs=VOCABULARY)))
    assert first not in dict(token.top_logprobs)
    assert len(token.top_logprobs) == VOCABULARY - 1


def test_a_stop_string_across_tokens_is_cut_and_what_was_held_back_otherwise_comes():
    prompt = prompt_whose_answer(lambda answer: not {END, 1} & set(answer))
    text = text_of(continuation(prompt, 12, 8))
    with engine() as running:
        generation = running.submit(greedy(prompt, 12, stop=(text[4:6],)))
        tokens = list(generation)
        assert "".join(token.text for token in tokens) == text[:4]
        assert generation.finish_reason == "stop"
        assert generation.drawn == 6
        # A beginning of a stop string at the end of the answer is part of it.
        near_miss = running.submit(greedy(prompt, 12, stop=(text[-1] + "never",)))
        tokens = list(near_miss)
        assert "".join(token.text for token in tokens) == text
        assert near_miss.finish_reason == "length"


def test_characters_arrive_whole():
    euro = Tokenizer.euro
    stages = [SamplerStage("script", 1, lambda params, context: Script([50, *euro, 51, euro[0]]))]
    with engine(stages=stages) as running:
        tokens = list(running.submit(greedy(PROMPT, 6)))
    letters = [chr(0x100 + 50), chr(0x100 + 51)]
    assert [token.text for token in tokens] == [letters[0], "", "", "€", letters[1], ""]


class Script:
    """A sampler that leaves only the next token of a list."""

    def __init__(self, tokens):
        self.tokens = list(tokens)

    def apply(self, candidates):
        candidates.logits[:] = -math.inf
        candidates.logits[self.tokens[0]] = 0

    def accept(self, token):
        assert token == self.tokens.pop(0)


def test_log_probabilities_are_of_the_untouched_logits():
    params = SamplingParams(temperature=0.3, top_k=1, seed=1, logit_bias={7: 100.0})
    with engine() as running:
        token = next(running.submit(GenerationRequest(PROMPT, 1, params, top_logprobs=3)))
        plain = next(running.submit(greedy(PROMPT, 1)))
        chosen = next(running.submit(greedy(PROMPT, 1, logprobs=True)))
    first = continuation(PROMPT, 1, 8)[0]
    assert token.id == 7
    assert token.top_logprobs[0][0] == first and len(token.top_logprobs) == 3
    assert token.logprob < token.top_logprobs[0][1] < 0
    assert chosen.logprob == pytest.approx(token.top_logprobs[0][1]) and chosen.top_logprobs == ()
    assert (plain.logprob, plain.top_logprobs) == (None, ())


def test_the_same_seed_gives_the_same_answer():
    params = SamplingParams(temperature=5.0, seed=3)
    with engine() as running:
        one, two = (ids(running.submit(GenerationRequest(PROMPT, 20, params))) for _ in range(2))
    assert one == two


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_chain_of_conversations_on_one_slot_answers_as_fresh_reads_do(data):
    """Prefixes are kept, cut and extended in every way; a ring resumed wrongly would change the tokens."""
    window = data.draw(st.integers(1, 8), "window")
    device = Device(window=window, width=data.draw(st.integers(1, 9), "width"), spare=data.draw(st.integers(0, 5)))
    length = st.integers(1, 30)
    held: list[int] = []
    with engine(device) as running:
        for _ in range(data.draw(st.integers(1, 5), "conversations")):
            kept = held[: data.draw(st.integers(0, len(held)), "kept")]
            prompt = (kept + data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=30)))[: data.draw(length)]
            count = data.draw(st.integers(1, 6), "count")
            generation = running.submit(greedy(prompt, count))
            answer = ids(generation)
            assert answer == continuation(prompt, count, window)
            assert generation.cached_tokens + generation.fed == generation.prompt_tokens == len(prompt)
            held = prompt + answer[:-1]


def test_the_next_turn_feeds_only_what_is_new():
    prompt = prompt_whose_answer(lambda answer: END not in answer)
    with engine(Device(window=4, width=4)) as running:
        answer = ids(running.submit(greedy(prompt, 12)))
        following = [*prompt, *answer, 20, 21, 22]
        generation = running.submit(greedy(following, 3))
        assert ids(generation) == continuation(following, 3, 4)
    # The last drawn token was not fed yet.
    assert generation.cached_tokens == len(prompt) + len(answer) - 1
    assert generation.fed == 4


def test_only_the_last_column_of_a_prompt_is_scored():
    device = Device(width=8)
    with engine(device) as running:
        ids(running.submit(greedy(list(range(2, 22)), 3)))
    assert [list(columns.values()) for columns in device.passes[0].ran] == [[8], [8], [4], [1], [1]]
    assert device.passes[0].scored == 3


def test_a_width_below_the_device_s_cuts_the_chunks():
    device = Device(width=8)
    with engine(device, width=5) as running:
        assert running.width == 5
        ids(running.submit(greedy(list(range(2, 14)), 1)))
    assert [sum(columns.values()) for columns in device.passes[0].ran] == [5, 5, 2]


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (greedy([]), "empty"),
        (greedy([1, VOCABULARY]), str(VOCABULARY)),
        (greedy([-1]), "-1"),
        (GenerationRequest("one two", 3), "the prompt is text"),  # type: ignore[arg-type]
        (greedy([1], 0), "max_tokens must be at least 1, not 0"),
        (greedy([1], "x"), "max_tokens='x': expected a whole number"),
        (greedy([1], 2.5), "max_tokens=2.5: expected a whole number"),
        (GenerationRequest([1], 1, SamplingParams(logit_bias={VOCABULARY: 1.0})), "logit_bias"),
    ],
)
def test_requests_that_cannot_be_answered_are_refused_before_queueing(request_, word):
    with engine() as running, pytest.raises(BadRequest, match=word):
        running.submit(request_)


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers():
    with engine(context=64, slots=2) as running:
        assert running.slot_context == 32
        with pytest.raises(BadRequest, match=r"40 tokens.*-context") as caught:
            running.submit(greedy([2] * 40))
        with pytest.raises(BadRequest):
            running.submit(greedy([2] * 32))
        assert len(ids(running.submit(greedy([2] * 31)))) == 1
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.details == {"n_prompt_tokens": 40, "n_ctx": 32}


def test_a_context_too_small_to_divide_is_refused():
    with pytest.raises(GolemError, match=r"context=7: expected at least 8, 2 .*slots=4"):
        engine(context=7, slots=4)


def test_answers_can_be_read_from_asyncio():
    async def both(running):
        async def one(prompt):
            return [token.id async for token in running.submit(greedy(prompt, 10))]

        return await asyncio.gather(one([5, 6]), one([7, 8, 9]))

    with engine(slots=2) as running:
        assert asyncio.run(both(running)) == [continuation([5, 6], 10, 8), continuation([7, 8, 9], 10, 8)]


def test_a_reader_whose_event_loop_is_gone_counts_as_cancelled():
    device, gate = Device(), threading.Event()
    with engine(device) as running:
        device.passes[0].before = lambda columns: gate.wait()
        generation = running.submit(greedy(PROMPT, 50))

        async def leave_while_waiting():
            await asyncio.wait({asyncio.ensure_future(anext(generation))}, timeout=0.05)

        asyncio.run(leave_while_waiting())
        gate.set()
        assert ids(running.submit(greedy(PROMPT, 4))) == continuation(PROMPT, 4, 8)
        assert generation.finish_reason == "cancelled"


def test_the_fake_device_notices_an_overwritten_ring():
    """The tests above mean something: a resume that ignores the ring gives other tokens."""
    device = Device(window=4, width=4)
    with engine(device) as running:
        ids(running.submit(greedy(list(range(2, 32)), 1)))
        for slot in running._pool.slots:
            slot._rings = []
        prompt = [*range(2, 12), 50]
        assert ids(running.submit(greedy(prompt, 4))) != continuation(prompt, 4, 4)


def test_logits_of_the_fake_have_one_favourite():
    assert all(logits_after(value).argmax() == value % VOCABULARY for value in (0, 5, -3, 12345678901))


def test_greedy_is_what_these_tests_use():
    assert GREEDY.greedy and STAGES
