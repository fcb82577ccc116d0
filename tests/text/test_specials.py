"""Special tokens are cut out of a text longest first, at every place, whatever their number."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from golem_core.text.specials import SpecialCutter


def longest_first(text: str, ids: dict[str, int]) -> list[str | int]:
    """The rule, step by step: each special text in turn, the longest first, at each place from left to right."""
    parts: list[str | int] = [text]
    for special in sorted(ids, key=len, reverse=True):
        next_parts: list[str | int] = []
        for part in parts:
            while isinstance(part, str) and special in part:
                before, _, part = part.partition(special)
                next_parts += [before, ids[special]]
            next_parts.append(part)
        parts = next_parts
    return [part for part in parts if part != ""]


@given(
    st.text("ab<>", max_size=24),
    # Texts of one length that overlap leave the rule open, so each length occurs once.
    st.lists(st.text("ab<>", min_size=1, max_size=9), unique_by=len, max_size=6),
)
def test_the_longest_is_cut_first(text, specials):
    ids = {special: index for index, special in enumerate(specials)}
    assert SpecialCutter(ids).cut(text) == longest_first(text, ids)


def test_a_longer_one_that_begins_inside_a_shorter_one_wins():
    assert SpecialCutter({"aab": 1, "bcde": 2}).cut("aabcde") == ["aa", 2]


def test_runs_are_cut_from_the_left():
    spaces = {" " * length: length for length in range(2, 32)}
    assert SpecialCutter(spaces).cut("a" + " " * 40 + "b c") == ["a", 31, 9, "b c"]


def test_nothing_to_cut():
    assert SpecialCutter({}).cut("text") == ["text"]
    assert SpecialCutter({"": 3, "x": 1}).cut("") == []


def test_characters_that_mean_something_to_a_regex_are_characters():
    ids = {text: id for id, text in enumerate(["]", "^-", "[a]", "\\d", "-", "a|b", "\n", ".*"])}
    assert SpecialCutter(ids).cut("1]^-[a]\\d-a|b\n.*^") == ["1", 0, 1, 2, 3, 4, 5, 6, 7, "^"]


def test_thousands_of_special_texts_cost_no_more_than_a_few():
    many = {f"<unused{number}>": number for number in range(6000)} | {"\n" * n: 6000 + n for n in range(1, 32)}
    cutter = SpecialCutter(many)
    text = "some <b>words</b> in a line\n" * 4000
    start = time.process_time()
    parts = cutter.cut(text)
    assert time.process_time() - start < 1  # 4000 lines in some milliseconds; one search for each would take minutes
    assert parts.count(6001) == 4000
