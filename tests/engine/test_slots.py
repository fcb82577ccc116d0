"""Which slot a conversation gets."""

from __future__ import annotations

from fake_device import Ring

from golem_core.engine.slots import SlotPool


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def pool_holding(*contents, ttl=0.0):
    """A pool whose slots hold the given tokens, used in that order a second apart."""
    clock = Clock()
    pool = SlotPool(len(contents), ttl=ttl, clock=clock)
    for slot, tokens in zip(pool.slots, contents, strict=True):
        clock.now += 1
        if tokens:
            slot.wrote(tokens)
            slot.last_used = clock.now
    return pool, clock


def test_the_slot_that_shares_most_is_taken():
    pool, _ = pool_holding([1, 2], [1, 2, 3], [1])
    assert pool.acquire([1, 2, 3, 4]).index == 1
    assert pool.acquire([1, 2, 3, 4]).index == 0
    assert pool.acquire([1, 2, 3, 4]).index == 2
    assert pool.acquire([1, 2, 3, 4]) is None


def test_a_tenth_is_enough_and_less_is_not():
    prompt = list(range(10))
    pool, _ = pool_holding([0], [])
    assert pool.acquire(prompt).index == 0
    pool, _ = pool_holding([0], [])
    assert pool.acquire([*prompt, 10]).index == 1


def test_without_a_share_an_empty_slot_is_taken_and_else_the_least_recently_used():
    pool, clock = pool_holding([1], [], [2])
    assert pool.acquire([9]).index == 1
    assert pool.acquire([9]).index == 0
    clock.now += 1
    pool.release(pool.slots[0])
    assert pool.acquire([9]).index == 2


def test_releasing_counts_as_use():
    pool, clock = pool_holding([1], [2])
    first = pool.acquire([9])
    assert first.index == 0
    clock.now += 10
    pool.release(first)
    assert pool.acquire([8]).index == 1


def test_an_idle_slot_forgets_after_its_time():
    pool, clock = pool_holding([1, 2, 3], ttl=5.0)
    clock.now = 5.9
    slot = pool.acquire([1, 2, 3, 4])
    assert slot.resume([1, 2, 3, 4]) == 3
    pool.release(slot)
    clock.now = 10.9
    slot = pool.acquire([1, 2, 3, 4])
    assert slot.resume([1, 2, 3, 4]) == 0


def test_without_a_time_to_live_nothing_is_forgotten():
    pool, clock = pool_holding([1, 2, 3])
    clock.now = 1e9
    assert pool.acquire([1, 2, 3, 4]).resume([1, 2, 3, 4]) == 3


def test_forgetting_empties_the_rings_too():
    pool = SlotPool(1, [Ring(6, 4), Ring(64, None)])
    slot = pool.slots[0]
    slot.wrote(list(range(10)))
    assert slot.resume([*range(10), 1]) == 10
    slot.forget()
    slot.tokens = list(range(10))  # as if only the rings had been forgotten
    assert slot.resume([*range(10), 1]) == 0
