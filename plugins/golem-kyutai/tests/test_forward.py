"""Codec and language model give what moshi and transformers give, however the sound is cut up."""

from __future__ import annotations

import numpy as np
import pytest
from golem_kyutai import mimi, trunk
from golem_kyutai.codec import Codec, Stretch

from golem_core import Columns, DeviceType, Reference, Unsupported, plugins

WINDOW = 20
"""Of the codec's transformer in the fixtures; a real one sees 250."""
TOLERANCE = 5e-6


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest value expected."""
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def run(graph, device, n: int, inputs, *, tokens=None, sizes=(1000,), slot: int = 0) -> dict[str, np.ndarray]:
    """Outputs of n columns of one stream, in passes of the given sizes, again and again."""
    if device is None:
        compiled = Reference(graph, context=n)
    else:
        compiled = device.compile(graph, slots=slot + 1, context=1 << 40, width=min(n, max(sizes)), scored=n)
    found: dict[str, list[np.ndarray]] = {}
    at, turn = 0, 0
    while at < n:
        size = min(sizes[turn % len(sizes)], n - at)
        turn += 1
        here = slice(at, at + size)
        out = compiled.run(
            Columns(
                np.zeros(size) if tokens is None else tokens[here],
                np.arange(at, at + size),
                np.full(size, slot),
                np.arange(size),
                {name: rows[here] for name, rows in inputs.items()},
            )
        )
        for name, rows in out.items():
            found.setdefault(name, []).append(rows.copy())
        at += size
    return {name: np.concatenate(rows) for name, rows in found.items()}


@pytest.fixture(params=["reference", "cpu"])
def runner(request, device):
    return None if request.param == "reference" else device


@pytest.fixture
def samples(tiny):
    return tiny.sound(40).reshape(40, tiny.FRAME, 1)


@pytest.mark.parametrize("sizes", [(1000,), (1,), (3, 1, 7)], ids=["whole", "streamed", "in-pieces"])
def test_every_waypoint_of_the_codec_is_moshis(checkpoint, expected, samples, runner, sizes):
    codec = checkpoint.mimi
    assert (codec.frame, codec.positions) == (samples.shape[1], 2)
    x = run(mimi.convolutions(codec), runner, 40, {"samples": samples}, sizes=sizes)["y"]
    assert error(x.reshape(80, -1), expected["convolutions"]) < TOLERANCE
    x = run(mimi.transformer(codec, WINDOW), runner, 80, {"x": x.reshape(80, -1)}, sizes=sizes)["y"]
    assert error(x, expected["transformer"]) < TOLERANCE
    out = run(mimi.quantizer(codec), runner, 40, {"x": x.reshape(40, 2, -1)}, sizes=sizes)
    assert error(out["latent"], expected["latents"]) < TOLERANCE
    assert np.array_equal(out["codes"], expected["codes"])


def others() -> list[str]:
    """The devices of other packages that are here."""
    found = []
    for _, kind in plugins.installed().ask("golem_devices", DeviceType):
        try:
            kind.probe()
        except Unsupported:
            continue
        found.append(kind.name)
    return [name for name in found if name != "cpu"]


@pytest.fixture(params=others())
def other(request):
    """A device of another package; a pass of which a validation layer complains fails, where there is one."""
    kind = plugins.device(request.param)
    try:
        opened = kind.open({f"{request.param}-validate": True})
    except Unsupported:
        opened = kind.open({})
    yield opened
    opened.close()


def test_other_devices_run_every_graph(checkpoint, tiny, expected, samples, other):
    """They may keep keys and values in 16 bits, so each graph gets what the one before should give."""
    codec = checkpoint.mimi
    x = run(mimi.convolutions(codec), other, 40, {"samples": samples}, sizes=(3, 1, 7))["y"]
    assert error(x.reshape(80, -1), expected["convolutions"]) < TOLERANCE
    x = run(mimi.transformer(codec, WINDOW), other, 80, {"x": expected["convolutions"]}, sizes=(6, 2))["y"]
    assert error(x, expected["transformer"]) < 3e-3
    out = run(mimi.quantizer(codec), other, 40, {"x": expected["transformer"].reshape(40, 2, -1)}, sizes=(3, 1))
    assert error(out["latent"], expected["latents"]) < TOLERANCE
    assert np.array_equal(out["codes"], expected["codes"])
    text, codes = inputs_of(tiny, expected)
    graph = trunk.build(checkpoint.config, checkpoint.trunk)
    logits = run(graph, other, len(text), {"codes": codes}, tokens=text, sizes=(1,))["logits"]
    assert error(logits, expected["logits"]) < 5e-3


@pytest.mark.parametrize("weights", ["q8_0", "q4_0"])
def test_other_devices_read_encoded_weights_as_the_cpu_does(checkpoint, tiny, expected, device, other, weights):
    text, codes = inputs_of(tiny, expected)
    graph = trunk.build(checkpoint.config, checkpoint.trunk, weights)
    got, want = (
        run(graph, each, len(text), {"codes": codes}, tokens=text, sizes=(1,))["logits"] for each in (other, device)
    )
    assert error(got, want) < 0.03  # both round what they multiply with to 8 bits


def test_a_window_matters(checkpoint, expected, samples, device):
    x = run(mimi.convolutions(checkpoint.mimi), device, 40, {"samples": samples})["y"]
    x = run(mimi.transformer(checkpoint.mimi, WINDOW + 1), device, 80, {"x": x.reshape(80, -1)})["y"]
    differs = np.abs(x - expected["transformer"]).max(1) > 1e-3
    assert not differs[:WINDOW].any() and differs[WINDOW + 1 :].any()


def inputs_of(tiny, expected) -> tuple[np.ndarray, np.ndarray]:
    """The text tokens and the codes that the steps read."""
    n = len(expected["tokens"])
    text = np.concatenate([[tiny.TEXT_CARD], expected["tokens"][:-1]])
    start = np.full((1, tiny.CODEBOOKS), tiny.CARD)
    return text, np.concatenate([start, expected["codes"][: n - 1]]).astype(np.float32)


def test_logits_and_tokens_are_moshis(checkpoint, tiny, expected, runner):
    text, codes = inputs_of(tiny, expected)
    graph = trunk.build(checkpoint.config, checkpoint.trunk)
    logits = run(graph, runner, len(text), {"codes": codes}, tokens=text, sizes=(1,))["logits"]
    assert np.abs(logits - expected["logits"]).max() < 2e-5 and np.abs(expected["logits"]).max() > 10
    assert np.array_equal(logits.argmax(1), expected["tokens"])


@pytest.mark.parametrize(("weights", "tolerance"), [("q8_0", 0.05), ("q4_0", 0.3)])
def test_encoded_weights_come_near(checkpoint, tiny, expected, device, weights, tolerance):
    text, codes = inputs_of(tiny, expected)
    graph = trunk.build(checkpoint.config, checkpoint.trunk, weights)
    logits = run(graph, device, len(text), {"codes": codes}, tokens=text, sizes=(1,))["logits"]
    assert 1e-4 < error(logits, expected["logits"]) < tolerance
    rounded = Reference(graph, context=len(text), round_input=device.round_input)
    columns = Columns(text[:1], [0], [0], [0], {"codes": codes[:1]})
    assert error(logits[:1], rounded.run(columns)["logits"]) < 2e-3


def test_streams_are_encoded_together_as_each_alone(checkpoint, tiny, device):
    sounds = [tiny.sound(40, seed).reshape(40, -1) for seed in (5, 6, 7)]
    alone = []
    for sound in sounds:
        codec = Codec(checkpoint.mimi, device, slots=1, width=8)
        alone.append(np.concatenate([codec.encode([Stretch(0, i, sound[i : i + 8])])[0] for i in range(0, 40, 8)]))
    codec = Codec(checkpoint.mimi, device, slots=3, width=8)
    dice, at = np.random.default_rng(0), [0, 0, 0]
    found = [[], [], []]
    while min(at) < 40:
        some = [i for i in dice.permutation(3) if at[i] < 40 and dice.random() < 0.7]
        stretches = [Stretch(int(i), at[i], sounds[i][at[i] : at[i] + int(dice.integers(1, 3))]) for i in some]
        for i, codes, stretch in zip(some, codec.encode(stretches) if some else [], stretches, strict=True):
            found[i].append(codes)
            at[i] += len(stretch.samples)
    for one, several in zip(alone, found, strict=True):
        assert np.array_equal(one, np.concatenate(several))
    codec.begin(1)
    assert np.array_equal(codec.encode([Stretch(1, 0, sounds[0][:8])])[0], alone[0][:8])
