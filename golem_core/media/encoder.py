"""What makes rows of pictures and recordings on a device, and remembers them by what they were made of."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.errors import GolemError

if TYPE_CHECKING:
    from golem_core.engine.roles import Media, MediaKind
    from golem_core.graph import Columns

KEPT = 32
"""Encoded media that are kept; the one that came first goes first."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """What a picture or a recording became: rows float32 (count, width), and their places if they have any."""

    rows: np.ndarray
    places: np.ndarray | None = None


class MediaEncoder:
    """Runs the graphs of `media`'s kinds on `device`, one picture or recording at a time.

    Compiling raises Unsupported naming what the device cannot run.  Safe to use from several threads.
    """

    def __init__(self, media: Media, device: Any):
        self.media = media
        self._passes = {
            (kind.name, name): device.compile(
                graph.build(),
                slots=graph.runs,
                context=graph.columns,
                width=graph.columns,
                scored=graph.columns,
            )
            for kind in media.kinds
            for name, graph in kind.graphs.items()
        }
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, bytes], Encoded] = {}

    def kept(self, kind: MediaKind, content: bytes) -> Encoded | None:
        """What has that hash, if it was encoded lately."""
        return self._kept.get((kind.name, content))

    def rows(self, kind: MediaKind, content: bytes, decoded: np.ndarray) -> np.ndarray:
        """The rows alone of what `encoded` makes."""
        return self.encoded(kind, content, decoded).rows

    def encoded(self, kind: MediaKind, content: bytes, decoded: np.ndarray) -> Encoded:
        """What becomes of what was decoded from a file whose hash is `content`.

        Raises GolemError where the package of the architecture makes something else.
        """

        def run(name: str, columns: Columns) -> dict[str, np.ndarray]:
            compiled = self._passes[kind.name, name]
            if compiled.saved_bytes:
                for slot in np.unique(columns.slot):
                    compiled.restore(int(slot), None)
            outputs = compiled.run(columns)
            return {output: rows.copy() for output, rows in outputs.items()}

        with self._lock:
            rows = np.ascontiguousarray(kind.encode(decoded, run), np.float32)
            if rows.shape != (kind.count(decoded), self.media.width):
                raise GolemError(
                    f"the {kind.name} became rows of shape {list(rows.shape)}, not "
                    f"{[kind.count(decoded), self.media.width]}"
                )
            if not np.isfinite(rows).all():
                raise GolemError(f"the projector made rows of the {kind.name} that are not finite numbers")
            places = None if kind.places is None else np.asarray(kind.places(decoded), np.int64)
            if places is not None and (places.shape != (len(rows), self.media.axes) or places.min(initial=0) < 0):
                raise GolemError(
                    f"the {kind.name} has places of shape {list(places.shape)}, not {[len(rows), self.media.axes]} "
                    "numbers from 0 on"
                )
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            made = self._kept[kind.name, content] = Encoded(rows, places)
            return made
