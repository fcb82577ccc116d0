"""A server that repeats the last message, for clients that others wrote.

Each module skips itself by name where its client is not installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SERVER = Path(__file__).parents[1] / "server"


def _fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("golem_server_fixtures", _SERVER / "conftest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def echo() -> Iterator[Any]:
    """A live server whose model says the last message again, thoughts and calls in it included."""
    from golem_core import Markers
    from golem_core.text import JsonCalls

    for launch in _fixtures().servers():
        live = launch()
        chat = live.server.chat
        assert chat is not None
        chat.model.markers = Markers(("<think>", "</think>"), ("<call>", "</call>"), (JsonCalls(),))
        tokenizer: Any = chat.model.tokenizer
        tokenizer.vocab_size, tokenizer.eog = 128, frozenset({0})  # a vocabulary that grammars are soon compiled for
        template: Any = chat.template
        template.render = lambda messages, **settings: messages[-1]["content"]
        yield live


@pytest.fixture
def embedding() -> Iterator[Any]:
    """A live server with an embedding model alone, whose vectors tell their texts."""
    fixtures = _fixtures()
    from fake_embedder import fake_embedder

    from golem_core.server.embedding import OPTION, ServedEmbedder

    loaded, _ = fake_embedder(limit=64, width=256)
    part = ServedEmbedder("fake-embedder", loaded)

    def prepare(server: Any) -> None:
        server.parts[OPTION], server.chat, server.name = part, None, part.name

    for launch in fixtures.servers():
        yield launch(prepare=prepare)
    part.close()
