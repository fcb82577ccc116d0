"""Pictures become the rows that transformers makes of them, stand where it says, and are read as it reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from golem_qwen import opening, qwen35, vision
from PIL import Image

from golem_core import BadFile, BadRequest, Columns, Graph, Keys, Reference, Unsupported, open_model
from golem_core.engine.media import GIVEN, IS_TEXT, PLACE, Span, places
from golem_core.media.encoder import MediaEncoder

FIXTURES = Path(__file__).parent / "fixtures"
MODEL, PROJECTOR = FIXTURES / "qwen35-seeing.gguf", FIXTURES / "mmproj-seeing.gguf"
TOLERANCE = 1e-4


def error(got: np.ndarray, expected: np.ndarray) -> float:
    assert got.shape == expected.shape
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def expected():
    return dict(np.load(FIXTURES / "mmproj-seeing.npz"))


@pytest.fixture(scope="module")
def projector():
    with open_model(PROJECTOR) as file:
        yield file


@pytest.fixture(scope="module")
def tower(projector):
    return vision.read(Keys(projector), 64)


@pytest.fixture(scope="module")
def model(projector):
    with open_model(MODEL) as file:
        yield opening.open_qwen35(file).bound(projector)


@pytest.fixture(scope="module")
def kind(model):
    assert model.media is not None and model.media.axes == 3
    return model.media.kind("image")


def test_the_table_of_positions_is_resized_as_transformers_does_it(tower, projector, expected):
    _, at = tower.patches(tower.fitted(expected["canvas"]))
    added = vision.positions(tower, projector.weights, *(at.max(0) + 1))[at[:, 0], at[:, 1]]
    assert error(added, expected["positions"]) < 1e-5
    side = projector.weights.get("v.position_embd.weight").dequantize().reshape(8, 8, -1)
    np.testing.assert_array_equal(vision.positions(tower, projector.weights, 8, 8), side)


def test_every_block_of_the_tower_gives_what_transformers_gives(tower, projector, expected, compile):
    patches, at = tower.patches(tower.fitted(expected["canvas"]))
    g = Graph()
    for i, state in enumerate(vision.hidden_states(g, tower, projector.weights)):
        g.output(f"block {i}", state)
    pass_ = compile(g, context=len(patches), width=len(patches))
    made = pass_.run(vision.columns(tower, projector.weights, patches, at))
    for i, block in enumerate(expected["blocks"]):
        assert error(made[f"block {i}"], block) < TOLERANCE, i


def test_a_picture_becomes_its_rows(model, kind, expected, cpu):
    def run(name: str, columns: Columns) -> dict[str, np.ndarray]:
        graph = kind.graphs[name]
        return Reference(graph.build(), slots=graph.runs, context=graph.columns).run(columns)

    assert error(kind.encode(expected["canvas"], run), expected["rows"]) < TOLERANCE
    made = MediaEncoder(model.media, cpu).encoded(kind, b"a", expected["canvas"])
    assert error(made.rows, expected["rows"]) < TOLERANCE
    assert made.places is not None and made.places.shape == (15, 3)


def spans_of(kind, expected) -> list[Span]:
    rows, where = expected["rows"], kind.places(expected["canvas"])
    starts = np.flatnonzero(np.diff(expected["tokens"] == -1, prepend=False) & (expected["tokens"] == -1))
    return [Span(int(start), rows, places=where) for start in starts]


def test_rows_and_the_text_behind_them_stand_where_transformers_says(kind, expected):
    spans = spans_of(kind, expected)
    assert len(spans) == 2
    np.testing.assert_array_equal(places(spans, 0, len(expected["tokens"]), 3), expected["places"].T)


def read(run, model, kind, expected, parts: list[int]) -> np.ndarray:
    """The logits of every position of the prompt, which is read in parts."""
    tokens, spans = expected["tokens"], spans_of(kind, expected)
    given = np.zeros((len(tokens), 64))
    for span in spans:
        given[span.start : span.stop] = span.rows
    is_text = np.repeat(tokens[:, None] >= 0, 64, 1)
    inputs = {GIVEN: given, IS_TEXT: is_text, PLACE: places(spans, 0, len(tokens), 3)}
    found = []
    for first, stop in zip([0, *parts], [*parts, len(tokens)], strict=True):
        here, n = slice(first, stop), stop - first
        part = {name: rows[here] for name, rows in inputs.items()}
        columns = Columns(np.maximum(tokens[here], 0), np.arange(first, stop), np.zeros(n), np.arange(n), part)
        found.append(run(columns)["logits"].copy())
    return np.concatenate(found)


@pytest.mark.parametrize("parts", [[], [3, 12, 13, 40]], ids=["at once", "in parts"])
def test_the_model_reads_pictures_as_transformers_does(model, kind, expected, compile, parts):
    logits = read(compile(model.build(), context=64, width=64).run, model, kind, expected, parts)
    assert error(logits, expected["logits"]) < TOLERANCE


def test_without_pictures_a_projector_changes_nothing(model, cpu, columns):
    tokens = np.random.default_rng(1).integers(0, 256, 20)
    with open_model(MODEL) as file:
        plain = cpu.compile(opening.open_qwen35(file).build(), context=32, width=32, scored=32).run(columns(tokens))
    inputs = {GIVEN: np.zeros((20, 64)), IS_TEXT: np.ones((20, 64)), PLACE: np.arange(20)[:, None].repeat(3, 1)}
    seeing = cpu.compile(model.build(), context=32, width=32, scored=32)
    made = seeing.run(Columns(tokens, np.arange(20), np.zeros(20), np.arange(20), inputs))
    assert error(made["logits"], plain["logits"]) < 1e-5


@pytest.mark.parametrize(
    ("sections", "axes"),
    [
        ([11, 11, 10, 0], "thw" * 10 + "th"),
        ([3, 3, 2, 0], "thwthwth"),
        ([2, 1, 1, 0], "thwt" * 2),
        ([4, 1, 1, 0], "thwt--" + "th"),
        ([1, 1, 1, 1], "thw-" * 2),
    ],
)
def test_the_axes_take_turns_as_long_as_their_sections_last(sections, axes):
    found = [qwen35.axis_of(tuple(sections), pair) for pair in range(len(axes))]
    assert "".join("-" if axis is None else "thw"[axis] for axis in found) == axes


# ---------------------------------------------------------------- pictures of any size


@pytest.mark.parametrize(
    ("size", "canvas"),
    [
        ((40, 24), (40, 24)),
        ((44, 24), (48, 24)),  # halves away from zero
        ((35, 29), (32, 32)),
        ((1, 1), (24, 24)),  # enlarged to at least eight rows
        ((5000, 5000), (512, 512)),  # shrunk to at most 4096
    ],
)
def test_a_picture_is_fitted_into_whole_rows(tower, size, canvas):
    assert tower.canvas(*size) == canvas
    small = Image.fromarray(np.full((size[1], size[0], 3), 255, np.uint8)) if max(size) < 100 else None
    if small is not None:
        fitted = tower.fitted(np.asarray(small))
        assert fitted.shape == (canvas[1], canvas[0], 3) and set(np.unique(fitted)) <= {-1.0, 1.0}


def test_a_line_is_refused(tower):
    with pytest.raises(BadRequest, match="200000 × 1 pixels is too long and narrow"):
        tower.count(np.broadcast_to(np.uint8(0), (1, 200_000, 3)))


# ---------------------------------------------------------------- files that do not fit


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"clip.vision.projection_dim": 128}, "projection_dim is 128, but the model's rows have 64"),
        ({"clip.projector_type": "qwen2vl_merger"}, "projector_type is 'qwen2vl_merger', qwen3vl_merger was expected"),
        ({"clip.has_vision_encoder": False}, "has_vision_encoder is not true"),
        ({"clip.vision.block_count": 2_000_000_000}, "block_count"),
        ({"clip.vision.is_deepstack_layers": [False, True]}, "is_deepstack_layers is [False, True]"),
        ({"clip.vision.is_deepstack_layers": [False]}, "is_deepstack_layers"),
        ({"clip.vision.attention.head_count": 5}, "head_count is 5"),
        ({"clip.vision.image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ({"clip.vision.image_mean": [0.5]}, "image_mean"),
        ({"clip.vision.patch_size": 8}, "v.patch_embd.weight"),
        ({"clip.vision.spatial_merge_size": 3}, "mm.0.weight"),
    ],
)
def test_a_projector_that_does_not_fit_is_refused_by_name(altered, facts, words):
    file = altered("mmproj-seeing", facts=facts)
    with open_model(MODEL) as model, pytest.raises((BadFile, Unsupported)) as refusal:
        opening.open_qwen35(model).bound(file)
    assert words in str(refusal.value) and file.path.name in str(refusal.value)


def test_models_without_the_tokens_or_the_sections_are_refused(projector, altered):
    with open_model(FIXTURES / "qwen35-untied.gguf") as file, pytest.raises(Unsupported, match="vision_start"):
        opening.open_qwen35(file).bound(projector)
    file = altered("qwen35-seeing", keys={"rope.dimension_sections": None})
    with pytest.raises(Unsupported, match=r"no rope\.dimension_sections"):
        opening.open_qwen35(file).bound(projector)
    with open_model(FIXTURES / "qwen3-tied.gguf") as file, pytest.raises(Unsupported, match="takes no projector"):
        opening.open_qwen3(file).bound(projector)
    with open_model(MODEL) as file, pytest.raises(Unsupported, match="'qwen35' is not that of a projector"):
        opening.open_qwen35(file).bound(file)
