"""The hooks: what golem-nomic opens.

Plugins are imported at every start, so what a model needs is imported when one is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from golem_core import Architecture, Embedder, hookimpl

if TYPE_CHECKING:
    from golem_core import ModelFile


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [Architecture(("nomic-bert-moe",), Embedder, open_nomic)]


def open_nomic(file: ModelFile) -> Embedder:
    from golem_nomic import opening

    return opening.open_nomic(file)
