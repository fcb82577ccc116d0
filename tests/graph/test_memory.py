"""The arena of a plan: what is handed out never overlaps, and what comes back is used again."""

from __future__ import annotations

import numpy as np

from golem_core.graph.memory import Stretches, Touched
from golem_core.graph.plan import Buffer, Operand


def test_stretches_do_not_overlap_and_join_again_when_they_are_free():
    dice, memory, held = np.random.default_rng(0), Stretches(), []
    most = live = 0
    for _ in range(2000):
        if held and dice.random() < 0.5:
            start, size = held.pop(dice.integers(len(held)))
            memory.give(start, size)
            live -= size
        else:
            size = 64 * int(dice.integers(0, 20))
            start = memory.take(size)
            assert all(start + size <= a or a + n <= start for a, n in held if size and n)
            held.append((start, size))
            live += size
        most = max(most, live)
        assert start + size <= memory.top
    assert memory.top < 1.5 * most
    for start, size in held:
        memory.give(start, size)
    assert memory.free == [(0, memory.top)]


def test_the_smallest_stretch_is_taken_and_a_free_end_grows():
    memory = Stretches()
    places = [memory.take(size) for size in (640, 64, 128, 64, 320)]
    for start, size in ((places[0], 640), (places[2], 128), (places[4], 320)):
        memory.give(start, size)
    assert memory.take(128) == places[2]
    assert memory.take(384) == 0 and memory.take(256) == 384  # both of the first
    assert memory.take(640) == places[4] and memory.top == places[4] + 640
    memory.give(places[4], 640)
    assert memory.take(64, fresh=True) == places[4] + 640


def test_steps_touch_the_same_where_their_bytes_overlap():
    seen = Touched()
    seen.add(Operand(Buffer(128, offset=64), "all", 64))
    seen.add(Operand(Buffer(64, output="y"), "all", 64))
    for offset, size, same in ((0, 64, False), (0, 65, True), (128, 64, True), (192, 64, False)):
        assert (Operand(Buffer(size, offset=offset), "all", 64) in seen) == same
    assert Operand(Buffer(64, output="y"), "all", 64) in seen
    assert Operand(Buffer(64, output="z"), "all", 64) not in seen
