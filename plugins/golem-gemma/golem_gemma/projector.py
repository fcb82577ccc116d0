"""A projector beside a Gemma 4 model: which pictures and recordings it takes, and the model's graph with their rows."""

from __future__ import annotations

from functools import partial
from typing import Literal

from golem_core import BadFile, Keys, Media, MediaKind, ModelFile, Tokenizer, Unsupported, Weights
from golem_gemma import audio, gemma4, unified, vision

READERS = {
    "vision": {"gemma4v": vision.read, "gemma4uv": unified.read_vision},
    "audio": {"gemma4a": audio.read, "gemma4ua": unified.read_audio},
}
Kind = Literal["image", "audio"]
MARKS = {"image": ("<|image|>", "<|image>", "<image|>"), "audio": ("<|audio|>", "<|audio>", "<audio|>")}
"""The token that a chat template writes, and what stands before and behind the rows."""


def bind(cfg: gemma4.Gemma4Config, weights: Weights, tokenizer: Tokenizer, file: ModelFile) -> Media:
    """What the projector in `file` adds to a model.  Raises BadFile or Unsupported naming what does not fit."""
    if file.architecture != "clip":
        raise Unsupported(f"{file.path}: the architecture {file.architecture!r} is not that of a projector, 'clip'")
    kinds = []
    senses: tuple[tuple[str, Kind], ...] = (("vision", "image"), ("audio", "audio"))
    for sense, name in senses:
        if not file.metadata.flag(f"clip.has_{sense}_encoder", False):
            continue
        keys = Keys(file)
        kind = keys.meta.text(f"{sense}.projector_type", "") or keys.meta.text("projector_type", "")
        if kind not in READERS[sense]:
            known = " or ".join(READERS[sense])
            raise Unsupported(keys.named(f"{sense}.projector_type", repr(kind)) + f", {known} was expected")
        if (width := keys.count(f"{sense}.projection_dim", cfg.width)) != cfg.width:
            raise BadFile(keys.named(f"{sense}.projection_dim", width) + f", but the model's rows have {cfg.width}")
        kinds.append(_marked(tokenizer, file, name, READERS[sense][kind](keys, cfg.width)))
    if not kinds:
        raise BadFile(f"{file.path}: it has neither clip.has_vision_encoder nor clip.has_audio_encoder")
    # The small models, which have inputs per layer, were trained with pictures read like text.
    together = not cfg.per_layer
    kinds = [kind(together=together and name == "image") for name, kind in kinds]
    return Media(partial(gemma4.build, cfg, weights, media=True, together=together), cfg.width, tuple(kinds))


def _marked(
    tokenizer: Tokenizer, file: ModelFile, name: Kind, reader: vision.Reader
) -> tuple[Kind, partial[MediaKind]]:
    placeholder, begin, end = (_token(tokenizer, file, text) for text in MARKS[name])
    kind = partial(
        MediaKind,
        name=name,
        placeholder=placeholder,
        begin=(begin,),
        end=(end,),
        graphs=reader.graphs,
        count=reader.count,
        encode=reader.encode,
        most=reader.most,
    )
    return name, kind


def _token(tokenizer: Tokenizer, file: ModelFile, text: str) -> int:
    ids = tokenizer.encode(text, parse_special=True)
    if len(ids) != 1 or tokenizer.token_text(ids[0]) != text:
        raise Unsupported(f"{file.path}: the model's vocabulary has no token {text}")
    return ids[0]
