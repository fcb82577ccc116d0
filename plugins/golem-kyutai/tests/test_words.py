"""Tokens become words with times, and pieces become text, characters whole."""

from __future__ import annotations

import pytest
from golem_kyutai.pieces import Pieces, TextStream
from golem_kyutai.words import Word, Words

from golem_core import BadFile

TEXTS = (b"", b"", b"", b"", *(f" w{i}".encode() for i in range(4, 103)), b"\xe2\x82", b"\xac", b" ")


def words_of(tokens: list[int], duration: float = 10.0, **options) -> list[Word]:
    words = Words(Pieces(TEXTS), 3, 6, **options)
    found = [word for token in tokens if (word := words.step(token, -0.5)) is not None]
    last = words.end(duration)
    return found if last is None else [*found, last]


def times(words: list[Word]) -> list[tuple[float, float]]:
    return [(round(word.start, 9), round(word.end or -1, 9)) for word in words]


def test_words_begin_and_end_where_moshi_says():
    tokens = [*[3] * 8, 0, 50, 51, 3, 3, 0, 52, 3, 3, 3, 0, 3, 3, 0, 53, 54, 3, 3, 3, 0]
    words = words_of(tokens)
    assert [word.tokens for word in words] == [[50, 51], [52], [53, 54]]
    assert times(words) == [(0.24, 0.64), (0.64, 1.04), (1.28, 1.76)]
    assert [word.text for word in words] == ["w50 w51", "w52", "w53 w54"]
    assert [word.log_probability for word in words] == [-1.0, -0.5, -1.0]
    assert [round(word.said, 9) for word in words] == [0.56, 0.88, 1.6]


def test_what_was_put_in_front_is_no_part_of_the_times():
    tokens = [*[3] * 8, 0, 50, 51, 3, 3, 0, 52, 3]
    assert times(words_of(tokens, 3.0, shift=0.5)) == [(0.0, 0.14), (0.14, 3.0)]


def test_a_word_that_nothing_announced_begins_behind_the_one_before():
    words = words_of([*[3] * 6, 0, 50, 3, 51, 3, 3, 0])
    assert [(round(word.start, 9), round(word.said, 9)) for word in words] == [(0.08, 0.32), (0.32, 0.48)]


def test_the_last_word_ends_with_the_sound():
    assert times(words_of([*[3] * 8, 0, 50], 2.0)) == [(0.24, 2.0)]
    assert words_of([3] * 20) == []


def test_a_character_of_two_tokens_comes_out_whole():
    words = words_of([*[3] * 6, 0, 50, 103, 3, 104, 51, 3, 105, 3])
    assert [word.written for word in words] == [" w50", "€ w51"]
    assert [word.written for word in words_of([*[3] * 6, 50, 103])] == [" w50�"]


def test_pieces_are_sentencepieces(directory, tiny):
    pieces = Pieces.read(directory / "tokenizer_tiny.model")
    assert len(pieces) == len(tiny.PIECES)
    stream = TextStream(pieces)
    tokens = [4, 5, 6, 8, 7, 9, 10, 11, 12, 13, 14, 15]
    assert "".join(map(stream.add, tokens)) + stream.end() == " hello world, é€é."
    assert pieces.bytes(3) == pieces.bytes(999) == b""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 pieces"),
        (b"\x0a\xff", "within a"),
        (b"\x0a\x05ab", "within a field"),
        (b"\x0b", "unknown kind 3"),
        (b"\xff" * 20, "too long"),
        (b"\x0a\x04\x0a\x02\xff\xff", "not a sentencepiece model"),
    ],
)
def test_other_files_are_no_pieces(tmp_path, data, said):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=rf"tokenizer\.model.*{said}"):
        Pieces.read(path)
