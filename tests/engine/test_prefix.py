"""Where a slot may resume."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from golem_core.engine.prefix import RingOwners, common_prefix, resume_position

tokens = st.lists(st.integers(0, 2), max_size=40)


@given(tokens, tokens, tokens)
def test_common_prefix_counts_equal_leading_tokens(start, one, other):
    one, other = start + one, start + other
    expected = 0
    while expected < min(len(one), len(other)) and one[expected] == other[expected]:
        expected += 1
    assert common_prefix(one, other) == expected


def test_the_last_token_is_always_fed():
    assert resume_position([1, 2, 3], [1, 2, 3], []) == 2
    assert resume_position([1, 2, 3, 4], [1, 2, 3], []) == 2
    assert resume_position([], [5], []) == 0


def written(length, window, count):
    ring = RingOwners(length, window)
    for position in range(count):
        ring.record(position, 1)
    return ring


def test_appending_rewinds_nothing_even_when_the_ring_has_wrapped():
    held = list(range(100))
    assert resume_position(held, [*held, 7, 8], [written(12, 8, 100)]) == 100


def test_going_back_within_the_spare_of_a_ring_feeds_only_the_divergence():
    held = list(range(100))
    # A ring of 12 still holds 88..99; position 95 looks at 88..95.
    assert resume_position(held, [*held[:95], 999], [written(12, 8, 100)]) == 95


def test_going_back_further_falls_to_where_everything_seen_is_there():
    held = list(range(100))
    # Position 94 would look at 87, which is overwritten, and so on down: only a fresh read is left.
    assert resume_position(held, [*held[:94], 999], [written(12, 8, 100)]) == 0
    # A ring that never wrapped loses nothing.
    assert resume_position(held, [*held[:94], 999], [written(100, 8, 100)]) == 94


def test_the_strictest_ring_decides():
    held = list(range(20))
    rings = [written(32, 4, 20), written(6, 4, 20)]
    assert resume_position(held, [*held[:17], 99], rings[:1]) == 17
    assert resume_position(held, [*held[:16], 99], rings) == 0


def brute_force(owner, length, window, start):
    while True:
        missing = [p for p in range(max(0, start - window + 1), start) if owner[p % length] != p]
        if not missing:
            return start
        start = missing[0]


@given(
    st.integers(1, 9),
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=12),
    st.integers(0, 40),
)
def test_rings_follow_the_rule_whatever_was_written(window, spare, writes, start):
    length = window + spare
    ring, owner = RingOwners(length, window), [-1] * length
    for at, count in writes:
        ring.record(at, count)
        for position in range(at, at + count):
            owner[position % length] = position
    held = list(range(41))
    assert resume_position(held, [*held[:start], 99], [ring]) == brute_force(owner, length, window, start)
