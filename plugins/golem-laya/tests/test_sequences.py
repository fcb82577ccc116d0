"""Sequences: what stands where, what is cut, and what no longer fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from golem_laya.questions import BadQuestion, Question
from golem_laya.sequences import Budget
from tokenizers import Tokenizer

CLS, SEP, MASK = 1, 2, 3


class Words:
    """A token for each letter, so that lengths can be read off."""

    start, end, mark = CLS, SEP, MASK

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def first(self, text: str, count: int) -> list[int]:
        return self.encode(text)[:count]


def question(options: list[str], head: str = "H" * 300) -> Question:
    labels = tuple(map(str, range(len(options))))
    return Question("q", "choice", head, tuple(options), labels, {})


def sequence(budget: Budget, options: list[str], head: str = "H" * 300, state: str = "S" * 2000):
    return budget.sequence(question(options, head), Words(), Words().encode(state))


def test_a_short_question_is_fed_whole():
    found = sequence(Budget(512, 192), ["ab", "c"], "head", "state")
    letters = "".join({CLS: "<", SEP: "|", MASK: "*"}.get(each, chr(each)) for each in found.ids)
    assert letters == "<head|*ab*c|state|"
    assert [letters[mark] for mark in found.marks] == ["*", "*"]


@pytest.mark.parametrize(
    ("budget", "options", "each", "head"),
    [
        (Budget(512, 192), 3, 49, 45),
        (Budget(512, 192), 4, 44, 16),
        (Budget(512, 192), 10, 17, 22),
        (Budget(512, 192), 60, 4, 8),
        (Budget(1024, 256), 4, 49, 60),
        (Budget(1024, 256), 5, 48, 16),
        (Budget(1024, 256), 6, 40, 16),
    ],
)
def test_long_options_share_what_the_head_leaves(budget, options, each, head):
    found = sequence(budget, ["O" * 100] * options)
    assert found.ids.count(ord("H")) == head
    assert found.marks == [head + 2 + i * each for i in range(options)]
    assert len(found.ids) == budget.whole and found.ids[-1] == SEP


@pytest.mark.parametrize(("budget", "most"), [(Budget(512, 192), 126), (Budget(1024, 256), 254)])
def test_the_most_options_that_fit(budget, most):
    found = sequence(budget, ["O" * 100] * most)
    assert max(found.marks) < budget.whole == len(found.ids)
    with pytest.raises(BadQuestion, match=f'question "q": its {most + 1} options do not fit into {budget.whole}'):
        sequence(budget, ["O" * 100] * (most + 1))


def test_the_state_is_cut_at_its_end():
    found = sequence(Budget(64, 32), ["a", "b"], "head", "0123456789" * 10)
    assert len(found.ids) == 64 and found.ids[-1] == SEP
    assert "".join(map(chr, found.ids[11:-1])).startswith("0123456789")


def test_the_words_of_the_checkpoint(name, checkpoint):
    """The mark's own text is a space; other marks typed into a text count as what they are."""
    tokens = checkpoint.tokens
    mark, end = ("[MASK]", "[SEP]") if name == "english" else ("<mask>", "<eos>")
    assert tokens.mark not in tokens.encode(f"a{mark}b {mark}")
    assert tokens.encode(f"a{mark}b") == tokens.encode("a b")
    assert tokens.encode(f"a{end}b").count(tokens.end) == 1
    assert tokens.encode("\ud800") == tokens.encode("�")


def test_tokens_are_the_librarys(name, checkpoint):
    path = Path(__file__).parent / "fixtures" / name / "tokenizer" / "tokenizer.json"
    library = Tokenizer.from_file(str(path))
    texts = [
        "L'été à Paris",
        "  two  and" + " " * 30 + "thirty",
        "\ttabs\n\nlines",
        "I'll don't",
        "3.14159",
        "日本語 🦊",
        "{}",
    ]
    for text in [*texts, "", " ", "x" * 1000]:
        assert checkpoint.tokens.encode(text) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", ["Which team? " * 3000, "a" * 30_000, "ab\n" * 9000, " " * 20_000, "short", ""])
def test_the_beginning_of_a_long_text_is_read_as_in_the_whole(checkpoint, text):
    assert checkpoint.tokens.first(text, 100) == checkpoint.tokens.encode(text)[:100]


def test_more_options_than_a_sequence_has_places_are_not_read():
    with pytest.raises(BadQuestion, match="its 600 options do not fit"):
        Budget(512, 192).sequence(question(["a"] * 600), None, [])


@pytest.mark.parametrize("count", [8, 48, 100])
@pytest.mark.parametrize("text", ["Which team? " * 3000, "x" * 30_000, " " * 20_000 + "a b", "日本語 " * 5000])
def test_any_number_of_first_tokens_is_read_as_in_the_whole(checkpoint, text, count):
    assert checkpoint.tokens.first(text, count) == checkpoint.tokens.encode(text)[:count]


def test_of_long_heads_and_options_no_more_is_read_than_is_fed(checkpoint, monkeypatch):
    tokens, read = checkpoint.tokens, []
    encode = tokens.encode
    monkeypatch.setattr(tokens, "encode", lambda text: read.append(len(text)) or encode(text))
    budget = Budget(512, 192)
    asked = question(["a label " * 50_000, "another " * 50_000], "What is it? " * 50_000)
    found = budget.sequence(asked, tokens, [])
    assert sum(read) < 30_000
    head, options = encode(asked.head), [encode(text)[:48] for text in asked.options]
    ids = [tokens.start, *head[: 192 - 2 * 49], tokens.end, tokens.mark, *options[0], tokens.mark, *options[1]]
    assert found.ids == [*ids, tokens.end, tokens.end]
