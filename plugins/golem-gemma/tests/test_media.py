"""Pictures and recordings become the rows that transformers makes of them, and the model reads them as it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from golem_gemma import audio, opening, siglip, sound, unified, vision

from golem_core import BadFile, BadRequest, Columns, Graph, Reference, Unsupported, Weight, Weights, open_model
from golem_core.engine.media import GIVEN, IS_TEXT
from golem_core.media.encoder import MediaEncoder

FIXTURES = Path(__file__).parent / "fixtures"
PAIRS = {
    "mmproj-e2b": "gemma4-e2b", "mmproj-12b": "gemma4-12b", "mmproj-unified": "gemma4-12b", "mmproj-gemma3": "gemma3",
}  # fmt: skip
TOLERANCE = 1e-4


def error(got: np.ndarray, expected: np.ndarray) -> float:
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


class Bound:
    """A tiny model with a projector, and what transformers computes with both."""

    def __init__(self, name: str):
        self.name = name
        self.expected = dict(np.load(FIXTURES / f"{name}.npz"))
        self.projector = open_model(FIXTURES / f"{name}.gguf")
        file = open_model(FIXTURES / f"{PAIRS[name]}.gguf")
        opened = opening.open_gemma3 if file.architecture == "gemma3" else opening.open_gemma4
        self.model = opened(file).bound(self.projector)
        assert self.model.media is not None
        self.media = self.model.media

    def kind(self, name: str):
        kind = self.media.kind(name)
        assert kind is not None
        return kind


@pytest.fixture(params=list(PAIRS))
def bound(request):
    return Bound(request.param)


class Referee:
    """Runs the graphs of a kind by their numpy meanings."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, name: str, columns: Columns) -> dict[str, np.ndarray]:
        graph = self.kind.graphs[name]
        return Reference(graph.build(), slots=graph.runs, context=graph.columns).run(columns)


@pytest.mark.parametrize("name", ["mmproj-e2b", "mmproj-12b"])
def test_every_block_of_the_tower_gives_what_transformers_gives(name, compile):
    from golem_core import Keys

    bound = Bound(name)
    tower, weights = vision.Tower.read(Keys(bound.projector), 64), bound.projector.weights
    patches, col, row = tower.pixels.patches(tower.pixels.fitted(bound.expected["canvas"]))
    g = Graph()
    for i, state in enumerate(vision.hidden_states(g, tower, weights)):
        g.output(f"block {i}", state)
    made = compile(g, context=len(patches), width=len(patches)).run(vision.columns(tower, patches, col, row))
    order = row * (col.max() + 1) + col
    for i, expected in enumerate(bound.expected["blocks"]):
        assert error(made[f"block {i}"], expected[order]) < TOLERANCE, i


def test_every_block_of_gemma_3_s_tower_gives_what_transformers_gives(compile):
    from golem_core import Keys

    bound = Bound("mmproj-gemma3")
    tower, weights = siglip.Tower.read(Keys(bound.projector), 64), bound.projector.weights
    patches, number = siglip.cut(tower, bound.expected["canvas"])
    n, g = len(patches), Graph()
    for i, state in enumerate(siglip.hidden_states(g, tower, weights)):
        g.output(f"block {i}", state)
    inputs = {"patch": patches, "place": number[:, None]}
    made = compile(g, context=n, width=n).run(Columns(np.zeros(n), np.arange(n), np.zeros(n), np.arange(n), inputs))
    for i, expected in enumerate(bound.expected["blocks"]):
        assert error(made[f"block {i}"], expected[number]) < TOLERANCE, i


def test_a_picture_s_rows_are_those_of_transformers(bound, cpu):
    canvas, expected = bound.expected["canvas"], bound.expected["rows"]
    kind = bound.kind("image")
    assert kind.count(canvas) == len(expected) == (16 if bound.name == "mmproj-gemma3" else 72)
    assert error(kind.encode(canvas, Referee(kind)), expected) < TOLERANCE
    encoder = MediaEncoder(bound.media, cpu)
    assert error(encoder.rows(kind, b"hash", canvas), expected) < TOLERANCE
    assert encoder.kept(kind, b"hash") is not None and encoder.kept(kind, b"other") is None


def test_a_recording_s_rows_are_those_of_transformers(cpu):
    bound = Bound("mmproj-unified")
    kind, samples = bound.kind("audio"), bound.expected["samples"]
    assert kind.count(samples) == len(bound.expected["audio_rows"]) == 5
    assert error(kind.encode(samples, Referee(kind)), bound.expected["audio_rows"]) < TOLERANCE
    long = np.random.default_rng(1).uniform(-1, 1, 640 * unified.AT_ONCE + 1).astype(np.float32)
    rows = MediaEncoder(bound.media, cpu).rows(kind, b"hash", long)
    assert len(rows) == unified.AT_ONCE + 1
    assert error(rows[:5], kind.encode(long[:3200], Referee(kind))) < TOLERANCE


def test_a_spectrum_is_that_of_transformers():
    expected = Bound("mmproj-e2b").expected
    assert error(sound.spectrum(expected["samples"]), expected["bands"]) < 1e-5


def test_a_conformer_s_rows_are_those_of_transformers(cpu):
    bound = Bound("mmproj-e2b")
    kind, samples, expected = bound.kind("audio"), bound.expected["samples"], bound.expected["audio_rows"]
    assert kind.count(samples) == len(expected)
    assert error(kind.encode(samples, Referee(kind)), expected) < TOLERANCE
    encoder = MediaEncoder(bound.media, cpu)
    assert error(encoder.rows(kind, b"one", samples), expected) < TOLERANCE
    other = encoder.rows(kind, b"other", samples[::-1].copy())
    assert error(encoder.rows(kind, b"again", samples), expected) < TOLERANCE < error(other, expected)


@pytest.mark.parametrize(
    ("samples", "rows"),
    [(641, 1), (1000, 2), (1700, 3), (3200, 5), (16_333, 26), (480_000, 750), (480_160, 750), (500_000, 781)],
)
def test_a_recording_becomes_so_many_rows(samples, rows):
    """Counts of llama.cpp's, but for an end that is too short for a frame, which is left out."""
    assert audio.count(np.zeros(samples, np.float32)) == rows


def test_a_recording_that_is_too_short_is_refused():
    with pytest.raises(BadRequest, match="160 samples is too short"):
        audio.count(np.zeros(160, np.float32))


def given(bound: Bound, first: int, stop: int) -> Columns:
    """Columns of the expected prompt, whose -1 are the picture's rows."""
    tokens, rows = bound.expected["tokens"], bound.expected["rows"]
    places = np.flatnonzero(tokens < 0)
    inputs = {GIVEN: np.zeros((len(tokens), 64)), IS_TEXT: np.ones((len(tokens), 64))}
    inputs[GIVEN][places], inputs[IS_TEXT][places] = rows, 0
    last = np.arange(len(tokens))
    if bound.kind("image").together:
        last[places] = places[-1]
    n = stop - first
    return Columns(
        np.maximum(tokens, 0)[first:stop],
        np.arange(first, stop),
        np.zeros(n),
        np.arange(n),
        {name: each[first:stop] for name, each in inputs.items()},
        last=last[first:stop],
    )


def test_logits_after_a_picture_are_those_of_transformers(bound, compile):
    expected = bound.expected["logits"]
    run = compile(bound.media.build(), context=128, width=len(expected)).run
    assert error(run(given(bound, 0, len(expected)))["logits"], expected) < 3 * TOLERANCE


def test_a_prompt_with_a_picture_may_be_read_in_pieces(bound, compile):
    expected = bound.expected["logits"]
    run, n = compile(bound.media.build(), context=128, width=len(expected)).run, len(expected)
    first, *_, last = np.flatnonzero(bound.expected["tokens"] < 0)
    cuts = [0, 4, first, last + 1, n] if bound.kind("image").together else [0, 4, first + 9, last - 9, n]
    rows = [run(given(bound, a, b))["logits"].copy() for a, b in pairwise(cuts)]
    assert error(np.concatenate(rows), expected) < 3 * TOLERANCE


def test_only_rows_of_models_without_inputs_per_layer_see_each_other():
    assert not Bound("mmproj-e2b").kind("image").together
    assert Bound("mmproj-12b").kind("image").together and Bound("mmproj-gemma3").kind("image").together
    assert not Bound("mmproj-unified").kind("audio").together


# ---------------------------------------------------------------- how pictures are cut


PIXELS = vision.Pixels(16, 3, 10_240, (0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize(
    ("size", "rows"),
    [((480, 384), 80), ((640, 426), 13 * 9), ((1, 1), 81), ((48 * 20, 48 * 14), 280), ((4000, 3000), 19 * 14)],
)
def test_the_canvas_is_of_whole_units_and_within_the_budget(size, rows):
    width, height = size
    w, h = PIXELS.canvas(width, height)
    assert w % 48 == h % 48 == 0 and w * h // 48**2 == rows == PIXELS.count(np.zeros((height, width, 3), np.uint8))
    assert 70 <= rows <= 280


def test_a_picture_is_not_stretched_and_the_rest_is_black():
    white = np.full((100, 300, 3), 255, np.uint8)
    fitted = PIXELS.fitted(white)
    h, w, _ = fitted.shape
    assert (w, h) == PIXELS.canvas(300, 100)
    inner = np.argwhere(fitted[:, :, 0] > 0.9)
    tall, wide = np.ptp(inner[:, 0]) + 1, np.ptp(inner[:, 1]) + 1
    assert abs(wide / tall - 3) < 0.1 and (wide == w or tall == h)


def test_patches_lie_square_by_square_and_colour_by_colour():
    canvas = np.random.default_rng(1).normal(size=(96, 144, 3)).astype(np.float32)
    patches, col, row = PIXELS.patches(canvas)
    assert len(patches) == 6 * 9
    for i in (0, 8, 9, 17, 53):
        c, r = col[i], row[i]
        cut = canvas[16 * r : 16 * r + 16, 16 * c : 16 * c + 16]
        np.testing.assert_array_equal(patches[i], cut.transpose(2, 0, 1).reshape(-1))
        assert (c // 3, r // 3) == (i // 9 % 3, i // 27)


def test_a_picture_that_is_too_long_is_refused():
    with pytest.raises(BadRequest, match="too long and narrow"):
        PIXELS.count(np.zeros((1, 30_000, 3), np.uint8))


# ---------------------------------------------------------------- what does not fit


def projector(name="mmproj-12b", **changes):
    """The file of a projector with other keys, or without some."""
    file = open_model(FIXTURES / f"{name}.gguf")
    values = {key: file.metadata[key] for key in file.metadata} | {
        key.replace("__", "."): v for key, v in changes.items()
    }
    file.metadata = type(file.metadata).of({key: v for key, v in values.items() if v is not None}, file.path)
    return file


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip__vision__projection_dim": 128}, "projection_dim is 128, but the model's rows have 64"),
        ({"clip__vision__projector_type": "pixtral"}, "projector_type is 'pixtral'"),
        ({"clip__vision__projector_type": "gemma4ua"}, "projector_type is 'gemma4ua'"),
        ({"clip__has_vision_encoder": False}, "neither"),
        ({"clip__vision__block_count": 3}, "block_count is 3"),
        ({"clip__vision__block_count": 2_000_000_000}, "block_count"),
        ({"clip__vision__embedding_length": 32}, "shape"),
        ({"clip__vision__attention__head_count": 3}, "head_count is 3"),
        ({"clip__vision__patch_size": 5}, "v.patch_embd.weight"),
        ({"clip__vision__image_std": [1.0, 0.0, 1.0]}, "image_std"),
        ({"clip__vision__feed_forward_length": None}, "feed_forward_length"),
    ],
)
def test_a_projector_that_does_not_fit_is_refused_by_name(changes, words):
    model = opening.open_gemma4(open_model(FIXTURES / "gemma4-12b.gguf"))
    with pytest.raises((BadFile, Unsupported)) as refusal:
        model.bound(projector(**changes))
    assert words in str(refusal.value) and "mmproj-12b.gguf" in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip__vision__projection_dim": 128}, "projection_dim is 128, but the model's rows have 64"),
        ({"clip__projector_type": "gemma4v"}, "projector_type is 'gemma4v', gemma3 was expected"),
        ({"clip__has_audio_encoder": True}, "audio.projector_type is 'gemma3', none was expected"),
        ({"clip__vision__block_count": 2_000_000_000}, "block_count"),
        ({"clip__vision__image_size": 72}, "image_size is 72, which 4 × 4 patches of 4 pixels do not fill"),
        ({"clip__vision__image_size": 1 << 30}, "image_size"),
        ({"clip__vision__image_size": 128}, "v.position_embd.weight"),
        ({"clip__vision__image_mean": [0.5]}, "image_mean"),
        ({"clip__vision__attention__head_count": 5}, "head_count is 5"),
    ],
)
def test_a_projector_that_does_not_fit_gemma_3_is_refused_by_name(changes, words):
    model = opening.open_gemma3(open_model(FIXTURES / "gemma3.gguf"))
    with pytest.raises((BadFile, Unsupported)) as refusal:
        model.bound(projector("mmproj-gemma3", **changes))
    assert words in str(refusal.value) and "mmproj-gemma3.gguf" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "tensor"), [("mmproj-12b", "v.blk.1.ffn_up.input_max"), ("mmproj-e2b", "a.blk.0.ffn_up.output_min")]
)
@pytest.mark.parametrize("bound", [np.nan, np.inf, -np.inf])
def test_bounds_that_no_number_lies_between_are_refused_by_name(name, tensor, bound):
    file = projector(name)
    assert tensor in file.weights
    held = dict(file.weights.items()) | {tensor: Weight.of(tensor, np.full(1, bound, np.float32))}
    file.weights = Weights(file.path, held)
    model = opening.open_gemma4(open_model(FIXTURES / f"{PAIRS[name]}.gguf"))
    if bound == (np.inf if tensor.endswith("max") else -np.inf):
        assert model.bound(file).media is not None
        return
    with pytest.raises(BadFile, match=rf"{name}\.gguf: {tensor[:-4]}_min is .*{bound}"):
        model.bound(file)


def test_files_that_name_gemma_3_s_feed_forward_matrices_the_other_way_round_are_read_too():
    file = projector("mmproj-gemma3")
    held = {name: file.weights.get(name) for name in file.weights}
    exchanged = {
        name: held[name.replace("ffn_up", "?").replace("ffn_down", "ffn_up").replace("?", "ffn_down")] for name in held
    }
    file.weights = type(file.weights)(file.path, {name: w for name, w in exchanged.items() if w is not None})
    bound = Bound("mmproj-gemma3")
    media = opening.open_gemma3(open_model(FIXTURES / "gemma3.gguf")).bound(file).media
    assert media is not None
    kind = media.kinds[0]
    assert error(kind.encode(bound.expected["canvas"], Referee(kind)), bound.expected["rows"]) < TOLERANCE


def test_what_is_no_projector_is_refused_and_so_is_one_for_a_model_that_takes_none():
    model = opening.open_gemma4(open_model(FIXTURES / "gemma4-12b.gguf"))
    with pytest.raises(Unsupported, match=r"gemma3\.gguf.*'gemma3'"):
        model.bound(open_model(FIXTURES / "gemma3.gguf"))
    gemma3 = opening.open_gemma3(open_model(FIXTURES / "gemma3.gguf"))
    with pytest.raises(Unsupported, match="'gemma4v', gemma3 was expected"):
        gemma3.bound(open_model(FIXTURES / "mmproj-12b.gguf"))
    with pytest.raises(Unsupported, match="takes no projector"):
        replace(gemma3, projector=None).bound(open_model(FIXTURES / "mmproj-gemma3.gguf"))
