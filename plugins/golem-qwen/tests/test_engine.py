"""Conversations through the engine: what it draws, and how it goes back in a model that cannot be rewound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import golem_core

FIXTURES = Path(__file__).parent / "fixtures"
MODELS = ["qwen3-tied", "qwen35-tied"]


@pytest.fixture(params=MODELS)
def served(request):
    with golem_core.load(FIXTURES / f"{request.param}.gguf", context=1024, slots=2, kv="f32", width=64) as model:
        yield model


def drawn(model, prompt, count: int = 5):
    """(tokens, how many of the prompt were held already) of a greedy answer."""
    answer = model.generate(prompt, max_tokens=count, temperature=0.0, ignore_eos=True)
    return [token.id for token in answer], answer.generation.cached_tokens


def likeliest(model, prompt, count: int = 5) -> list[int]:
    """The same by the numpy reference, every token read with all before it."""
    tokens = list(prompt)
    for _ in range(count):
        n = len(tokens)
        columns = golem_core.Columns(tokens, np.arange(n), np.zeros(n), [n - 1])
        logits = golem_core.Reference(model.model.build(), context=n).run(columns)["logits"][0]
        logits[list(model.model.suppress)] = -np.inf
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def prompts(*seeds: int):
    """Prompts of 300 tokens, the first 280 the same."""
    shared = np.random.default_rng(0).integers(0, 256, 280).tolist()
    return [shared + np.random.default_rng(seed).integers(0, 256, 20).tolist() for seed in seeds]


def test_the_likeliest_tokens_are_drawn(served):
    (prompt,) = prompts(1)
    tokens, _ = drawn(served, prompt[:40])
    assert tokens == likeliest(served, prompt[:40])


def test_a_prompt_that_parts_early_is_answered_as_if_nothing_had_been_held(served):
    first, second, third = prompts(1, 2, 3)
    answers = [drawn(served, prompt)[0] for prompt in (first, second)]
    again, held = drawn(served, third)
    assert held == 280
    for prompt, tokens in zip((first, second, third), [*answers, again], strict=True):
        with golem_core.load(served.model.file.path, context=512, kv="f32", width=64) as fresh:
            assert drawn(fresh, prompt) == (tokens, 0)


def test_a_conversation_goes_on_from_what_is_held(served):
    (prompt,) = prompts(1)
    tokens, _ = drawn(served, prompt)
    more, held = drawn(served, [*prompt, *tokens, 5])
    assert held >= len(prompt) + len(tokens) - 1
    assert more == likeliest(served, [*prompt, *tokens, 5], 1) + more[1:]
