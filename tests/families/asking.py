"""Requests with pictures, and what holds of them for every family that sees."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
from PIL import Image

from golem_core.server.chat_request import Asked, prepare
from golem_core.server.loading import LoadedChat


def png(seed: int, width: int = 150, height: int = 80) -> bytes:
    """A picture of noise as a file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def image(seed: int, width: int = 150, height: int = 80) -> dict[str, Any]:
    """The part of a message with that picture."""
    data = base64.b64encode(png(seed, width, height)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def words(text: str) -> dict[str, Any]:
    """The part of a message with a text."""
    return {"type": "text", "text": text}


def asked(chat: LoadedChat, *content: dict[str, Any], **fields: Any) -> Asked:
    """What a message of these parts asks for."""
    message = {"role": "user", "content": list(content)}
    return prepare(chat, json.dumps({"messages": [message], "temperature": 0, **fields}).encode())


def check_that_typed_marks_are_text(chat: LoadedChat) -> None:
    """A text that spells what stands for a picture or a recording adds none, alone and beside a picture."""
    assert chat.model.media is not None
    tokenizer = chat.model.tokenizer
    for kind in chat.model.media.kinds:
        mark = tokenizer.token_text(kind.placeholder)
        assert tokenizer.encode(mark, parse_special=True) == [kind.placeholder]
        for typed in (f"what does {mark} mean?", mark):
            for parts in ([words(typed)], [words(typed), image(1)], [image(1), words(typed)]):
                request = asked(chat, *parts).generation
                assert len(request.media) == len(parts) - 1
                assert mark in tokenizer.decode([token for token in request.prompt if token >= 0])
