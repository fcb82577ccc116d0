"""Stop strings end an answer at the same place however its text arrives, and never cost text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from golem_core.text import StopMatcher

LETTERS = st.text("aab\né", max_size=14)


def cut(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    """The text that a client gets of `pieces`, and whether a stop string ended it."""
    matcher = StopMatcher(stops)
    sent = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        sent.append(text)
        if stopped:
            return "".join(sent) + matcher.flush(), True
    return "".join(sent) + matcher.flush(), False


def first_complete(text: str, stops: list[str]) -> int | None:
    """Where the stop string begins that is complete first, tried letter by letter."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if begins:
            return min(begins)
    return None


@given(pieces=st.lists(LETTERS, max_size=6), stops=st.lists(LETTERS, max_size=3))
def test_the_text_ends_before_the_first_stop_string(pieces, stops):
    text = "".join(pieces)
    at = first_complete(text, stops)
    assert cut(pieces, stops) == ((text, False) if at is None else (text[:at], True))


@given(pieces=st.lists(LETTERS, max_size=6), stops=st.lists(LETTERS, max_size=3))
def test_the_split_does_not_matter(pieces, stops):
    text = "".join(pieces)
    assert cut(pieces, stops) == cut([text], stops) == cut(list(text), stops)


@given(pieces=st.lists(LETTERS, max_size=6), stops=st.lists(LETTERS, max_size=3))
def test_only_what_may_begin_a_stop_string_is_held_back(pieces, stops):
    matcher = StopMatcher(stops)
    seen = sent = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        seen, sent = seen + piece, sent + text
        if stopped:
            break
        held = seen[len(sent) :]
        assert seen.startswith(sent)
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_stop_string_may_span_pieces_and_begin_inside_one():
    matcher = StopMatcher(["\nUser:"])
    assert matcher.push("Sure.\nUs") == ("Sure.", False)
    assert matcher.push("er: hi") == ("", True)
    assert matcher.stopped
    assert matcher.push("more") == ("", True)
    assert matcher.flush() == ""


def test_a_held_tail_comes_out_at_the_end():
    matcher = StopMatcher(["END", "éé"])
    assert matcher.push("é") == ("", False)
    assert matcher.push("EN") == ("é", False)
    assert matcher.flush() == "EN"


def test_of_several_in_one_piece_the_earliest_counts():
    assert cut(["one two three"], ["three", "two"]) == ("one ", True)
    assert cut(["abcd"], ["bcd", "abcd"]) == ("", True)


def test_more_than_four_are_accepted():
    assert cut(list("say six now"), ["one", "two", "three", "four", "five", "six"]) == ("say ", True)


def test_a_stop_string_inside_the_beginning_of_another_is_met():
    assert cut(list("xabcabd"), ["abcabe", "bca"]) == ("xa", True)


def test_thousands_of_stop_strings_cost_no_more_per_letter(monkeypatch):
    steps = 0
    after = StopMatcher._after

    def counted(self, state, letter):
        nonlocal steps
        steps += 1
        return after(self, state, letter)

    monkeypatch.setattr(StopMatcher, "_after", counted)
    matcher = StopMatcher([f"a{number:05}" for number in range(10_000)])
    assert steps < 60_000  # one for each of their letters at most
    steps = 0
    assert matcher.push("no stop, a123 " * 100) == ("no stop, a123 " * 100, False)
    assert steps == 1400
    assert matcher.push("and a04321.") == ("and ", True)
