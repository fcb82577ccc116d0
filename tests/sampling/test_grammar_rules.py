"""What holds for the rules of any grammar: which are empty, which have a finite text, and how long it takes to tell."""

from __future__ import annotations

import time

import pytest

from golem_core.sampling.grammar.ast import Choice, Grammar, Name, Repeat, Seq, Text, chars, nullable_rules, pruned

A = Text("a")


def test_rules_that_name_each_other_are_empty_or_not():
    rules = {
        "one": Choice((Seq((Name("two"), A)), Name("three"))),
        "two": Seq((Name("one"), Name("three"))),
        "three": Repeat(A, 0, None),
        "four": Seq((Name("two"), Name("five"))),
        "five": Choice((Seq((A, Name("four"))), A)),
    }
    assert nullable_rules(rules) == {"one", "two", "three"}


def test_what_no_finite_text_follows_is_cut():
    rules = {
        "root": Choice((Name("endless"), Seq((A, Name("more"))), chars())),
        "endless": Seq((A, Name("endless"))),
        "more": Choice((A, Seq((A, Name("more"))), Seq((A, Name("endless"))))),
        "unused": A,
    }
    found = pruned(Grammar(rules))
    assert found is not None
    assert found.rules == {
        "root": Choice((Seq((A, Name("more"))),)),
        "more": Choice((A, Seq((A, Name("more"))))),
    }
    assert pruned(Grammar({"root": Name("endless"), "endless": rules["endless"]})) is None


@pytest.mark.parametrize("turned", [False, True])
def test_a_long_chain_of_rules_is_read_once(turned):
    count = 4000
    rules = {f"r{n}": Choice((Seq((A, Name(f"r{n + 1}"))), Name(f"r{n + 1}"))) for n in range(count)}
    rules = {"root": Name("r0"), **rules, f"r{count}": Repeat(A, 0, None)}
    if turned:
        rules = dict(reversed(rules.items()))
    start = time.process_time()
    assert len(nullable_rules(rules)) == count + 2
    found = pruned(Grammar(rules))
    assert found is not None and len(found.rules) == count + 2
    assert time.process_time() - start < 5, "rule by rule it would be minutes"
