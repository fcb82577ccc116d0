"""Unigram vocabularies segment as sentencepiece and llama.cpp do, the character map is read as it is defined."""

from __future__ import annotations

import contextlib
import random
import struct
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from golem_core.errors import BadFile
from golem_core.text import Tokenizer, tokenizer_from_metadata
from golem_core.text.charsmap import CharsMap
from golem_core.text.spm import _message, _number

from . import xlm_roberta
from .vocabularies import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, metadata

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "die Wörter der Sprache, und ein Satz mehr",
    "les mots de la langue française: é à ç",
    "日本語のテキストと分かち書き",
    "слова русского языка и числа 1234567890",
    "a text about texts, (with) [marks] and words!",
]
ALPHABET = "theqickbrown fxjmpsvlazydgöüé  \t\u3000日本語のテキﬁ①½ｶﾞe\u0301слова\u1100\u1161\u200b\0\U0001f44d1,.\u2581"
Meta = dict[str, Any]


# ---------------------------------------------------------------- as sentencepiece does


@pytest.fixture(scope="module")
def small() -> tuple[SentencePieceProcessor, Tokenizer]:
    """A vocabulary that sentencepiece trains, there and here; the ids are the same."""
    model = xlm_roberta.trained(SENTENCES * 5, 200, user_defined_symbols=["<tag>"])
    tokens = []
    for number, value in xlm_roberta.fields(model):
        if number == 1:
            piece = {1: b"", 2: bytes(4), 3: NORMAL} | dict(xlm_roberta.fields(value))
            tokens.append((piece[1].decode(), piece[3], struct.unpack("<f", piece[2])[0]))
    meta = metadata("t5", tokens, bos_token_id=1, eos_token_id=2, unknown_token_id=0, remove_extra_whitespaces=True)
    meta["tokenizer.ggml.precompiled_charsmap"] = list(xlm_roberta.charsmap())
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    tokenizer = tokenizer_from_metadata(meta)
    tokenizer.prepare()  # hypothesis measures the time of an example
    return processor, tokenizer


def agree(tokenizer: Tokenizer, text: str, expected: Sequence[int]) -> bool:
    """Whether the cut is the expected one, or another one that float32 cannot tell from it."""
    ids = tokenizer.encode(text)
    if ids == expected:
        return True
    scores = tokenizer.vocabulary.scores
    assert scores is not None
    got, wanted = (sum(float(scores[id]) for id in each) for each in (ids, expected))
    return abs(got - wanted) < 1e-4 and len(ids) == len(expected)


@given(text=st.text(ALPHABET, max_size=40))
def test_a_text_is_cut_as_sentencepiece_cuts_it(small, text):
    processor, tokenizer = small
    assert agree(tokenizer, text, processor.EncodeAsIds(text))


def test_sentences_are_cut_as_sentencepiece_cuts_them(small):
    processor, tokenizer = small
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence) == processor.EncodeAsIds(sentence)
        assert tokenizer.decode(tokenizer.encode(sentence)) == " " + unicodedata.normalize("NFKC", sentence)


def test_a_user_defined_piece_is_found_whatever_stands_around_it(small):
    processor, tokenizer = small
    tag = tokenizer.token_id("<tag>")
    assert tokenizer.encode("the<tag>fox").count(tag) == 1 == processor.EncodeAsIds("the<tag>fox").count(tag)


# ---------------------------------------------------------------- the rules, one by one

PIECES = [("▁", -3.0), ("a", -2.0), ("b", -2.0), ("ab", -3.5), ("▁a", -3.0), ("▁ab", -6.5), ("ba", -4.5), ("c", -9.0)]


def unigram(*further: tuple[str, int, float], **keys: Any) -> Tokenizer:
    tokens = [("<pad>", CONTROL, 0.0), ("</s>", CONTROL, 0.0), ("<unk>", UNKNOWN, 0.0)]
    tokens += [(text, NORMAL, score) for text, score in PIECES] + list(further)
    return tokenizer_from_metadata(metadata("t5", tokens, **keys))


def cut(tokenizer: Tokenizer, text: str, **how: Any) -> list[str]:
    return [tokenizer.token_text(id) for id in tokenizer.encode(text, **how)]


def test_the_cut_with_the_highest_sum_is_taken():
    assert cut(unigram(), "ab") == ["▁a", "b"]  # -5 against -6.5 for the whole and -6.5 for ▁ ab
    assert cut(unigram(("▁ab", NORMAL, -4.9)), "ab") == ["▁ab"]


def test_runs_of_characters_without_a_piece_are_one_unknown():
    assert cut(unigram(), "xyz") == ["▁", "<unk>"]
    assert cut(unigram(), "axyb") == ["▁a", "<unk>", "b"]
    assert cut(unigram(), "x" * 10_000 + "a") == ["▁", "<unk>", "a"]


def test_an_unknown_is_worth_ten_less_than_the_worst_piece():
    assert cut(unigram(("axb", NORMAL, -22.9)), "caxb") == ["▁", "c", "axb"]
    assert cut(unigram(("axb", NORMAL, -40.0), ("q", NORMAL, -1.0)), "caxb") == ["▁", "c", "axb"]
    longer = unigram(("axb", UNUSED, -100.0))
    assert cut(longer, "caxb") == ["▁", "c", "a", "<unk>", "b"], "an unused piece may be taken and sets no floor"


def test_blanks_are_kept_unless_the_file_says_otherwise():
    assert cut(unigram(), "a  b") == ["▁a", "▁", "▁", "b"]
    assert cut(unigram(), "  a ") == ["▁", "▁", "▁a", "▁"]
    assert cut(unigram(add_space_prefix=False), "a a") == ["a", "▁a"]
    for text in ("a  b", " a b  "):
        assert cut(unigram(remove_extra_whitespaces=True), text) == ["▁a", "▁", "b"]
    assert cut(unigram(remove_extra_whitespaces=True), "   ") == []


def test_a_piece_with_a_blank_inside_goes_over_the_border_of_words():
    assert cut(unigram(("b▁a", NORMAL, -1.0)), "ab ab") == ["▁a", "b▁a", "b"]


def test_a_text_has_an_end_and_no_beginning_unless_the_file_says_otherwise():
    assert cut(unigram(), "a", add_special=True) == ["▁a", "</s>"]
    assert cut(unigram(), "", add_special=True) == ["</s>"]
    given_both = unigram(("<s>", CONTROL, 0.0), bos_token_id=11, add_bos_token=True)
    assert cut(given_both, "a", add_special=True) == ["<s>", "▁a", "</s>"]


def test_special_pieces_are_text_unless_parsed_and_mask_takes_the_blanks_before_it():
    tokenizer = unigram(("<mask>", CONTROL, 0.0), ("<tag>", USER_DEFINED, -50.0))
    assert cut(tokenizer, "a<mask>") == ["▁a", "<unk>", "a", "<unk>"]
    assert cut(tokenizer, "a  <mask> b", parse_special=True) == ["▁a", "<mask>", "▁", "▁", "b"]
    assert cut(tokenizer, "a<tag>b") == ["▁a", "<tag>", "▁", "b"]


def test_windows_of_a_long_text_are_cut_as_the_whole_would_be():
    tokenizer = unigram()
    letters = random.Random(1).choices("aabbcx", k=20_000)
    text = "".join(letters)
    whole = tokenizer._segmenter.best("▁" + text)
    end, expected = len(text) + 1, []
    while end:
        expected.append(whole[1][end])
        end = whole[0][end]
    expected.reverse()
    unknown = tokenizer.token_id("<unk>")
    merged = [id for at, id in enumerate(expected) if id != unknown or at == 0 or expected[at - 1] != unknown]
    assert tokenizer.encode(text) == merged
    assert tokenizer.encode(text, limit=50)[:50] == merged[:50]
    assert 50 < len(tokenizer.encode(text, limit=50)) < 5000


def test_a_limit_keeps_the_beginning_of_words():
    text = "ab ba " * 1000
    assert unigram().encode(text, limit=7)[:7] == unigram().encode(text)[:7]
    assert len(unigram().encode(text, limit=7, add_special=True)) < 20


def test_a_vocabulary_without_scores_or_an_unknown_is_refused():
    meta = metadata("t5", [("a", NORMAL, 0.0)], add_eos_token=False)
    with pytest.raises(BadFile, match="unknown_token_id"):
        tokenizer_from_metadata(meta)
    del meta["tokenizer.ggml.scores"]
    with pytest.raises(BadFile, match="scores"):
        tokenizer_from_metadata(meta | {"tokenizer.ggml.unknown_token_id": 0})


# ---------------------------------------------------------------- the character map


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ﬁ①", "fi1"),
        ("½", "1\u20442"),
        ("\uff76\uff9e", "\u30ac"),
        ("\u1100\u1161", "\uac00"),
        ("e\u0301\u0301", "\u00e9\u0301"),
        ("\u0301e", "\u0301e"),
        ("a\tb\nc\rd\u00a0e\u2028f\u3000g\u200bh\ufeffi\u2581j", "a b c d e f g h i j"),
        ("a\u0001b\u007fc", "abc"),
        ("\uff5e\u200d\u00ad\u0085\0", "\uff5e\u200d\u00ad\u0085\0"),
        ("\u2122\u2026\u339e", "TM...km"),
        ("", ""),
    ],
)
def test_the_map_of_sentencepiece_replaces_the_longest_text(text, expected):
    assert CharsMap(xlm_roberta.charsmap())(text) == expected


def test_no_map_changes_nothing():
    assert CharsMap(b"")("ﬁ e\u0301") == "ﬁ e\u0301"


def trie(*units: int, replacements: bytes = b"x\0") -> bytes:
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + replacements


def test_a_map_by_hand():
    # From the root's base 1: "a" (unit 1 ^ 97) leads, as a leaf, to the base 1 ^ 97 ^ 2; there stands the value.
    units = [0] * 256
    units[0] = 1 << 10
    units[1 ^ 97] = 2 << 10 | 1 << 8 | 97
    units[1 ^ 97 ^ 2] = 1 << 31 | 2
    assert CharsMap(trie(*units, replacements=b"x\0yz\0"))("banal") == "byznyzl"


@pytest.mark.parametrize(
    "blob, words",
    [
        (b"\0", "does not fit"),
        (b"\xff\xff\0\0abcd", "does not fit"),
        (trie(1 << 10, *[0] * 95, 1 << 20 | 1 << 8 | 97), "lies behind its 97 units"),
        (trie(1 << 10, *[0] * 95, 2 << 10 | 1 << 8 | 97, 0, 1 << 31 | 9), "lies behind the 2 bytes"),
        (trie(1 << 10, *[0] * 192, 2 << 10 | 1 << 8 | 192, *[0] * 5), "not UTF-8"),
    ],
)
def test_a_broken_map_is_refused_by_name(blob, words):
    with pytest.raises(BadFile, match=f"precompiled_charsmap.*{words}"):
        CharsMap(blob, "x.gguf")


@given(st.binary(max_size=400))
def test_any_bytes_are_a_map_or_a_bad_file(data):
    size = len(data) // 8 * 4
    with contextlib.suppress(BadFile):
        CharsMap(size.to_bytes(4, "little") + data)("abc ﬁ")


def test_a_map_may_be_stated_in_signed_numbers():
    signed = [byte - 256 if byte > 127 else byte for byte in xlm_roberta.charsmap()]
    assert unigram(precompiled_charsmap=signed).normalize("ﬁ") == "▁fi"  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the vocabulary of XLM-RoBERTa

GOLDEN: list[tuple[str, list[int]]] = [
    ("", []),
    ("a", [10]),
    ("hello world", [33600, 31, 8999]),
    (" hello  world ", [33600, 31, 8999]),
    ("hello\nworld\t!", [33600, 31, 8999, 711]),
    ("\u00a0x\u00a0", [1022]),
    ("\u2581x", [1022]),
    ("x\u200by", [1022, 113]),
    ("\ufb02ag \ufb01le", [49938, 11435]),
    ("\u2460\u2461\u2462", [37638]),
    ("\u00bd", [78660]),
    ("e\u0301te\u0301", [5325]),
    ("\u00e9t\u00e9", [5325]),
    ("\uff76\uff9e\uff77\uff9e", [6, 26618, 49111]),
    ("\u4e2d\u6587\u5206\u8bcd", [6, 32095, 1583, 31595]),
    ("\u65e5\u672c\u8a9e\u3067\u3059\u3002", [6, 98449, 1453, 30]),
    ("\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440", [1813, 18454, 4, 11373]),
    ("\u0928\u092e\u0938\u094d\u0924\u0947", [68700, 97883]),
    ("\u0645\u0631\u062d\u0628\u0627", [665, 193478, 258]),
    ("\U0001f44d\U0001f3fd", [6, 118280, 245164]),
    ("\U0001f000\U0001f001 z", [6, 3, 97]),
    ("a\0b", [10, 3, 275]),
    ("\ufdfa", [16509, 1423, 4472, 8756]),
    ("aaaa", [6, 110777]),
    ("!!!???", [7625, 7273]),
    ("search_query: cats", [33938, 454, 944, 1294, 12, 7515, 7]),
    ("search_document: cats", [33938, 454, 117432, 12, 7515, 7]),
    ("<s>", [4426, 7, 2740]),
]
"""Texts and what llama.cpp makes of them, without the tokens around."""


@pytest.fixture(scope="module")
def real() -> Tokenizer:
    return tokenizer_from_metadata(xlm_roberta.metadata())


def test_the_real_vocabulary_gives_the_recorded_ids(real):
    for text, ids in GOLDEN:
        assert real.encode(text, add_special=True) == [0, *ids, 2], text
    assert real.encode("<s>", add_special=True, parse_special=True) == [0, 0, 2]


def test_the_real_vocabulary_cuts_as_sentencepiece_does(real):
    """sentencepiece has the same pieces two ids before: it begins with <unk>, <s>, </s>."""
    texts, scores = xlm_roberta.vocabulary()
    body = b""
    for text, score, kind in [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)] + [
        (text, score, 1) for text, score in zip(texts[4:-1], scores[4:-1], strict=True)
    ]:
        piece = _message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)
        body += _message(1, piece)
    trainer = _number(3, 1) + _number(40, 0) + _number(41, 1) + _number(42, 2) + _number(43, -1)
    normalizer = _message(1, b"nmt_nfkc") + _message(2, xlm_roberta.charsmap())
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(body + _message(2, trainer) + _message(3, normalizer))
    source = random.Random(5)
    letters = ALPHABET + "नमस्तेمرحبا안녕하세요สวัสดี" + "".join(texts[i][:2] for i in range(1000, 100_000, 700))
    for _ in range(600):
        text = "".join(source.choices(letters, k=source.randrange(1, 60)))
        expected = [3 if id == 0 else id + 1 for id in processor.EncodeAsIds(text)]
        assert agree(real, text, expected), text
