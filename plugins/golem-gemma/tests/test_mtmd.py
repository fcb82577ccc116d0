"""The tiny models read pictures and recordings as llama.cpp does, but for its convolutions in float16."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golem_gemma import gemma3, gemma4, opening

from golem_core import Columns, open_model
from golem_core.engine.media import GIVEN, IS_TEXT
from golem_core.media.encoder import MediaEncoder

FIXTURES = Path(__file__).parent / "fixtures"
PAIRS = {
    "mmproj-e2b": "gemma4-e2b", "mmproj-12b": "gemma4-12b", "mmproj-unified": "gemma4-12b", "mmproj-gemma3": "gemma3",
}  # fmt: skip
TOLERANCES = {"mmproj-e2b": 0.5, "mmproj-12b": 0.5, "mmproj-unified": 0.05, "mmproj-gemma3": 0.01}
"""Of log-probabilities.  A picture whose rows do not see each other, where they should, is off by 2.5 and more."""


@pytest.mark.parametrize("name", list(PAIRS))
def test_what_follows_is_as_likely_as_for_llama_cpp(name, cpu):
    file = open_model(FIXTURES / f"{PAIRS[name]}.gguf")
    opened = opening.open_gemma3 if file.architecture == "gemma3" else opening.open_gemma4
    model = opened(file).bound(open_model(FIXTURES / f"{name}.gguf"))
    assert model.media is not None
    if file.architecture == "gemma3":
        graph = gemma3.build(gemma3.Gemma3Config.read(file, model.vocab_size), file.weights, True)
    else:
        # llama.cpp tells the small models by their width, which no tiny one has: rows of every picture see each other.
        graph = gemma4.build(gemma4.Gemma4Config.read(file, model.vocab_size), file.weights, True, True)
    run = cpu.compile(graph, context=128, width=128, scored=1).run
    encoder, held = MediaEncoder(model.media, cpu), np.load(FIXTURES / f"{name}.npz")
    encode = model.tokenizer.encode
    for before, what, behind, likeliest in json.loads((FIXTURES / "mtmd.json").read_text())[name]:
        kind = model.media.kind("image" if what == "picture" else "audio")
        assert kind is not None
        rows = encoder.rows(kind, what.encode(), held["canvas" if what == "picture" else "samples"])
        head = [model.tokenizer.bos, *encode(before), *kind.begin]
        tokens = [*head, *([0] * len(rows)), *kind.end, *encode(behind)]
        n, place = len(tokens), slice(len(head), len(head) + len(rows))
        given, is_text, last = np.zeros((n, 64)), np.ones((n, 64)), np.arange(n)
        given[place], is_text[place] = rows, 0
        if what == "picture":
            last[place] = place.stop - 1
        inputs = {GIVEN: given, IS_TEXT: is_text}
        logits = run(Columns(tokens, np.arange(n), np.zeros(n), [n - 1], inputs, last=last))["logits"][0].astype(float)
        logits -= logits.max()
        logits -= np.log(np.exp(logits).sum())
        assert max(abs(logits[token] - wanted) for token, wanted in likeliest) < TOLERANCES[name]
