"""The small projectors of every family that lies here make on Vulkan the rows that they make on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core import ChatModel, Columns, GolemError, open_model, plugins
from golem_core.cpu.device import CpuDevice
from golem_core.engine.media import GIVEN, IS_TEXT, PLACE, Span, places
from golem_core.media.encoder import MediaEncoder

ROOT = Path(__file__).parents[3]
PROJECTORS = sorted(ROOT.glob("*/*/tests/fixtures/mmproj*.gguf"))
TOLERANCE = 1e-2
"""Of the largest number of a row: Vulkan multiplies in float16 where many columns are at hand."""


def bound(path: Path) -> ChatModel:
    """A model beside the projector that it goes with."""
    for beside in sorted(path.parent.glob("*.gguf")):
        if beside.name.startswith("mmproj"):
            continue
        file = open_model(beside)
        model = plugins.architecture(file.architecture).open(file)
        try:
            return model.bound(open_model(path))
        except (GolemError, AttributeError):
            file.close()
    raise AssertionError(f"{path}: no model beside it takes it")


@pytest.fixture(scope="module")
def cpu():
    opened = CpuDevice(threads=2, kv="f32")
    yield opened
    opened.close()


@pytest.mark.parametrize("path", PROJECTORS, ids=lambda path: path.stem)
def test_rows_are_the_cpus(device, cpu, path):
    media = bound(path).media
    assert media is not None
    ours, theirs = MediaEncoder(media, device), MediaEncoder(media, cpu)
    dice = np.random.default_rng(8)
    smooth = np.cumsum(dice.normal(0, 0.02, 20_000)).astype(np.float32)
    made = {"image": dice.integers(0, 256, (66, 95, 3), np.uint8), "audio": np.sin(50 * smooth)}
    for kind in media.kinds:
        want = theirs.rows(kind, b"", made[kind.name])
        for content in (b"first", b"again") if kind.name == "audio" else (b"first",):  # states begin anew for each
            got = ours.rows(kind, content, made[kind.name])
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max(), kind.name


@pytest.mark.parametrize("path", PROJECTORS, ids=lambda path: path.stem)
def test_logits_after_rows_are_the_cpus(device, cpu, path):
    """Text, a picture's rows, and text, read in two passes."""
    model = bound(path)
    assert model.media is not None
    n, place, width = 40, slice(7, 27), model.media.width
    dice = np.random.default_rng(9)
    tokens, last = dice.integers(0, model.vocab_size, n), np.arange(n)
    given, is_text = np.zeros((n, width)), np.ones((n, width))
    given[place], is_text[place], tokens[place] = dice.normal(0, 8, (20, width)), 0, 0
    if any(kind.together for kind in model.media.kinds):
        last[place] = place.stop - 1
    axes = model.media.axes
    grid = np.stack([np.zeros(20), *np.divmod(np.arange(20), 5)], 1).astype(int)[:, :axes]
    stands = places([Span(place.start, given[place], places=grid if axes else None)], 0, n, axes)
    found = []
    for each in (device, cpu):
        run = each.compile(model.media.build(), context=64, width=32, scored=32).run
        logits = []
        for part in (slice(0, 28), slice(28, n)):
            inputs = {GIVEN: given[part], IS_TEXT: is_text[part]} | ({PLACE: stands[part]} if axes else {})
            at = np.arange(n)[part]
            columns = Columns(tokens[part], at, np.zeros(len(at)), np.arange(len(at)), inputs, last=last[part])
            logits.append(run(columns)["logits"].copy())
        found.append(np.concatenate(logits))
    off = np.abs(found[0] - found[1]).max() / np.abs(found[1]).max()
    assert off <= 3 * TOLERANCE, "keys and values in float16 alone make a hundredth, in the most sensitive model"
