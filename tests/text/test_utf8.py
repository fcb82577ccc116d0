"""Tokens are bytes; only complete characters come out, and the same ones however the bytes arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from golem_core.text import Utf8Assembler


@given(st.text(), st.lists(st.integers(1, 4)))
def test_text_survives_any_split(text, sizes):
    data, assembler, out = text.encode(), Utf8Assembler(), ""
    for size in sizes:
        out += assembler.push(data[:size])
        data = data[size:]
    assert out + assembler.push(data) + assembler.flush() == text


@given(st.binary(max_size=20))
def test_any_bytes_give_the_same_text_whole_and_one_by_one(data):
    whole, single = Utf8Assembler(), Utf8Assembler()
    assert whole.push(data) == "".join(single.push(bytes([byte])) for byte in data)
    assert whole.flush() == single.flush() == ""


@given(st.binary(max_size=20))
def test_bad_bytes_are_replaced_as_python_does(data):
    # A final "." completes or breaks whatever came before it.
    assert Utf8Assembler().push(data + b".") == (data + b".").decode("utf-8", "replace")


def test_a_character_waits_for_its_last_byte():
    assembler = Utf8Assembler()
    assert [assembler.push(bytes([byte])) for byte in "a👍é".encode()] == ["a", "", "", "", "👍", "", "é"]


def test_one_piece_may_complete_a_character_and_begin_another():
    first, second = "é".encode(), "ü".encode()
    assembler = Utf8Assembler()
    assert assembler.push(first[:1]) == ""
    assert assembler.push(first[1:] + second[:1]) == "é"
    assert assembler.push(second[1:]) == "ü"


def test_maximal_subparts_are_replaced_one_by_one():
    assert Utf8Assembler().push(b"\xf0\x9f\x91A\xc0\xaf\xedZ") == "\ufffdA\ufffd\ufffd\ufffdZ"


def test_an_incomplete_tail_is_dropped_and_forgotten():
    assembler = Utf8Assembler()
    assert assembler.push(b"ok\xf0\x9f") == "ok"
    assert assembler.flush() == ""
    assert assembler.push(b"a") == "a"
