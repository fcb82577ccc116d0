"""What goes into the next pass."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from golem_core.engine.scheduler import patience, plan, reading_room


@dataclass(eq=False)
class Waiting:
    waiting: int
    reading: bool = True
    stop: int = 1000  # how far a pass may go

    whole: tuple[int, int] = (0, 0)  # where a picture begins, and of how many rows

    @property
    def ahead(self):
        return min(self.waiting, self.stop)

    def part(self, most):
        count, (start, rows) = min(self.ahead, most), self.whole
        return start if start < count < start + rows else count

    @property
    def least(self):
        return self.whole[1] if self.whole[0] == 0 and self.whole[1] else 1


def drawing():
    return Waiting(1, reading=False)


def planned(ready, width, reading=None):
    return [(ready.index(chunk.conversation), chunk.count, chunk.scored) for chunk in plan(ready, width, reading)]


def test_a_long_prompt_is_read_in_chunks_and_only_the_last_is_scored():
    assert planned([Waiting(20)], 8) == [(0, 8, False)]
    assert planned([Waiting(8)], 8) == [(0, 8, True)]
    assert planned([Waiting(3)], 8) == [(0, 3, True)]


def test_a_picture_whose_rows_see_each_other_is_not_parted():
    assert planned([Waiting(20, whole=(3, 6))], 8) == [(0, 3, False)]
    assert planned([Waiting(17, whole=(0, 6))], 8) == [(0, 8, False)]
    assert planned([Waiting(20, whole=(5, 3))], 8) == [(0, 8, False)]


def test_a_picture_waits_for_room_and_goes_though_others_are_drawing():
    assert planned([Waiting(5), Waiting(9, whole=(0, 6))], 8) == [(0, 5, True)]
    assert planned([Waiting(9, whole=(0, 6)), drawing(), drawing()], 8, reading=2) == [
        (1, 1, True),
        (2, 1, True),
        (0, 6, False),
    ]


def test_a_pass_ends_where_the_state_is_to_be_saved():
    assert planned([Waiting(20, stop=5)], 8) == [(0, 5, False)]
    assert planned([Waiting(20, stop=5), Waiting(9)], 8) == [(0, 5, False), (1, 3, False)]


def test_drawing_conversations_come_first_and_prompts_fill_the_rest_in_order():
    ready = [Waiting(5), drawing(), Waiting(9), drawing()]
    assert planned(ready, 10) == [(1, 1, True), (3, 1, True), (0, 5, True), (2, 3, False)]


def test_drawing_conversations_that_do_not_fit_wait_in_order():
    assert planned([drawing() for _ in range(5)], 3) == [(0, 1, True), (1, 1, True), (2, 1, True)]


def test_a_prompt_gets_a_column_even_when_drawing_would_fill_the_pass():
    ready = [drawing(), drawing(), drawing(), Waiting(7)]
    assert planned(ready, 3) == [(0, 1, True), (1, 1, True), (3, 1, False)]
    assert planned(ready, 1) == [(0, 1, True)]


def test_prompts_leave_room_to_those_that_draw():
    ready = [Waiting(30), drawing(), Waiting(9)]
    assert planned(ready, 64, 16) == [(1, 1, True), (0, 16, False)]
    assert planned(ready, 64, 35) == [(1, 1, True), (0, 30, True), (2, 5, False)]
    assert planned(ready, 8, 16) == [(1, 1, True), (0, 7, False)]


def test_the_room_for_prompts_takes_a_twentieth_of_a_second():
    assert reading_room(512, 1 / 2000) == 96  # 2000 columns a second, rounded down to whole groups
    assert reading_room(512, 1 / 100_000) == 512
    assert reading_room(512, 1 / 100) == 16
    assert reading_room(8, 1 / 100) == 8
    assert reading_room(512, 0.0) == 16  # nothing known yet


def test_company_is_worth_an_eighth_of_a_pass_and_the_next_two_milliseconds():
    assert patience(1, 1, 1.0, 0, 0) == 0
    assert patience(3, 3, 1.0, 0, 0) == 0
    assert patience(1, 2, 0.008, 0, 0) == pytest.approx(0.001)
    assert patience(1, 2, 1.0, 0, 0) == 0.002
    assert patience(2, 3, 1.0, 0.0015, 0.0005) == pytest.approx(0.0015)  # somebody came in between
    assert patience(2, 3, 0.016, 0.0015, 0.0005) == pytest.approx(0.0005)
    assert patience(2, 3, 1.0, 0.005, 0.002) == 0
