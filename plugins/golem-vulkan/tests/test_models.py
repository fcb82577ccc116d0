"""The small models of every family that lies here give on Vulkan what they give on the CPU, however they are asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core import ChatModel, Columns, open_model, plugins
from golem_core.cpu.device import CpuDevice

ROOT = Path(__file__).parents[3]
FIXTURES = sorted(path for path in ROOT.glob("*/*/tests/fixtures/*.gguf") if not path.name.startswith("mmproj"))
TOLERANCE = 1e-2
"""Of the largest logit: Vulkan keeps keys and values in float16."""


@pytest.fixture(scope="module")
def cpu():
    opened = CpuDevice(threads=2, kv="f32")
    yield opened
    opened.close()


@pytest.fixture(params=FIXTURES, ids=lambda path: path.stem)
def model(request):
    with open_model(request.param) as file:
        opened = plugins.architecture(file.architecture).open(file)
        if not isinstance(opened, ChatModel):
            pytest.skip(f"{request.param.stem} is no conversation model")
        yield opened


def columns(parts: list[tuple[int, int, np.ndarray]]) -> Columns:
    """A pass of (slot, first position, tokens), every column scored."""
    token = np.concatenate([tokens for _, _, tokens in parts])
    position = np.concatenate([np.arange(first, first + len(tokens)) for _, first, tokens in parts])
    slot = np.repeat([slot for slot, _, _ in parts], [len(tokens) for _, _, tokens in parts])
    return Columns(token, position, slot, np.arange(len(token)))


def compiled(device, model, slots: int = 2):
    return device.compile(model.build(), slots=slots, context=64, width=24, scored=24)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


def test_logits_are_the_cpus(device, cpu, model):
    """A prompt of one conversation, then one of another beside the first's next token, then a token of each."""
    tokens = np.random.default_rng(3).integers(0, model.vocab_size, 40)
    passes = [
        columns([(0, 0, tokens[:17])]),
        columns([(0, 17, tokens[17:18]), (1, 0, tokens[18:27])]),
        columns([(1, 9, tokens[27:28]), (0, 18, tokens[28:29])]),
    ]
    ours, theirs = compiled(device, model), compiled(cpu, model)
    for each in passes:
        assert_close(ours.run(each)["logits"], theirs.run(each)["logits"])


def test_conversations_do_not_see_each_other(device, model):
    """A conversation gives the same logits alone and beside one that begins, ends and begins anew."""
    dice = np.random.default_rng(4)
    tokens, other = dice.integers(0, model.vocab_size, 12), dice.integers(0, model.vocab_size, 40)
    alone, shared = compiled(device, model), compiled(device, model)
    start = 0
    for length, anew in ((5, 0), (1, 4), (3, 0), (2, 4), (1, 8)):
        mine = (1, start, tokens[start : start + length])
        want = alone.run(columns([mine]))["logits"].copy()
        if anew == 0:
            shared.restore(0, None)
        beside = (0, anew, other[start : start + 4])
        got = shared.run(columns([beside, mine]))["logits"][4:]
        assert_close(got, want)
        start += length


def test_a_saved_conversation_goes_on_where_it_was(device, model):
    tokens = np.random.default_rng(5).integers(0, model.vocab_size, 20)
    run = compiled(device, model)
    if not run.saved_bytes:
        pytest.skip("it has no states that can't be rewound")
    run.run(columns([(0, 0, tokens[:6])]))
    saved = run.save(0)
    want = run.run(columns([(0, 6, tokens[6:9])]))["logits"].copy()
    run.run(columns([(0, 9, tokens[9:])]))
    run.restore(0, saved)
    np.testing.assert_array_equal(run.run(columns([(0, 6, tokens[6:9])]))["logits"], want)
    run.restore(0, None)
    first = run.run(columns([(0, 0, tokens[:6])]))["logits"].copy()
    run.restore(1, None)
    np.testing.assert_array_equal(run.run(columns([(1, 0, tokens[:6])]))["logits"], first)


def test_tentative_columns_that_are_not_kept_leave_nothing(device, model):
    tokens = np.random.default_rng(6).integers(0, model.vocab_size, 20)
    tried, plain = (
        device.compile(model.build(), slots=2, context=64, width=24, scored=24, tentative=4) for _ in range(2)
    )
    if not tried.saved_bytes:
        pytest.skip("it has no states that can't be rewound")
    for run in (tried, plain):
        run.run(columns([(0, 0, tokens[:3]), (1, 0, tokens[:5])]))
    at = 5
    for count, kept in ((4, 1), (3, 2), (2, 2), (1, 1), (4, 3)):
        guesses = tokens[at : at + count].copy()
        guesses[kept:] = (guesses[kept:] + 1) % model.vocab_size
        position, slot = np.arange(at, at + count), np.ones(count, np.int64)
        got = tried.run(Columns(guesses, position, slot, np.arange(count), tentative=True))["logits"][:kept].copy()
        tried.keep(1, kept)
        assert_close(got, plain.run(columns([(1, at, tokens[at : at + kept])]))["logits"])
        at += kept
    with pytest.raises(ValueError, match="4 tentative columns, not 5"):
        tried.run(Columns(tokens[:5], np.arange(5), np.zeros(5), [4], tentative=True))
