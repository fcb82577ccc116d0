"""A projector beside a Qwen3.5 to 3.8: the pictures that it takes, and the model's graph with their rows."""

from __future__ import annotations

from functools import partial

from golem_core import BadFile, Keys, Media, MediaKind, ModelFile, Tokenizer, Unsupported, Weights
from golem_qwen import qwen35, vision

KIND = "qwen3vl_merger"
MARKS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
"""The template writes all three for a picture; its rows take the place of the second."""


def bind(cfg: qwen35.Qwen35Config, weights: Weights, tokenizer: Tokenizer, file: ModelFile) -> Media:
    """What the projector in `file` adds to a model.  Raises BadFile or Unsupported naming what does not fit."""
    if file.architecture != "clip":
        raise Unsupported(f"{file.path}: the architecture {file.architecture!r} is not that of a projector, 'clip'")
    keys = Keys(file)
    if not keys.meta.flag("has_vision_encoder", False):
        raise BadFile(f"{file.path}: clip.has_vision_encoder is not true")
    kind = keys.meta.text("projector_type", "") or keys.meta.text("vision.projector_type", "")
    if kind != KIND:
        raise Unsupported(keys.named("projector_type", repr(kind)) + f", {KIND} was expected")
    if (rows := keys.count("vision.projection_dim", cfg.width)) != cfg.width:
        raise BadFile(keys.named("vision.projection_dim", rows) + f", but the model's rows have {cfg.width}")
    if not sum(cfg.sections[: qwen35.AXES]):
        raise Unsupported(f"{file.path}: the model has no rope.dimension_sections, which pictures are placed by")
    tower = vision.read(keys, cfg.width)
    for text in MARKS:
        ids = tokenizer.encode(text, parse_special=True)
        if len(ids) != 1 or tokenizer.token_text(ids[0]) != text:
            raise Unsupported(f"{file.path}: the model's vocabulary has no token {text}")
    (placeholder,) = tokenizer.encode(MARKS[1], parse_special=True)
    pictures = MediaKind(
        name="image",
        placeholder=placeholder,
        begin=(),
        end=(),
        graphs=vision.graphs(tower, file.weights),
        count=tower.count,
        encode=partial(vision.encode, tower, file.weights),
        most=vision.MOST_ROWS,
        places=tower.places,
    )
    return Media(partial(qwen35.build, cfg, weights, media=True), cfg.width, (pictures,), qwen35.AXES)
