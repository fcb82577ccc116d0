"""A picture as a PNG file that tells how it was drawn.

Three texts stand behind the header: `parameters` as the web interfaces of Stable Diffusion write and read it,
`Software`, and `golem` with the settings as JSON.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core import version
from golem_krea2.request import Settings


def png(picture: np.ndarray, settings: Settings, model: str, started: Mapping[str, Any] | None = None) -> bytes:
    """The file of a picture uint8 (height, width, 3) that `model`, a DiT's file without its ending, drew.

    `started` are settings of the program rather than of the picture, without which it would be another one.
    """
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    texts = PngInfo()
    for keyword, text in described(settings, model, started).items():
        texts.add_itxt(keyword, text)
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(out, "png", pnginfo=texts)
    return out.getvalue()


def described(settings: Settings, model: str, started: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The three texts by their keywords."""
    software = f"golem {version()}"
    prompt, negative = ("", "") if settings.hide_prompt else (settings.prompt, settings.negative)
    first = prompt
    if settings.active_lora:
        name = settings.active_lora.removesuffix(".safetensors")
        first += f"{' ' if first else ''}<lora:{name}:{shortest(settings.lora_strength)}>"
    lines = [first, *([f"Negative prompt: {negative}"] if negative else [])]
    facts = {
        "Steps": settings.steps,
        "Sampler": "er_sde",
        "Schedule type": "simple",
        "CFG scale": shortest(settings.cfg),
        "Seed": settings.seed,
        "Size": f"{settings.width}x{settings.height}",
        "Model": model.encode(errors="replace").decode(),
        "Version": software,
    }
    lines.append(", ".join(f"{name}: {value}" for name, value in facts.items()))
    record: dict[str, Any] = {
        "prompt": prompt,
        "negative": negative,
        "width": settings.width,
        "height": settings.height,
        "steps": settings.steps,
        "cfg": _plain(settings.cfg),
        "seed": settings.seed,
    }
    if settings.active_lora:
        record |= {"lora": settings.lora, "lora_strength": _plain(settings.lora_strength)}
    record |= started or {}
    return {
        "parameters": "\n".join(lines),
        "Software": software,
        "golem": json.dumps(record, ensure_ascii=False),
    }


def shortest(number: float) -> str:
    """A number with as few digits as tell it apart: 1, 1.5, 0.75."""
    return repr(_plain(number))


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number
