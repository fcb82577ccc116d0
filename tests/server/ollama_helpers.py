"""What the tests of ollama's API share: a message, a tool, marks, and how to read lines."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
from server_fakes import FakeTemplate

from golem_core import Markers
from golem_core.files import Metadata, Weight, Weights
from golem_core.text import JsonCalls

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}
THINKING = Markers(thought=("<think>", "</think>"), call=("<call>", "</call>"), syntaxes=(JsonCalls(),))


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def echoing(live: Any, markers: Markers = THINKING) -> Any:
    """Let the model repeat the last message only, with marks that its family would write."""
    model = live.server.chat.model
    model.markers = markers
    template = FakeTemplate()
    render = template.render
    template.render = lambda messages, **settings: (render(messages, **settings), messages[-1]["content"])[1]  # type: ignore
    live.server.chat.template = template
    return template


def filed(live: Any, tmp_path: Any, **metadata: Any) -> Any:
    """Give the model a file of its own, with two weights."""
    path = tmp_path / "tiny-echo.gguf"
    path.write_bytes(b"GGUF")
    tensors = {
        "token_embd.weight": Weight("token_embd.weight", "Q8_0", (1000, 32), np.zeros(34000, np.uint8)),
        "output_norm.weight": Weight("output_norm.weight", "F32", (32,), np.zeros(128, np.uint8)),
    }
    known = {"general.architecture": "echo", "echo.block_count": 2} | metadata
    live.server.chat.model.file = SimpleNamespace(
        path=path, architecture="echo", metadata=Metadata(path, known), weights=Weights(path, tensors)
    )
    return path
