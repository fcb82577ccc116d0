"""Guessing with the prediction block: answers stay what they are, bit for bit, however many guesses hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golem_qwen import plugin

import golem_core
from golem_core import BadFile, Unsupported
from golem_core.engine import drafting

NAME = "qwen35-tied"
PROMPT = np.random.default_rng(0).integers(0, 256, 300).tolist()


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """Two columns cost what one does, however busy the machine is."""
    monkeypatch.setattr(drafting, "cost", lambda compiled, columns: 1.0)


@pytest.fixture
def half_right(monkeypatch):
    """half_right(tokens): guesses are these where they are not even, whatever the block says, which is asked all the
    same."""
    told: list[int] = []
    guess = drafting.Drafter.guess

    def replaced(self, conversation, count):
        asked = guess(self, conversation, count)
        assert len(asked) == count
        at = conversation.position + 1
        truth = told[at : at + count]
        return [token if token % 2 else own for token, own in zip(truth, asked, strict=False)] or asked

    monkeypatch.setattr(drafting.Drafter, "guess", replaced)

    def tell(tokens: list[int]) -> None:
        told[:] = tokens

    return tell


def drawn(model, prompt, temperature: float, count: int = 24, **settings):
    """(tokens with texts and log-probabilities, the facts) of an answer."""
    answer = model.generate(prompt, max_tokens=count, temperature=temperature, seed=3, ignore_eos=True, **settings)
    return list(answer), answer.generation


def opened(file, draft_n: int | None):
    return golem_core.load(file.path, context=1024, slots=2, threads=2, width=64, draft_n=draft_n)


@pytest.mark.parametrize("most", [1, 3])
def test_answers_are_the_same_with_guesses_and_without(predicting, half_right, most):
    file = predicting(NAME)
    prompts = [PROMPT[:20], PROMPT, [*PROMPT[:280], 7, 8, 9], PROMPT[:100]]
    cases = [
        (prompt, temperature, settings)
        for prompt in prompts
        for temperature, settings in ((0.0, {}), (0.8, {"repeat_penalty": 1.2}), (1.5, {"stop": ("x",)}))
    ]
    with opened(file, 0) as plain:
        expected = [drawn(plain, prompt, temperature, **settings)[0] for prompt, temperature, settings in cases]
    guessed = confirmed = 0
    with opened(file, most) as model:
        for (prompt, temperature, settings), tokens in zip(cases, expected, strict=True):
            half_right([*prompt, *(token.id for token in tokens)])
            got, facts = drawn(model, prompt, temperature, **settings)
            assert got == tokens
            guessed, confirmed = guessed + facts.guessed, confirmed + facts.confirmed
    assert 0.2 * guessed < confirmed < 0.9 * guessed


def test_a_grammar_holds_with_guesses_too(predicting, half_right):
    file = predicting(NAME)
    settings = {"grammar": 'root ::= ("a" | "b" [0-9])+', "logit_bias": {}}
    with opened(file, 0) as plain:
        tokens, _ = drawn(plain, PROMPT[:20], 1.0, **settings)
    half_right([*PROMPT[:20], *(token.id for token in tokens)])
    with opened(file, 2) as model:
        got, facts = drawn(model, PROMPT[:20], 1.0, **settings)
    assert got == tokens
    assert facts.guessed > 0


def test_a_block_that_copies_the_trunk_guesses_what_it_would_draw(predicting):
    """The guesses themselves are what the block gives for the rows of the trunk, whatever the passes were."""
    file = predicting(NAME)
    with opened(file, 1) as model:
        drafter, asked = model.engine._drafter, []
        assert drafter is not None
        guess = drafter.guess
        drafter.guess = lambda conversation, count: asked.append(guess(conversation, count)) or asked[-1]  # type: ignore[method-assign, func-returns-value]
        tokens, _ = drawn(model, PROMPT[:70], 0.0, count=8)
        source = model.model.drafting
        assert source is not None
        known = [*PROMPT[:70], *(token.id for token in tokens)]
        n = len(known) - 1
        places, zeros = np.arange(n), np.zeros(n)
        rows = golem_core.Reference(source.build(), context=n + 1).run(
            golem_core.Columns(np.array(known[:n]), places, zeros, [])
        )["hidden"]
        guesses = golem_core.Reference(source.guess(), context=n + 1).run(
            golem_core.Columns(np.array(known[1:]), places, zeros, places, inputs={"hidden": rows})
        )["logits"]
        guesses[:, list(model.model.suppress)] = -np.inf
        first = len(PROMPT[:70]) - 1
        wanted = guesses.argmax(1)[first:].tolist()
        same = sum([guess] == each for guess, each in zip(wanted, asked, strict=False))
        assert same >= len(asked) - 1, (wanted, asked)  # the device rounds otherwise


def test_a_file_without_the_block_guesses_nothing(load):
    model = plugin.open_qwen35(load(NAME).file)
    assert model.drafting is None
    with pytest.raises(Unsupported, match="-draft-n 2: qwen35-tied has nothing to guess its next tokens with"):
        golem_core.load(Path(model.file.path), context=256, draft_n=2)


def test_by_default_the_file_decides(predicting):
    with golem_core.load(predicting(NAME).path, context=256) as model:
        assert model.engine.draft_n == 1


def test_a_block_that_lacks_a_tensor_is_refused_by_its_name(predicting, load):
    file = predicting(NAME, tensors={f"blk.{load(NAME).config.blocks}.nextn.hnorm.weight": None})
    with pytest.raises(BadFile, match=r"nextn\.hnorm"):
        plugin.open_qwen35(file)
