"""Strings found all at once are those that walking from length to length finds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_core.files import strings

ODD = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"", b"\0" * 7, b"\0" * 30, b"\xff", b"\xe4\xb8", b"a" * 255, b"b" * 256, b"c" * 70_000]),
    st.text(max_size=9).map(str.encode),
)


def laid_out(texts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


@given(st.lists(ODD, max_size=60), st.binary(max_size=9), st.binary(max_size=20))
def test_any_strings_read_as_they_were_written(texts: list[bytes], before: bytes, behind: bytes):
    raw = before + laid_out(texts) + behind
    end = len(raw) - len(behind)
    expected = [text.decode("utf-8", "surrogateescape") for text in texts]
    assert strings.skip(raw, len(before), len(texts)) == end
    assert strings.decode(raw, len(before), len(texts)) == (expected, end)


@given(st.lists(ODD, min_size=1, max_size=30), st.integers(1))
def test_strings_that_go_beyond_the_end_are_seen(texts: list[bytes], cut: int):
    raw = laid_out(texts)
    assert strings.skip(raw[: len(raw) - 1 - cut % len(raw)], 0, len(texts)) > len(raw) - 1 - cut % len(raw)
    assert strings.skip(raw, 0, len(texts) + 1) > len(raw)


@pytest.mark.parametrize("lengths", [[3] * 300_000, [*range(256)] * 40, [5] * 1000 + [0, 0, 300] + [7] * 1000])
def test_strings_of_more_than_one_window_read(lengths: list[int]):
    texts = [bytes([97 + i % 26]) * length for i, length in enumerate(lengths)]
    raw = laid_out(texts)
    assert strings.skip(raw, 0, len(texts)) == len(raw)
    assert strings.decode(raw, 0, len(texts)) == ([text.decode() for text in texts], len(raw))
