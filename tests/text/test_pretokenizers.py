"""Splitters cut words as the vocabularies' publications say."""

from __future__ import annotations

import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from golem_core.errors import Unsupported
from golem_core.text.pretokenizers import SPLITTERS, splitter


def words(name: str, text: str) -> list[str]:
    steps = Sequence([Split(Regex(pattern), "isolated") for pattern in splitter(name).patterns])
    return [word for word, _ in steps.pre_tokenize_str(text)]


SAMPLE = "I'll pay $1234,50 -- it'S Ünïcödé!\n\n  तो  end \t "


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", "I|'ll| pay| $|1234|,|50| --| it|'|S| Ünïcödé|!|\n\n | त|ो| | end| \t "),
        ("smollm", "I|'ll| pay| $|1|2|3|4|,|5|0| --| it|'|S| Ünïcödé|!|\n\n | त|ो| | end| \t "),
        ("llama-bpe", "I|'ll| pay| $|123|4|,|50| --| it|'S| Ünïcödé|!\n\n| | त|ो| | end| \t "),
        ("qwen2", "I|'ll| pay| $|1|2|3|4|,|5|0| --| it|'S| Ünïcödé|!\n\n| | त|ो| | end| \t "),
        ("qwen35", "I|'ll| pay| $|1|2|3|4|,|5|0| --| it|'S| Ünïcödé|!\n\n| | तो| | end| \t "),
        ("tekken", "I|'ll| pay| $|1|2|3|4|,|5|0| --| it|'S| Ünïcödé|!\n\n| | तो| | end| \t "),
        ("gpt-4o", "I'll| pay| $|123|4|,|50| --| it'S| Ünïcödé|!\n\n| | तो| | end| \t "),
        ("deepseek-v3", "I|'ll| pay| $|123|4|,|50| --| it|'S| Ünïcödé|!\n\n| | तो| | end| \t "),
        ("default", "I|'|ll| pay| |$|123|4|,|50| |--| it|'|S| Ünïcödé|!|\n\n | त|ो| | end| \t "),
    ],
)
def test_words(name, expected):
    assert words(name, SAMPLE) == expected.split("|")


@pytest.mark.parametrize("name", SPLITTERS)
def test_splitting_loses_nothing(name):
    assert "".join(words(name, SAMPLE)) == SAMPLE


def test_capitals_begin_a_word_in_some():
    assert words("tekken", "aCamelCase.x/\n") == ["a", "Camel", "Case", ".x", "/\n"]
    assert words("qwen2", "aCamelCase.x/\n") == ["aCamelCase", ".x", "/\n"]


def test_a_letter_that_folds_to_s_is_no_contraction():
    assert words("qwen2", "a'ſb") == ["a", "'ſb"]


def test_an_unknown_name_is_refused():
    with pytest.raises(Unsupported, match="'nobody'"):
        splitter("nobody")
