"""The embedding model of a server, and what the endpoints that speak to it share.

`open_embedder(options)` loads it for `golem serve`; `embedder_of(server)` finds it; `embedded` has texts embedded
while somebody listens for the client hanging up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from litestar import Request

from golem_core import plugins
from golem_core.embedder import LoadedEmbedder
from golem_core.errors import BadRequest, Unavailable
from golem_core.progress import LoadProgress
from golem_core.server.disconnect import unless_gone
from golem_core.server.loading import EMBED as OPTION
from golem_core.server.loading import model_name
from golem_core.server.log import duration, entry

if TYPE_CHECKING:
    from golem_core.engine.embedding import Embedded
    from golem_core.server.app import Server

__all__ = [
    "OPTION",
    "ServedEmbedder",
    "check_count",
    "embedded",
    "embedder_of",
    "numbers",
    "open_embedder",
]

MOST_TEXTS = 1 << 14
"""Texts that a request may have: their vectors are held until all are there."""


@dataclass
class ServedEmbedder:
    """An embedding model as a part of a server."""

    name: str
    loaded: LoadedEmbedder
    device: str = "cpu"
    load_seconds: float = 0.0
    described: str = field(init=False)

    def __post_init__(self) -> None:
        model = self.loaded.model
        self.described = (
            f"{self.name}: {model.architecture}, vectors of {model.dimensions}, texts of {model.limit} positions, "
            f"on {self.device}, loaded in {duration(self.load_seconds)}"
        )

    def cancel(self) -> None:
        self.loaded.engine.cancel_all()

    def close(self) -> None:
        self.loaded.close()


def open_embedder(options: Mapping[str, Any]) -> ServedEmbedder:
    """Load the embedding model that the options name.  Raises GolemError for what cannot be used."""
    from golem_core.api import load_embedder

    start = time.perf_counter()
    path = Path(options[OPTION])
    with LoadProgress(f"loading {path.name}") as progress:
        loaded = load_embedder(
            path,
            device=options["device"],
            threads=options["threads"],
            progress=progress,
            **{name: options[name] for name in plugins.device_options() & options.keys()},
        )
    return ServedEmbedder(model_name(path), loaded, options["device"], time.perf_counter() - start)


def embedder_of(server: Server) -> ServedEmbedder | None:
    """The server's embedding model, if there is one."""
    found = server.parts.get(OPTION)
    return found if isinstance(found, ServedEmbedder) else None


def check_count(count: int) -> None:
    """Raises BadRequest for more texts than a request may have."""
    if count > MOST_TEXTS:
        raise BadRequest(f"input: {count} texts were given, {MOST_TEXTS} at most are taken", param="input")


async def embedded(request: Request, served: ServedEmbedder, texts: Sequence[Sequence[int]]) -> Embedded:
    """The vectors of texts of token ids.  Raises BadRequest, ClientGone, and GolemError where the model failed."""
    future = served.loaded.engine.submit(texts)
    found = await unless_gone(request.receive, _awaited(future))
    waited = f", queued {duration(found.queued)}" if found.waited else ""
    rate = found.positions / found.seconds if found.seconds > 0 else 0.0
    entry(request.scope).notes.append(
        f"{len(texts)} text{'s' * (len(texts) != 1)}{waited}, {found.positions} positions in "
        f"{duration(found.seconds)} ({rate:.1f}/s)"
    )
    return found


async def _awaited(future: Future[Embedded]) -> Embedded:
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Unavailable("the server is stopping") from None  # the engine has cancelled the request


def numbers(row: np.ndarray[Any, Any]) -> Any:
    """A row as JSON that is written already: the vectors of a request would be many objects all at once."""
    return msgspec.Raw(msgspec.json.encode(row.tolist()))
