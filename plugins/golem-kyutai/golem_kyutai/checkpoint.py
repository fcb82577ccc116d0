"""A checkpoint's directory: its settings, its text pieces, and the weights of the language model and of the codec.

Sizes come from the tensors' shapes, so that models of other sizes open too; what cannot be computed here is refused by
name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golem_core import BadFile, Metadata, ModelFile, TensorSpec, Unsupported, check_tensors, open_safetensors, read_json
from golem_kyutai.mimi import FLOATS, Mimi, attention_weight
from golem_kyutai.pieces import Pieces

FRAME_RATE = 12.5
"""Frames a second: the codec's, and so the steps of the language model."""
EXPECTED: dict[str, Any] = {
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "causal": True,
    "layer_scale": None,
    "cross_attention": False,
    "conditioners": {},
    "dep_q": 0,
}
"""What config.json must say where it says anything."""


@dataclass(frozen=True)
class Config:
    """Facts of the language model, of config.json and of the tensors' shapes.

    `delay` and `prefix` are seconds: how far text comes behind what is heard, and the silence put in front.
    `context` is how many steps back attention looks, the own one included.
    """

    width: int
    layers: int
    heads: int
    ffn: int
    codebooks: int
    card: int
    text_card: int
    padding: int
    context: int
    base: float
    delay: float
    prefix: float

    @property
    def delay_steps(self) -> int:
        return int(self.delay * FRAME_RATE)

    @classmethod
    def read(cls, settings: Metadata, file: ModelFile) -> Config:
        """Raises BadFile for values that contradict the tensors, Unsupported for what is not computed here."""
        for key, wanted in EXPECTED.items():
            if key in settings and settings[key] != wanted:
                raise Unsupported(f"{settings.source}: {key} is {settings[key]!r}; {wanted!r} was expected")
        shapes = {name: weight.shape for name, weight in file.weights.items()}
        text = _matrix(file, "text_emb.weight")
        audio = _matrix(file, "emb.0.weight")
        width = text[1]
        heads = settings.number("num_heads", int, 16, low=1)
        if width % heads or width // heads % 2:
            raise BadFile(f"{settings.source}: num_heads is {heads}, which does not divide {width} into pairs")
        codebooks = _numbered(shapes, "emb.{}.weight")
        delays = settings.numbers("delays", int, [0] * (codebooks + 1))
        if any(delays):
            raise Unsupported(f"{settings.source}: delays are {delays}; zeros were expected")
        if not isinstance(settings.get("stt_config"), dict | None):
            raise settings.bad("stt_config", settings["stt_config"], "an object was expected")
        stt = settings.scoped("stt_config")
        config = cls(
            width=width,
            layers=_numbered(shapes, "transformer.layers.{}.norm1.alpha"),
            heads=heads,
            ffn=_matrix(file, "transformer.layers.0.gating.linear_out.weight")[1],
            codebooks=codebooks,
            card=audio[0] - 1,
            text_card=text[0] - 1,
            padding=settings.number("existing_text_padding_id", int, 3, low=0, high=text[0] - 2),
            context=settings.number("context", int, 750, low=1, high=1 << 20),
            base=settings.number("max_period", float, 100_000.0, above=0.0),
            delay=stt.number("audio_delay_seconds", float, 0.5, low=0.0, high=60.0),
            prefix=stt.number("audio_silence_prefix_seconds", float, 0.0, low=0.0, high=60.0),
        )
        for key, found in (
            ("dim", width),
            ("num_layers", config.layers),
            ("n_q", codebooks),
            ("card", config.card),
            ("text_card", config.text_card),
        ):
            stated = settings.number(key, int, found)
            if stated != found:
                raise BadFile(f"{settings.source}: {key} is {stated}, and the tensors say {found}")
        return config

    def tensors(self, file: ModelFile) -> Iterator[TensorSpec]:
        d = self.width
        yield TensorSpec("text_emb.weight", (self.text_card + 1, d))
        for q in range(self.codebooks):
            yield TensorSpec(f"emb.{q}.weight", (self.card + 1, d))
        for i in range(self.layers):
            prefix = f"transformer.layers.{i}"
            yield TensorSpec(f"{prefix}.norm1.alpha", (1, 1, d))
            yield TensorSpec(f"{prefix}.norm2.alpha", (1, 1, d))
            layer = file.weights.scoped(prefix)
            yield TensorSpec(attention_weight(layer, "in").name, (3 * d, d))
            yield TensorSpec(attention_weight(layer, "out").name, (d, d))
            yield TensorSpec(f"{prefix}.gating.linear_in.weight", (2 * self.ffn, d))
            yield TensorSpec(f"{prefix}.gating.linear_out.weight", (d, self.ffn))
        yield TensorSpec("out_norm.alpha", (1, 1, d))
        yield TensorSpec("text_linear.weight", (self.text_card, d))


@dataclass(frozen=True)
class Checkpoint:
    """Everything of one directory.  `close` lets go of the mapped weights."""

    path: Path
    config: Config
    pieces: Pieces
    mimi: Mimi
    trunk: ModelFile
    codec: ModelFile

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Raises BadFile or Unsupported naming the file at fault, or what is missing."""
        path = Path(path)
        if not os.path.isdir(path):
            raise BadFile(
                f"{path}: a directory with model.safetensors, mimi*.safetensors and tokenizer*.model is needed"
            )
        settings = read_json(path / "config.json") if (path / "config.json").exists() else Metadata(path, {})
        kind = settings.text("model_type", "stt")
        if kind != "stt":
            raise Unsupported(f"{settings.source}: model_type is {kind!r}; 'stt' was expected")
        model = _find(path, settings, "moshi_name", "model.safetensors", "the language model")
        codec = _find(path, settings, "mimi_name", "mimi*.safetensors", "the codec")
        pieces = Pieces.read(_find(path, settings, "tokenizer_name", "tokenizer*.model", "the list of text pieces"))
        opened: list[ModelFile] = []
        try:
            opened.append(open_safetensors(model, "kyutai"))
            config = Config.read(settings, opened[0])
            check_tensors(opened[0], config.tensors(opened[0]), FLOATS)
            opened.append(open_safetensors(codec, "mimi"))
            mimi = Mimi.read(opened[1], config.codebooks)
            if mimi.bins != config.card:
                raise BadFile(f"{codec}: codebooks of {mimi.bins} rows; the language model reads {config.card}")
            if len(pieces) > config.text_card:
                raise BadFile(f"{path}: {len(pieces)} text pieces, and the language model writes {config.text_card}")
        except BaseException:
            for each in opened:
                each.close()
            raise
        return cls(path, config, pieces, mimi, *opened)

    def close(self) -> None:
        self.trunk.close()
        self.codec.close()


def _find(path: Path, settings: Metadata, key: str, pattern: str, what: str) -> Path:
    """The file that config.json names under `key`, or else the only one of the pattern."""
    name = settings.text(key, None)
    if name is not None:
        if Path(name).name != name or name in ("", ".", ".."):
            raise settings.bad(key, name, "the name of a file beside it was expected")
        found = [path / name] if (path / name).is_file() else []
        pattern = name
    else:
        found = sorted(each for each in path.glob(pattern) if each.is_file())
    if len(found) != 1:
        raise BadFile(f"{path}: {what} is missing: there {'is no' if not found else 'are several'} {pattern}")
    return found[0]


def _matrix(file: ModelFile, name: str) -> tuple[int, int]:
    weight = file.weights.get(name)
    if weight is None:
        raise BadFile(f"{file.path}: the tensor {name!r} is missing")
    if len(weight.shape) != 2 or min(weight.shape) < 2:
        raise BadFile(f"{file.path}: {name} has the shape {weight.shape}, which is no matrix")
    return weight.shape[0], weight.shape[1]


def _numbered(shapes: dict[str, tuple[int, ...]], pattern: str) -> int:
    """How many of the tensors of a numbered name there are, from 0 on."""
    count = 0
    while pattern.format(count) in shapes:
        count += 1
    return count
