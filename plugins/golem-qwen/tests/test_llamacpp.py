"""Log-probabilities are those that llama.cpp gave for the same files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "llamacpp.json").read_text())
TOLERANCE = 1e-3


def test_log_probabilities_are_llama_cpps(model, compile, columns):
    logits = compile(model.graph()).run(columns(model.tokens))["logits"]
    for length, likeliest in RECORDED[model.name].items():
        row = logits[int(length) - 1]
        logprobs = row - row.max() - np.log(np.exp(row - row.max()).sum())
        ids, expected = zip(*likeliest, strict=True)
        np.testing.assert_allclose(logprobs[list(ids)], expected, atol=TOLERANCE)
        assert logprobs.max() < expected[0] + TOLERANCE
