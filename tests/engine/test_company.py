"""Several conversations at once: batching, queueing, failures, and that nobody notices the others."""

from __future__ import annotations

import threading
import time

import pytest
from fake_device import END, Device, continuation, engine, greedy, ids
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.engine import GenerationRequest
from golem_core.engine import engine as engines
from golem_core.errors import GolemError
from golem_core.sampling import STAGES, SamplerStage, SamplingParams


def long_answer(seed: int) -> list[int]:
    """A prompt whose answer of 40 tokens has no end token."""
    for first in range(2, 90):
        prompt = [first, 2 + seed, 3]
        if END not in continuation(prompt, 40, 8):
            return prompt
    raise AssertionError("no such prompt")


def idle(running, seconds=5.0):
    """Wait until no slot is taken."""
    deadline = time.monotonic() + seconds
    while running._active or running._queue:
        assert time.monotonic() < deadline, "a slot is still taken"
        time.sleep(0.001)


def test_conversations_share_passes():
    device = Device()
    with engine(device, slots=3, context=192) as running:
        device.passes[0].seconds = 0.004
        prompts = [long_answer(seed) for seed in range(3)]
        generations = [running.submit(greedy(prompt, 40)) for prompt in prompts]
        for prompt, generation in zip(prompts, generations, strict=True):
            assert ids(generation) == continuation(prompt, 40, 8)
    assert len({generation.slot for generation in generations}) == 3
    # 3 × 40 drawn tokens in not many more passes than one of them needs.
    assert len(device.passes[0].ran) < 80
    assert max(len(columns) for columns in device.passes[0].ran) == 3


def test_reading_a_long_prompt_does_not_halt_another_answer():
    device = Device(width=4)
    with engine(device, slots=2, context=400) as running:
        device.passes[0].seconds = 0.002
        talking = running.submit(greedy(long_answer(0), 40))
        next(talking)
        reading = running.submit(greedy([2 + n % 80 for n in range(120)], 1))
        ids(reading)
        passes = [columns for columns in device.passes[0].ran if reading.slot in columns]
        together = [columns for columns in passes if talking.slot in columns]
        assert len(together) > len(passes) / 4
        talking.cancel()


def test_a_prompt_that_has_begun_is_read_to_its_end_before_the_next_one():
    device, gate = Device(width=4), threading.Event()
    with engine(device, slots=2, context=128) as running:
        device.passes[0].before = lambda columns: gate.wait()
        one, two = (running.submit(greedy([first] * 15, 1)) for first in (2, 3))
        gate.set()
        ids(one), ids(two)
        read = [columns for columns in device.passes[0].ran]
    assert read == [{0: 4}, {0: 4}, {0: 4}, {0: 3, 1: 1}, {1: 4}, {1: 4}, {1: 4}, {1: 2}]


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_answers_do_not_depend_on_the_company(data):
    window = data.draw(st.integers(1, 6), "window")
    slots = data.draw(st.integers(1, 4), "slots")
    device = Device(window=window, width=data.draw(st.integers(1, 9), "width"), spare=data.draw(st.integers(0, 3)))
    beginning = data.draw(st.lists(st.integers(2, 9), max_size=12), "shared beginning")
    prompts = data.draw(
        st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=14), min_size=2, max_size=8), "prompts"
    )
    with engine(device, slots=slots, context=48 * slots) as running:
        generations = [running.submit(greedy(beginning + prompt, 6)) for prompt in prompts]
        for prompt, generation in zip(prompts, generations, strict=True):
            assert ids(generation) == continuation(beginning + prompt, 6, window)


def test_sampled_answers_do_not_depend_on_the_company_either():
    def request(number):
        params = SamplingParams(temperature=3.0, top_k=20, seed=number, repeat_penalty=1.2)
        return GenerationRequest([2 + number, 5], 20, params)

    with engine() as running:
        alone = [ids(running.submit(request(number))) for number in range(6)]
    with engine(slots=3, context=192) as running:
        generations = [running.submit(request(number)) for number in range(6)]
        assert [ids(generation) for generation in generations] == alone


def test_the_queue_is_first_come_first_served():
    device = Device()
    with engine(device) as running:
        order = []
        gate = threading.Event()
        device.passes[0].before = lambda columns: gate.wait()
        generations = [running.submit(greedy([2 + number], 3)) for number in range(6)]

        def read(number):
            ids(generations[number])
            order.append((generations[number].queued, number))

        readers = [threading.Thread(target=read, args=(number,)) for number in range(6)]
        for reader in readers:
            reader.start()
        gate.set()
        for reader in readers:
            reader.join()
    assert [number for _, number in sorted(order)] == list(range(6))


def test_a_waiter_that_hangs_up_never_takes_a_slot_and_disturbs_nobody():
    device, gate = Device(), threading.Event()
    with engine(device) as running:
        device.passes[0].before = lambda columns: gate.wait()
        prompt = long_answer(1)
        first = running.submit(greedy(prompt, 20))
        waiter = running.submit(greedy([9, 9], 20))
        last = running.submit(greedy([8, 8], 4))
        waiter.cancel()
        assert (waiter.finish_reason, waiter.slot) == ("cancelled", None)
        gate.set()
        assert ids(waiter) == []
        assert ids(first) == continuation(prompt, 20, 8)
        assert ids(last) == continuation([8, 8], 4, 8)
    assert waiter.slot is None and waiter.fed == 0


def test_cancelling_while_reading_stops_before_the_next_pass_and_keeps_what_was_read():
    device = Device(width=4)
    with engine(device) as running:
        entered, gate = threading.Event(), threading.Semaphore(2)

        def before(columns):
            entered.set() if gate._value == 0 else None
            gate.acquire()

        device.passes[0].before = before
        prompt = [2 + n for n in range(40)]
        generation = running.submit(greedy(prompt, 5))
        assert entered.wait(5)  # in the third pass
        generation.cancel()
        gate.release(1000)
        idle(running)
        assert len(device.passes[0].ran) == 3
        again = running.submit(greedy(prompt, 5))
        assert ids(again) == continuation(prompt, 5, 8)
        assert again.cached_tokens == 12
    assert generation.finish_reason == "cancelled"


def test_cancelling_while_drawing_gives_the_slot_back():
    device = Device()
    with engine(device) as running:
        device.passes[0].seconds = 0.001
        prompt = long_answer(2)
        with running.submit(greedy(prompt, 50)) as generation:
            assert next(generation).id == continuation(prompt, 1, 8)[0]
        idle(running)
        assert generation.finish_reason == "cancelled" and ids(generation) == []
        assert 1 <= generation.drawn < 50
        assert ids(running.submit(greedy(prompt, 30))) == continuation(prompt, 30, 8)


def test_a_failing_pass_fails_its_conversations_only_and_its_slots_forget():
    device = Device()
    with engine(device, slots=2, context=128) as running:
        compiled = device.passes[0]

        def fail_for_slot_of(generation):
            def before(columns):
                if generation.slot in columns:
                    compiled.near[generation.slot] = None  # what is left in the caches is anybody's guess
                    compiled.full[generation.slot] = None
                    raise RuntimeError("device lost")

            return before

        compiled.seconds = 0.002
        prompt = long_answer(3)
        broken = running.submit(greedy(prompt, 40))
        first = next(broken)
        compiled.before = fail_for_slot_of(broken)
        with pytest.raises(GolemError, match="device lost"):
            list(broken)
        assert broken.finish_reason is None
        compiled.before = lambda columns: None
        again = running.submit(greedy([*prompt, first.id, 4], 10))
        assert ids(again) == continuation([*prompt, first.id, 4], 10, 8)
        assert again.cached_tokens == 0


class Faulty:
    def __init__(self, after):
        self.left = after

    def apply(self, candidates):
        self.left -= 1
        if self.left < 0:
            raise ZeroDivisionError("sampler broke")


def test_a_failing_sampler_fails_its_conversation_only():
    stage = SamplerStage("faulty", 35, lambda params, context: Faulty(params.extra["after"]) if params.extra else None)
    with engine(slots=2, context=128, stages=[*STAGES, stage]) as running:
        prompt = long_answer(4)
        good = running.submit(greedy(prompt, 40))
        bad = running.submit(GenerationRequest(prompt, 40, SamplingParams(temperature=0, extra={"after": 3})))
        drawn = []
        with pytest.raises(ZeroDivisionError):
            for token in bad:
                drawn.append(token.id)
        assert drawn == continuation(prompt, 3, 8)
        assert ids(good) == continuation(prompt, 40, 8)
        idle(running)
        assert ids(running.submit(greedy(prompt, 10))) == continuation(prompt, 10, 8)


def test_a_reader_that_never_reads_holds_up_nobody():
    with engine(slots=2, context=128) as running:
        unread = running.submit(greedy(long_answer(5), 40))
        prompt = long_answer(6)
        assert ids(running.submit(greedy(prompt, 40))) == continuation(prompt, 40, 8)
        idle(running)
        assert unread.finish_reason == "length"
        assert len(ids(unread)) == 40


class Slow:
    def __init__(self, gate):
        self.gate = gate

    def apply(self, candidates):
        assert self.gate.wait(10)


def test_a_slow_sampler_holds_up_nobody():
    gate = threading.Event()
    stage = SamplerStage("slow", 35, lambda params, context: Slow(gate) if params.extra else None)
    with engine(slots=2, context=128, stages=[*STAGES, stage]) as running:
        prompt, other = long_answer(7), long_answer(8)
        # Two at the start, so that neither is alone.
        quick = running.submit(greedy(prompt, 40))
        slow = running.submit(GenerationRequest(other, 5, SamplingParams(temperature=0, extra={"slow": 1})))
        assert ids(quick) == continuation(prompt, 40, 8)
        assert not slow.ended
        gate.set()
        assert ids(slow) == continuation(other, 5, 8)


def test_whoever_comes_makes_the_engine_wait_for_the_next(monkeypatch):
    """The time since the last one came starts again with each; that since the first does not."""
    waits = []

    def patience(ready, in_flight, last_pass, since_first, since_last):
        waits.append((ready, since_first, since_last))
        return 0.0 if ready >= in_flight else 0.0005

    class Dawdling:
        def apply(self, candidates):
            time.sleep(0.004)

    monkeypatch.setattr(engines, "patience", patience)
    stages = [*STAGES, SamplerStage("dawdling", 35, lambda params, context: Dawdling())]
    with engine(slots=4, context=256, stages=stages) as running:
        for generation in [running.submit(greedy(long_answer(i), 20)) for i in range(4)]:
            assert len(ids(generation)) == 20
    assert all(0 <= last <= first for _, first, last in waits)
    assert max(first - last for ready, first, last in waits if ready > 1) > 0.001


def test_closing_ends_everything_as_cancelled_and_refuses_more():
    running = engine()
    generations = [running.submit(greedy(long_answer(9), 50)) for _ in range(3)]
    running.close()
    for generation in generations:
        ids(generation)
        assert generation.finish_reason in ("cancelled", "length")
    assert generations[-1].finish_reason == "cancelled"
    with pytest.raises(GolemError, match="closed"):
        running.submit(greedy([2], 1))


def test_each_pass_prints_a_line_when_asked_to(monkeypatch, capfd):
    monkeypatch.setenv("GOLEM_DEBUG_BATCHES", "1")
    with engine() as running:
        ids(running.submit(greedy([5, 6, 7], 2)))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(" in ")[0].split(" ms")[0].rsplit(", ", 1)[0] for line in lines] == [
        "pass: 3 tokens, 1 conversations",
        "pass: 1 tokens, 1 conversations",
    ]


def test_a_crowd_of_threads_with_random_cancellations_leaves_every_slot_usable():
    import random

    device = Device(window=5, width=6, spare=1)
    failures: list[str] = []
    with engine(device, slots=3, context=3 * 48) as running:

        def client(number):
            dice = random.Random(number)
            for _ in range(12):
                prompt = [2 + dice.randrange(3) for _ in range(dice.randrange(1, 30))]
                count = dice.randrange(1, 10)
                generation = running.submit(greedy(prompt, count))
                leave_after = dice.choice([None, None, 0, 1, 3])
                drawn = []
                if leave_after != 0:
                    for token in generation:
                        drawn.append(token.id)
                        if len(drawn) == leave_after:
                            break
                if leave_after is not None:
                    generation.cancel()
                expected = continuation(prompt, count, 5)
                if drawn != (expected if leave_after is None else expected[:leave_after]):
                    failures.append(f"{prompt} {leave_after}: {drawn}, expected {expected}")

        clients = [threading.Thread(target=client, args=(number,)) for number in range(10)]
        for each in clients:
            each.start()
        for each in clients:
            each.join(60)
        assert not any(each.is_alive() for each in clients)
        assert failures == []
        idle(running)
        assert ids(running.submit(greedy([5, 6], 8))) == continuation([5, 6], 8, 5)
