"""The tiny model that sees reads a picture as llama.cpp does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golem_qwen import opening

from golem_core import Columns, open_model
from golem_core.engine.media import GIVEN, IS_TEXT, PLACE, Span, places
from golem_core.media.encoder import MediaEncoder

FIXTURES = Path(__file__).parent / "fixtures"
TOLERANCE = 0.015
"""Of log-probabilities; llama.cpp's tower rounds on the way.  With rows and columns exchanged they are off by 0.02 to
0.04, and with text that goes on behind a picture by the number of its rows by 0.25 to 0.56."""


@pytest.mark.parametrize("number", range(3))
def test_what_follows_is_as_likely_as_for_llama_cpp(number, cpu):
    before, behind, likeliest = json.loads((FIXTURES / "mtmd.json").read_text())[number]
    with open_model(FIXTURES / "qwen35-seeing.gguf") as file, open_model(FIXTURES / "mmproj-seeing.gguf") as beside:
        model = opening.open_qwen35(file).bound(beside)
        assert model.media is not None
        (kind,) = model.media.kinds
        canvas = np.load(FIXTURES / "mmproj-seeing.npz")["canvas"]
        made = MediaEncoder(model.media, cpu).encoded(kind, b"", canvas)
        encode = lambda text: model.tokenizer.encode(text, parse_special=True)
        head = encode(before + "<|vision_start|>")
        tokens = [*head, *[0] * len(made.rows), *encode("<|vision_end|>" + behind)]
        n, span = len(tokens), Span(len(head), made.rows, places=made.places)
        given, is_text = np.zeros((n, 64)), np.ones((n, 64))
        given[span.start : span.stop], is_text[span.start : span.stop] = made.rows, 0
        inputs = {GIVEN: given, IS_TEXT: is_text, PLACE: places([span], 0, n, 3)}
        run = cpu.compile(model.build(), context=64, width=64, scored=1).run
        logits = run(Columns(tokens, np.arange(n), np.zeros(n), [n - 1], inputs))["logits"][0].astype(float)
    logits -= logits.max()
    logits -= np.log(np.exp(logits).sum())
    worst = max(abs(logits[token] - wanted) for token, wanted in likeliest)
    assert worst < TOLERANCE, worst
