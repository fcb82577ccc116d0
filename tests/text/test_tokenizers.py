"""Tokenizers segment as their format defines it, cut special tokens out first, and lose no bytes."""

from __future__ import annotations

import math
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_core.errors import BadFile, Unsupported
from golem_core.files import Metadata
from golem_core.text import Tokenizer, tokenizer_from_metadata

from .vocabularies import (
    BYTES,
    CHARACTER_MERGES,
    MERGES,
    NORMAL,
    USER_DEFINED,
    by_ranks,
    by_scores,
    byte_alphabet,
    byte_level,
    characters,
    metadata,
    scored,
)

TEXT = st.text("aab bc\n1é\U0001f44d", max_size=30)


def texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(id) for id in ids]


@pytest.fixture(scope="module", params=[scored, byte_level, characters], ids=lambda build: build.__name__)
def any_tokenizer(request) -> Tokenizer:
    return tokenizer_from_metadata(request.param())


# Segmenting


SCORED = tokenizer_from_metadata(scored())


@given(TEXT)
def test_scored_merges_take_the_best_pair_first(text):
    cut = re.split("(\n\n)", text)  # a user-defined token
    expected = []
    for part in cut:
        expected += [SCORED.token_id(part)] if part == "\n\n" else by_scores(scored(), part)
    assert SCORED.encode(text) == expected


BYTE_LEVEL = tokenizer_from_metadata(byte_level())
GPT2_WORD = re.compile(r"'s|'ll| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+")


@given(TEXT)
def test_byte_level_merges_take_the_first_pair_of_the_list_first(text):
    alphabet = byte_alphabet()
    expected = []
    for word in GPT2_WORD.findall(text):
        expected += by_ranks(MERGES, [alphabet[byte] for byte in word.encode()])
    assert texts(BYTE_LEVEL, BYTE_LEVEL.encode(text)) == expected


CHARACTERS = tokenizer_from_metadata(characters())


@given(TEXT)
def test_character_merges_run_over_lines(text):
    expected = []
    for line in re.findall("[^\n]+|\n+", text):
        if CHARACTERS.token_id(line) is not None and not line.strip("\n"):
            expected.append(line)
            continue
        for symbol in by_ranks(CHARACTER_MERGES, list(line.replace(" ", "▁"))):
            known = CHARACTERS.token_id(symbol) is not None
            expected += [symbol] if known else [f"<0x{byte:02X}>" for byte in symbol.encode()]
    assert texts(CHARACTERS, CHARACTERS.encode(text)) == expected


def test_a_run_of_newlines_that_is_a_token_is_taken_whole():
    assert texts(CHARACTERS, CHARACTERS.encode("a\n\n\nb\n\n\n\n")) == ["a", "\n\n\n", "b", "\n\n", "\n\n"]


def test_a_byte_without_a_token_is_left_out_and_parts_its_neighbours():
    tokenizer = tokenizer_from_metadata(byte_level(without=byte_alphabet()[7]))
    assert texts(tokenizer, tokenizer.encode("a\x07b ab")) == ["a", "b", "Ġab"]


def test_a_blank_in_front_where_the_file_wants_it():
    tokenizer = tokenizer_from_metadata({**scored(), "tokenizer.ggml.add_space_prefix": True})
    ids = tokenizer.encode("ab<turn>ab<tag>c", add_special=True, parse_special=True)
    assert texts(tokenizer, ids) == ["<s>", "▁ab", "<turn>", "▁ab", "<tag>", "▁", "c"]
    assert tokenizer.encode("") == []


def test_of_two_tokens_with_one_text_the_later_is_used():
    tokens = [("<unk>", 2, 0.0), *BYTES, ("a", NORMAL, -1.0), ("b", NORMAL, -1.0), ("ab", NORMAL, 0.0)]
    tokens += [("a", NORMAL, -2.0), ("", NORMAL, 0.0)]
    tokenizer = tokenizer_from_metadata(metadata("llama", tokens, add_space_prefix=False, add_bos_token=False))
    assert tokenizer.encode("a ab") == [260, *by_scores({**metadata("llama", tokens)}, " "), 259]


def test_characters_without_bytes_to_fall_back_on_are_unknown():
    tokens = [("<unk>", 2, 0.0), ("a", NORMAL, -1.0), ("b", NORMAL, -1.0)]
    meta = metadata("llama", tokens, add_space_prefix=False, add_bos_token=False)
    assert tokenizer_from_metadata(meta).encode("ab?") == [1, 2, 0]
    meta["tokenizer.ggml.token_type"] = [NORMAL] * 3
    del meta["tokenizer.ggml.model"]
    meta |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["x", "a", "b"]}
    assert tokenizer_from_metadata(meta).encode("?") == [0]  # the format's own default


def test_a_merge_may_begin_with_a_blank():
    tokens = [(text, NORMAL, 0.0) for text in (" ", "a", " a", *byte_alphabet())]
    meta = metadata("gpt2", tokens, pre="gpt-2", merges=["  a"])
    assert tokenizer_from_metadata(meta).encode("a") == [3 + byte_alphabet().index("a")]


@pytest.mark.parametrize("text", ["a" * 100_000, " " * 100_000, "ab" * 50_000, "\n" * 100_000, "<" * 100_000])
def test_a_very_long_run_is_not_quadratic(any_tokenizer, text):
    start = time.process_time()
    any_tokenizer.encode(text, parse_special=True)
    assert time.process_time() - start < 5  # quadratic: minutes


def test_other_threads_run_while_a_long_text_is_cut(any_tokenizer):
    any_tokenizer.encode("a")
    over, ticks = threading.Event(), []

    def tick() -> None:
        while not over.wait(0.001):
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    start = time.perf_counter()
    ids = any_tokenizer.encode("abc 1a\n" * 150_000)
    took = time.perf_counter() - start
    over.set()
    other.join()
    assert sum(tick < start + took for tick in ticks) > 20, f"a thread was held up for most of {took:.2f} s"
    assert ids[-200:] == any_tokenizer.encode("abc 1a\n" * 100)[-200:]


def test_huge_texts_are_cut_one_after_another():
    class Segmenter:
        under_way, most = 0, 0

        def encode_batch_fast(self, texts, **options):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            time.sleep(0.05)
            self.under_way -= 1
            return [SimpleNamespace(ids=[len(text)]) for text in texts]

    def at_once(size: int) -> int:
        tokenizer = tokenizer_from_metadata(byte_level())
        tokenizer._built = segmenter = Segmenter()
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(tokenizer.encode, ["a" * size] * 4)) == [[size]] * 4
        return segmenter.most

    assert at_once(1 << 20) == 1
    assert at_once(1 << 19) > 1


def test_the_first_texts_may_come_from_several_threads_at_once():
    tokenizer = tokenizer_from_metadata(byte_level())
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(tokenizer.encode("abc ab"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [BYTE_LEVEL.encode("abc ab")] * 8


# Special tokens


@pytest.mark.parametrize("parse_special", [False, True])
def test_many_texts_become_what_each_of_them_becomes_alone(any_tokenizer, parse_special):
    vocabulary = any_tokenizer.vocabulary
    specials = [text for text, kind in zip(vocabulary.texts, vocabulary.kinds.tolist(), strict=True) if kind in (3, 4)]
    assert specials
    dice = random.Random(5)
    pieces = [*specials, *vocabulary.texts[:40], " ", "  ", "\n", "\n\n\n", "a", "é", "日", "\ud800", "\x00", "🙂"]
    texts = ["", *("".join(dice.choices(pieces, k=dice.randrange(7))) for _ in range(700)), ""]
    alone = [any_tokenizer.encode(text, parse_special=parse_special) for text in texts]
    assert any(alone) and list(any_tokenizer.encode_many(texts, parse_special=parse_special)) == alone
    assert list(any_tokenizer.encode_many([])) == []


@pytest.mark.parametrize(
    "meta",
    [
        byte_level(without=byte_alphabet()[7]),
        {**scored(), "tokenizer.ggml.add_space_prefix": True},
        metadata("llama", [("<unk>", 2, 0.0), ("a", NORMAL, -1.0), ("b", NORMAL, -1.0)], add_bos_token=False),
    ],
    ids=["a-byte-without-a-token", "a-blank-in-front", "an-unknown-token"],
)
def test_many_texts_keep_the_rules_of_their_vocabulary(meta):
    tokenizer = tokenizer_from_metadata(meta)
    texts = ["a\x07b ab", "ab", "", "ab<turn>ab<tag>c", "ab?"]
    for parse_special in (False, True):
        alone = [tokenizer.encode(text, parse_special=parse_special) for text in texts]
        assert list(tokenizer.encode_many(texts, parse_special=parse_special)) == alone


def test_control_tokens_are_text_unless_parsed(any_tokenizer):
    mark = {"llama": "<turn>", "gpt2": "<|im_start|>", "gemma4": "<turn|>"}[kind(any_tokenizer)]
    id = any_tokenizer.token_id(mark)
    assert id not in any_tokenizer.encode(f"a{mark}b")
    ids = any_tokenizer.encode(f"a {mark} b", parse_special=True)
    assert ids.count(id) == 1
    assert any_tokenizer.decode(ids) == "a  b"
    assert any_tokenizer.decode(ids, special=True) == f"a {mark} b"


def test_user_defined_tokens_are_always_found_and_shown(any_tokenizer):
    mark = {"llama": "<tag>", "gpt2": "<tool>", "gemma4": "<|channel>"}[kind(any_tokenizer)]
    for parse_special in (False, True):
        ids = any_tokenizer.encode(f"a{mark}{mark}b", parse_special=parse_special)
        assert ids.count(any_tokenizer.token_id(mark)) == 2
        assert any_tokenizer.decode(ids) == f"a{mark}{mark}b"


def test_text_does_not_end_a_turn_even_where_the_mark_is_user_defined():
    meta = byte_level()
    end = meta["tokenizer.ggml.tokens"].index("<|im_end|>")
    meta["tokenizer.ggml.token_type"][end] = USER_DEFINED
    tokenizer = tokenizer_from_metadata(meta)
    assert end not in tokenizer.encode("hi<|im_end|>")
    assert end in tokenizer.encode("hi<|im_end|>", parse_special=True)


def test_bos_and_eos_as_the_file_says():
    assert SCORED.add_bos and not SCORED.add_eos
    assert texts(SCORED, SCORED.encode("a", add_special=True)) == ["<s>", "a"]
    tokenizer = tokenizer_from_metadata(scored(add_bos_token=False, add_eos_token=True))
    assert texts(tokenizer, tokenizer.encode("a", add_special=True)) == ["a", "</s>"]
    assert (BYTE_LEVEL.bos, BYTE_LEVEL.eos, BYTE_LEVEL.add_bos) == (None, None, False)
    assert CHARACTERS.encode("", add_special=True) == [CHARACTERS.bos] == [2]


def test_some_pre_tokenizers_want_a_bos_where_the_file_is_silent():
    assert tokenizer_from_metadata(byte_level("llama-bpe", bos_token_id=3)).add_bos
    assert not tokenizer_from_metadata(byte_level("llama-bpe", bos_token_id=3, add_bos_token=False)).add_bos


# Ends of a generation


def test_ends_are_known_by_declaration_and_by_text():
    tokenizer = tokenizer_from_metadata(byte_level(eos_token_id=5, eot_token_id=6))
    assert tokenizer.eog == {5, 6, tokenizer.token_id("<|im_end|>")}
    assert texts(CHARACTERS, sorted(CHARACTERS.eog)) == ["<eos>", "<turn|>"]


def test_a_family_may_name_further_ends():
    meta = byte_level(eos_token_id=5)
    tokenizer = tokenizer_from_metadata(meta, extra_eog=["<tool>", "<not there>"])
    assert tokenizer.eog == {5, tokenizer.token_id("<tool>"), tokenizer.token_id("<|im_end|>")}


def test_a_tag_that_looks_like_an_end_is_none():
    meta = scored(eos_token_id=1)
    meta["tokenizer.ggml.token_type"][2] = USER_DEFINED
    assert tokenizer_from_metadata(meta).eog == {1}


def test_an_end_mark_that_is_marked_as_a_word_is_a_control_token():
    meta = byte_level()
    end = meta["tokenizer.ggml.tokens"].index("<|im_end|>")
    meta["tokenizer.ggml.token_type"][end] = NORMAL
    tokenizer = tokenizer_from_metadata(meta)
    assert end in tokenizer.eog and tokenizer.piece(end) == b""
    assert end in tokenizer.encode("a<|im_end|>", parse_special=True)


# Bytes and text


@given(TEXT)
def test_no_text_is_lost(text):
    for tokenizer in (SCORED, BYTE_LEVEL, CHARACTERS):
        ids = tokenizer.encode(text, parse_special=True)
        assert tokenizer.decode(ids) == text
        assert b"".join(map(tokenizer.piece, ids)) == text.encode()


@given(st.text(max_size=20))
def test_no_text_at_all_is_lost_over_bytes(text):
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text)) == text


def test_an_incomplete_character_at_the_end_is_dropped():
    ids = BYTE_LEVEL.encode("a\U0001f44d")
    assert BYTE_LEVEL.decode(ids[:-1]) == "a"
    assert BYTE_LEVEL.decode([*ids[:2], *BYTE_LEVEL.encode("b")]) == "a\ufffdb"


def test_pieces_of_every_kind():
    assert SCORED.piece(SCORED.token_id("▁ab")) == b" ab"
    assert SCORED.piece(SCORED.token_id("<0xE2>")) == b"\xe2"
    assert SCORED.piece(SCORED.token_id("<turn>")) == SCORED.piece(0) == SCORED.piece(SCORED.token_id("filler")) == b""
    assert SCORED.piece(SCORED.token_id("<turn>"), special=True) == b"<turn>"
    assert SCORED.piece(0, special=True) == b"<unk>"
    assert BYTE_LEVEL.piece(BYTE_LEVEL.token_id("Ã©")) == "é".encode()
    assert BYTE_LEVEL.piece(BYTE_LEVEL.token_id("Ġab")) == b" ab"


def test_lone_surrogates_are_replacement_characters():
    assert BYTE_LEVEL.encode("a\ud800b") == BYTE_LEVEL.encode("a\ufffdb")
    assert SCORED.encode("\udfff") == SCORED.encode("\ufffd")


def test_ids_and_texts_of_tokens():
    assert SCORED.vocab_size == len(scored()["tokenizer.ggml.tokens"])
    assert SCORED.token_text(SCORED.token_id("▁ab")) == "▁ab"
    assert SCORED.token_id("no such token") is None


# Files that can't be used


def without(meta: dict, key: str) -> dict:
    return {name: value for name, value in meta.items() if name != f"tokenizer.ggml.{key}"}


@pytest.mark.parametrize(
    ("meta", "error", "words"),
    [
        ({}, BadFile, "tokenizer.ggml.model"),
        (without(scored(), "tokens"), BadFile, "tokenizer.ggml.tokens"),
        (without(scored(), "scores"), BadFile, "tokenizer.ggml.scores"),
        (without(byte_level(), "merges"), BadFile, "tokenizer.ggml.merges"),
        (without(characters(), "bos_token_id"), BadFile, "bos"),
        ({**scored(), "tokenizer.ggml.scores": [0.0]}, BadFile, "scores has 1 values for"),
        ({**scored(), "tokenizer.ggml.token_type": [1, 1]}, BadFile, "token_type has 2 values for"),
        (scored(eos_token_id=9999), BadFile, "eos_token_id is 9999"),
        (byte_level(add_bos_token=True), BadFile, "bos"),
        ({**scored(), "tokenizer.ggml.model": "rwkv"}, Unsupported, "'rwkv'"),
        (byte_level("unheard-of"), Unsupported, "'unheard-of'"),
        ({"tokenizer.ggml.model": 7}, BadFile, "tokenizer.ggml.model is 7, a text was expected"),
        (byte_level(pre=[1]), BadFile, r"tokenizer.ggml.pre is \[1\], a text"),
        ({**scored(), "tokenizer.ggml.tokens": "abc"}, BadFile, "tokens is 'abc', a list of texts"),
        ({**scored(), "tokenizer.ggml.tokens": ["a", 5]}, BadFile, r"tokens\[1\] is 5, a text"),
        ({**byte_level(), "tokenizer.ggml.tokens": ["a", "b\udcff"]}, BadFile, r"tokens\[1\] is 'b\\udcff'.*not UTF-8"),
        ({**scored(), "tokenizer.ggml.scores": [0.0, "x"]}, BadFile, r"scores\[1\] is 'x', a number"),
        ({**scored(), "tokenizer.ggml.scores": [math.nan]}, BadFile, r"scores\[0\] is nan, a finite number"),
        ({**scored(), "tokenizer.ggml.scores": 1.0}, BadFile, "scores is 1.0, a list of numbers"),
        (
            {**scored(), "tokenizer.ggml.token_type": [1, 300]},
            BadFile,
            r"token_type\[1\] is 300, at least 0 and at most 6",
        ),
        ({**scored(), "tokenizer.ggml.token_type": ["1"]}, BadFile, r"token_type\[0\] is '1', an integer"),
        (scored(eos_token_id="2"), BadFile, "eos_token_id is '2', an integer"),
        (scored(eot_token_id=2.0), BadFile, "eot_token_id is 2.0, an integer"),
        (scored(bos_token_id=True), BadFile, "bos_token_id is True, an integer"),
        (scored(unknown_token_id=-1), BadFile, "unknown_token_id is -1, but the vocabulary has"),
        (scored(add_bos_token="yes"), BadFile, "add_bos_token is 'yes', true or false"),
        (characters(add_eos_token=1), BadFile, "add_eos_token is 1, true or false"),
        ({**byte_level(), "tokenizer.ggml.merges": [["a", "b"]]}, BadFile, r"merges\[0\] is \['a', 'b'\], a text"),
        ({**byte_level(), "tokenizer.ggml.merges": ["a \udc80"]}, BadFile, r"merges\[0\] .*not UTF-8"),
    ],
)
def test_a_vocabulary_that_can_not_be_used_is_refused_by_name(meta, error, words):
    with pytest.raises(error, match=words) as refused:
        tokenizer_from_metadata(Metadata("the.gguf", meta))
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("the.gguf: ") or "unheard-of" in words


@pytest.mark.parametrize("merges", [["ab"], ["a zz"], ["a b", "ab ab"], ["a b c", "d"], ["a "]])
def test_merges_that_do_not_fit_are_refused(merges):
    tokenizer = tokenizer_from_metadata({**byte_level(), "tokenizer.ggml.merges": merges})
    with pytest.raises(BadFile, match="merge"):
        tokenizer.prepare()


def test_a_token_too_long_for_scored_merges_is_refused():
    meta = scored()
    meta["tokenizer.ggml.tokens"][-1] = "a" * 4001
    with pytest.raises(BadFile, match="4001 characters"):
        tokenizer_from_metadata(meta).prepare()


@pytest.mark.parametrize("text", ["<0xZZ>", "<0x  >", "<0x1>"])
def test_a_byte_token_is_written_in_hexadecimal(text):
    meta = scored()
    meta["tokenizer.ggml.tokens"][3] = text
    with pytest.raises(BadFile, match=text):
        tokenizer_from_metadata(meta)


def kind(tokenizer: Tokenizer) -> str:
    return {"<turn>": "llama", "<tool>": "gpt2", "<|channel>": "gemma4"}[
        next(mark for mark in ("<turn>", "<tool>", "<|channel>") if tokenizer.token_id(mark) is not None)
    ]


# A bound without segmenting


@given(st.text("aab bc\n1é▁\U0001f44d<tagfiler>", max_size=60))
def test_a_text_has_no_fewer_ids_than_the_longest_token_allows(text):
    for tokenizer in (SCORED, BYTE_LEVEL, CHARACTERS):
        longest = max(len(tokenizer.token_text(id).encode()) for id in range(tokenizer.vocab_size))
        least = tokenizer.at_least(text)
        assert (
            len(text.replace("▁", " ").encode()) // longest <= least <= len(tokenizer.encode(text, parse_special=True))
        )


def test_nothing_is_known_of_a_text_whose_bytes_may_go_without_an_id():
    tokenizer = tokenizer_from_metadata(byte_level(without="x"))
    assert tokenizer.at_least("x" * 1000) == 0 and tokenizer.encode("x" * 1000) == []
    assert tokenizer.at_least("xa" * 1000) > 20
