"""Answers under a grammar in the engine: alone, beside others, and however they are read."""

from __future__ import annotations

import asyncio
import re

import pytest
from fake_device import END, Tokenizer, continuation, engine, greedy, ids

from golem_core.engine import GenerationRequest
from golem_core.errors import GolemError
from golem_core.sampling import SamplingParams
from golem_core.sampling.grammar import Constraint, compile_gbnf

# Tokens 2, 4 and 6 are letters, and 90, 91 and 92 the bytes of a character.
GRAMMAR = 'root ::= ("\\u0102" "\\u0104"{1,4} "€"){1,3} "\\u0106"'
FOLLOWS = re.compile("(\u0102\u0104{1,4}€){1,3}\u0106")


@pytest.fixture(scope="module")
def constraint():
    return Constraint(compile_gbnf(Tokenizer(), GRAMMAR))


def request(number: int, constraint: Constraint, **sampling) -> GenerationRequest:
    params = SamplingParams(**{"temperature": 2.0, "seed": number, "grammar": constraint} | sampling)
    return GenerationRequest([2 + number, 5], 40, params)


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_an_answer_follows_its_grammar_and_ends_with_it(constraint, temperature):
    with engine() as running:
        for number in range(10):
            generation = running.submit(request(number, constraint, temperature=temperature))
            tokens = list(generation)
            assert FOLLOWS.fullmatch("".join(token.text for token in tokens))
            assert tokens[-1].id == END and generation.finish_reason == "stop"


def test_answers_with_and_without_grammars_do_not_disturb_each_other(constraint):
    with engine() as running:
        alone = [ids(running.submit(request(number, constraint))) for number in range(6)]
    with engine(slots=3, context=192) as running:
        constrained, free = [], []
        for number in range(6):
            constrained.append(running.submit(request(number, constraint)))
            free.append(running.submit(greedy([2 + number, 7], 12)))
        assert [ids(generation) for generation in constrained] == alone
        for number, generation in enumerate(free):
            assert ids(generation) == continuation([2 + number, 7], 12, 8)


def test_an_answer_reads_the_same_in_a_task_and_in_a_thread(constraint):
    async def read(generation):
        return [token.text async for token in generation]

    with engine() as running:
        for number in range(4):
            streamed = asyncio.run(read(running.submit(request(number, constraint))))
            assert streamed == [token.text for token in running.submit(request(number, constraint))]


def test_a_budget_cuts_an_answer_short(constraint):
    with engine() as running:
        generation = running.submit(GenerationRequest([5], 3, SamplingParams(temperature=0, grammar=constraint)))
        assert len(ids(generation)) == 3
    assert generation.finish_reason == "length"


def test_a_grammar_that_has_no_way_on_fails_its_own_request_only():
    impossible = Constraint(compile_gbnf(Tokenizer(), 'root ::= "\\u0102" "x"'))  # no token has an x
    with engine(slots=2, context=128) as running:
        failing = running.submit(request(1, impossible))
        other = running.submit(greedy([9], 10))
        with pytest.raises(GolemError, match="grammar"):
            list(failing)
        assert ids(other) == continuation([9], 10, 8)


def test_suppressed_tokens_stay_suppressed(constraint):
    with engine(suppress=(4,)) as running, pytest.raises(GolemError, match="no token is left"):
        list(running.submit(request(1, constraint)))


def test_nothing_but_ends_follows_where_ends_are_ignored(constraint):
    asked = GenerationRequest([5], 40, SamplingParams(temperature=0, grammar=constraint), ignore_eos=True)
    with engine() as running:
        tokens = list(running.submit(asked))
    assert len(tokens) == 40 and tokens[-1].id == END
    assert FOLLOWS.fullmatch("".join(token.text for token in tokens))
