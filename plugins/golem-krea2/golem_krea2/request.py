"""What a request asks for, checked: the body of POST /v1/images/generations, and the settings of one picture.

Everything that can be known without drawing is refused here, by field and value.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from golem_core import BadRequest, read_body, shown, whole

SIDE, LEAST, PIXELS = 16, 64, 1024 * 1024
"""Sides are multiples of `SIDE` and at least `LEAST`; a picture has at most `PIXELS`."""
SIZE, STEPS, CFG, STRENGTH = "768x1024", 8, 1.0, 1.0
MOST_STEPS, MOST_CFG, MOST_STRENGTH = 100, 1000.0, 2.0
SEEDS = 1 << 50
"""A seed that nobody names is drawn below this."""
LONGEST = 1 << 18
"""Characters of a prompt; more are more tokens than the network reads."""

Number = int | float | None


class ImageRequest(msgspec.Struct):
    """The body; null is the same as absent, and fields that are not here are ignored."""

    prompt: Annotated[str | None, Meta(description="What is to be seen.")] = None
    negative_prompt: Annotated[str | None, Meta(description="What is not to be seen; read where cfg is not 1.")] = None
    model: Annotated[Any, Meta(description="Selects nothing; there is one model here.")] = None
    n: Annotated[Number, Meta(description="How many pictures; one is drawn.")] = None
    size: Annotated[
        str | None,
        Meta(description="WIDTHxHEIGHT: multiples of 16 from 64, at most 1048576 pixels; 768x1024 if absent."),
    ] = None
    response_format: Annotated[str | None, Meta(description='"b64_json", the only one here.')] = None
    steps: Annotated[Number, Meta(description="Steps of the sampler, 1 to 100; 8 if absent or 0.")] = None
    cfg: Annotated[float | None, Meta(description="Guidance, above 0; 1 if absent, which is none.")] = None
    seed: Annotated[Number, Meta(description="Starts the noise, 64 bits; negative or absent: another each time.")] = (
        None
    )
    lora: Annotated[str | None, Meta(description="The name of a file in the LoRA folder.")] = None
    lora_strength: Annotated[float | None, Meta(description="How much the LoRA changes, 0 to 2; 1 if absent.")] = None
    hide_prompt: Annotated[bool | None, Meta(description="Keep the prompts out of the picture's file.")] = None
    stream: Annotated[bool | None, Meta(description="Answer as a stream of events.")] = None


@dataclass(frozen=True)
class Settings:
    """A picture that can be drawn.  `lora` is a file's name, None for none."""

    prompt: str
    negative: str = ""
    width: int = 768
    height: int = 1024
    steps: int = STEPS
    cfg: float = CFG
    seed: int = 0
    lora: str | None = None
    lora_strength: float = STRENGTH
    hide_prompt: bool = False

    @property
    def active_lora(self) -> str | None:
        """The LoRA that changes anything."""
        return self.lora if self.lora_strength else None

    @classmethod
    def checked(
        cls,
        prompt: str | None,
        *,
        negative: str | None = None,
        size: str | None = None,
        steps: Number = None,
        cfg: float | None = None,
        seed: Number = None,
        lora: str | None = None,
        lora_strength: float | None = None,
        hide_prompt: bool | None = None,
    ) -> Settings:
        """Settings out of what was given, None being nothing.  Raises BadRequest naming field and value."""
        if prompt is None or not prompt.strip():
            raise BadRequest("prompt: there is nothing to draw", param="prompt")
        width, height = _size(SIZE if size is None else size)
        return cls(
            _text("prompt", prompt),
            _text("negative_prompt", negative or ""),
            width,
            height,
            _steps(steps),
            _number("cfg", cfg, CFG, 0, MOST_CFG, least_counts=False),
            _seed(seed),
            _lora(lora),
            _number("lora_strength", lora_strength, STRENGTH, 0, MOST_STRENGTH),
            bool(hide_prompt),
        )


def read(body: bytes) -> tuple[Settings, bool]:
    """The settings in a request's body, and whether the answer is a stream.  Raises BadRequest."""
    given, _ = read_body(body, ImageRequest)
    if whole(given.n, "n") not in (None, 0, 1):
        raise BadRequest(f"n: {shown(given.n)} pictures were asked for, but one is drawn", param="n")
    if given.response_format not in (None, "", "b64_json"):
        raise BadRequest(
            f'response_format: expected "b64_json", got {shown(given.response_format)}', param="response_format"
        )
    settings = Settings.checked(
        given.prompt,
        negative=given.negative_prompt,
        size=given.size,
        steps=given.steps,
        cfg=given.cfg,
        seed=given.seed,
        lora=given.lora,
        lora_strength=given.lora_strength,
        hide_prompt=given.hide_prompt,
    )
    return settings, bool(given.stream)


def _text(field: str, text: str) -> str:
    if len(text) > LONGEST:
        raise BadRequest(f"{field}: {len(text)} characters, at most {LONGEST}", param=field)
    if "\0" in text:
        raise BadRequest(f"{field}: there is a zero character in it, got {shown(text)}", param=field)
    return _unicode(field, text)


def _unicode(field: str, text: str) -> str:
    """A text that a file can tell: what a command line has in another encoding than UTF-8 is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{field}: it is not UTF-8, got {text[:40]!a}", param=field) from None
    return text


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})", text)
    if found is None:
        raise BadRequest(f"size: expected WIDTHxHEIGHT such as {SIZE}, got {shown(text)}", param="size")
    width, height = int(found[1]), int(found[2])
    for side in (width, height):
        if side < LEAST or side % SIDE:
            raise BadRequest(f"size: {text} has a side of {side}, not a multiple of {SIDE} from {LEAST}", param="size")
    if width * height > PIXELS:
        raise BadRequest(f"size: {text} has {width * height} pixels, at most {PIXELS}", param="size")
    return width, height


def _steps(given: Number) -> int:
    steps = whole(given, "steps") or STEPS
    if not 1 <= steps <= MOST_STEPS:
        raise BadRequest(f"steps: expected 1 to {MOST_STEPS}, got {shown(given)}", param="steps")
    return steps


def _seed(given: Number) -> int:
    seed = whole(given, "seed", most=(1 << 64) - 1)
    return secrets.randbelow(SEEDS) if seed is None or seed < 0 else seed


def _number(
    field: str, given: float | None, default: float, least: float, most: float, *, least_counts: bool = True
) -> float:
    if given is None:
        return default
    if not isfinite(given) or not least <= given <= most or (given == least and not least_counts):
        low = f"from {least}" if least_counts else f"above {least}"
        raise BadRequest(f"{field}: expected a number {low} to {most:g}, got {shown(given)}", param=field)
    return float(given)


def _lora(name: str | None) -> str | None:
    """A bare file name: nothing that leads out of the folder, on any system."""
    if not name:
        return None
    if (
        name.startswith(".")
        or not name.endswith(".safetensors")
        or len(name) > 255
        or re.search(r'[/\\:*?"<>|\x00-\x1f\x7f]', name)
    ):
        raise BadRequest(
            "lora: expected the name of a file in the LoRA folder, ending in .safetensors and without separators, got "
            f"{shown(name)}",
            param="lora",
        )
    return _unicode("lora", name)
