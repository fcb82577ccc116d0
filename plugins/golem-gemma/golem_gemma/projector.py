"""A projector beside a model: which pictures and recordings it takes, and the model's graph with their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from golem_core import BadFile, Keys, Media, MediaKind, ModelFile, Tokenizer, Unsupported, Weights
from golem_gemma import audio, gemma3, gemma4, siglip, unified, vision

Kind = Literal["image", "audio"]
SENSES: tuple[tuple[str, Kind], ...] = (("vision", "image"), ("audio", "audio"))


@dataclass(frozen=True)
class Marks:
    """The token that a chat template writes, and those before and behind the rows."""

    placeholder: str
    begin: str
    end: str


@dataclass(frozen=True)
class Family:
    """What the projectors of a family may be, by sense and `projector_type`, and how their rows are marked."""

    readers: Mapping[str, Mapping[str, Callable[[Keys, int], vision.Reader]]]
    marks: Mapping[Kind, Marks]


GEMMA3 = Family(
    {"vision": {"gemma3": siglip.read}},
    {"image": Marks("<start_of_image>", "<start_of_image>", "<end_of_image>")},
)
GEMMA4 = Family(
    {
        "vision": {"gemma4v": vision.read, "gemma4uv": unified.read_vision},
        "audio": {"gemma4a": audio.read, "gemma4ua": unified.read_audio},
    },
    {
        "image": Marks("<|image|>", "<|image>", "<image|>"),
        "audio": Marks("<|audio|>", "<|audio>", "<audio|>"),
    },
)


def bind_gemma3(cfg: gemma3.Gemma3Config, weights: Weights, tokenizer: Tokenizer, file: ModelFile) -> Media:
    """What the projector in `file` adds to a Gemma 3.  Raises BadFile or Unsupported naming what does not fit."""
    kinds = read(GEMMA3, cfg.width, tokenizer, file, together=True)
    return Media(partial(gemma3.build, cfg, weights, media=True), cfg.width, kinds, written=written_with_empty_lines)


def written_with_empty_lines(text: str) -> str:
    """A conversation with empty lines around its pictures, as transformers' `Gemma3Processor` writes it."""
    return text.replace("<start_of_image>", "\n\n<start_of_image>\n\n")


def bind_gemma4(cfg: gemma4.Gemma4Config, weights: Weights, tokenizer: Tokenizer, file: ModelFile) -> Media:
    """The same for a Gemma 4."""
    # The small models, which have inputs per layer, were trained with pictures read like text.
    together = not cfg.per_layer
    kinds = read(GEMMA4, cfg.width, tokenizer, file, together)
    return Media(partial(gemma4.build, cfg, weights, media=True, together=together), cfg.width, kinds)


def read(family: Family, width: int, tokenizer: Tokenizer, file: ModelFile, together: bool) -> tuple[MediaKind, ...]:
    """What the projector in `file` makes rows of `width` numbers of; `together`: those of a picture see each other."""
    if file.architecture != "clip":
        raise Unsupported(f"{file.path}: the architecture {file.architecture!r} is not that of a projector, 'clip'")
    kinds = []
    for sense, name in SENSES:
        if not file.metadata.flag(f"clip.has_{sense}_encoder", False):
            continue
        keys = Keys(file)
        kind = keys.meta.text(f"{sense}.projector_type", "") or keys.meta.text("projector_type", "")
        readers = family.readers.get(sense, {})
        if kind not in readers:
            known = " or ".join(readers) or "none"
            raise Unsupported(keys.named(f"{sense}.projector_type", repr(kind)) + f", {known} was expected")
        if (rows := keys.count(f"{sense}.projection_dim", width)) != width:
            raise BadFile(keys.named(f"{sense}.projection_dim", rows) + f", but the model's rows have {width}")
        marks, reader = family.marks[name], readers[kind](keys, width)
        placeholder, begin, end = (_token(tokenizer, file, t) for t in (marks.placeholder, marks.begin, marks.end))
        kinds.append(
            MediaKind(
                name=name,
                placeholder=placeholder,
                begin=(begin,),
                end=(end,),
                graphs=reader.graphs,
                count=reader.count,
                encode=reader.encode,
                most=reader.most,
                together=together and name == "image",
            )
        )
    if not kinds:
        raise BadFile(f"{file.path}: it has neither clip.has_vision_encoder nor clip.has_audio_encoder")
    return tuple(kinds)


def _token(tokenizer: Tokenizer, file: ModelFile, text: str) -> int:
    ids = tokenizer.encode(text, parse_special=True)
    if len(ids) != 1 or tokenizer.token_text(ids[0]) != text:
        raise Unsupported(f"{file.path}: the model's vocabulary has no token {text}")
    return ids[0]
