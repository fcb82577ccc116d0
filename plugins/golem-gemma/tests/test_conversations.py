"""Conversations over windowed rings on the CPU: what is kept of the last prompt never shows in an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golem_gemma import plugin

from golem_core import SamplingParams, open_model
from golem_core.cpu.device import CpuDevice
from golem_core.engine import Engine, GenerationRequest
from golem_core.sampling import STAGES

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def device(monkeypatch):
    """A CPU whose rings keep no more than the window and one pass, so that short conversations wrap them."""
    monkeypatch.setattr("golem_core.cpu.rings.SPARE", 0)
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


def answer(engine: Engine, prompt: list[int], count: int):
    params = SamplingParams(temperature=0)
    generation = engine.submit(GenerationRequest(prompt, count, params, ignore_eos=True, top_logprobs=1))
    tokens = list(generation)
    return [token.id for token in tokens], [token.logprob for token in tokens], generation


@pytest.mark.parametrize("name", ["gemma3", "gemma4-e2b"])
def test_a_ring_rewound_past_its_wrap_answers_as_a_cold_prompt_for_every_cut(device, name):
    file = open_model(FIXTURES / f"{name}.gguf")
    model = (plugin.open_gemma3 if name == "gemma3" else plugin.open_gemma4)(file)
    dice = np.random.default_rng(1)
    beginning = dice.integers(5, model.vocab_size, 60).tolist()
    went_back = read_again = 0
    with (
        Engine(model, device, context=96, width=16, stages=STAGES) as warm,
        Engine(model, device, context=96, width=16, stages=STAGES) as cold,
    ):
        rings = {(ring.length, ring.window) for ring in warm._runner._pass.rings}
        assert (32, 5) in rings, "the conversations below wrap the ring"
        for cut in range(1, 70):
            drawn, _, _ = answer(warm, beginning, 12)
            held = beginning + drawn[:-1]
            prompt = held[:cut] + dice.integers(5, model.vocab_size, 3).tolist()
            ids, logprobs, generation = answer(warm, prompt, 4)
            cold._pool.slots[0].forget()
            expected, expected_logprobs, fresh = answer(cold, prompt, 4)
            assert fresh.cached_tokens == 0
            assert ids == expected
            np.testing.assert_allclose(logprobs, expected_logprobs, atol=1e-4)
            went_back += generation.cached_tokens == cut
            read_again += generation.cached_tokens < cut
    assert went_back > 20 and read_again > 20
