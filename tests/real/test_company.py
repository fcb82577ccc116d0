"""At temperature 0 a conversation draws the same tokens alone and among seven others, whatever those are at.

Every product, norm and attention adds up a column's numbers in the same order however many columns a pass has, so the
log-probabilities are equal to the last bit.
"""

from __future__ import annotations

import pytest

import golem_core

from . import checkpoints

TEXTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time there was a",
    "1, 2, 3, 4,",
    "Wenn es regnet, dann",
    "The three laws of",
    "To make bread, first",
    "It was a dark and stormy night. " * 90,  # longer than a window and several passes
]


@pytest.mark.parametrize("name", ["gemma", "smollm", "smollm-f16"])
def test_answers_alone_are_those_in_company(name, tmp_path):
    path = checkpoints.gemma() if name == "gemma" else checkpoints.smollm()
    if name.endswith("f16"):
        path = checkpoints.write_f16(path, tmp_path / "f16.gguf")

    def start(model, text, count):
        prompt = model.tokenize(text, special=True)
        return model.generate(prompt, max_tokens=count, temperature=0, ignore_eos=True)

    def drawn(answer):
        return [(token.id, token.logprob) for token in answer]

    # The long prompt is read while the others draw, some longer than others.
    lengths = [16 + 3 * n for n in range(7)] + [4]
    with golem_core.load(path, context=8 * 1024, slots=8, threads=2) as model:
        together = [start(model, text, count) for text, count in zip(TEXTS, lengths, strict=True)]
        company = [drawn(answer) for answer in together]
    with golem_core.load(path, context=1024, threads=2) as model:
        alone = [drawn(start(model, text, count)) for text, count in zip(TEXTS, lengths, strict=True)]
    assert company == alone
