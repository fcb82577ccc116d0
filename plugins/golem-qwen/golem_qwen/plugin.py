"""The hooks: what golem-qwen opens.

Plugins are imported at every start, so what a model needs is imported when one is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from golem_core import Architecture, ChatModel, hookimpl

if TYPE_CHECKING:
    from golem_core import ModelFile


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [
        Architecture(("qwen3",), ChatModel, open_qwen3),
        Architecture(("qwen35", "qwen3.8"), ChatModel, open_qwen35),
    ]


def open_qwen3(file: ModelFile) -> ChatModel:
    from golem_qwen import opening

    return opening.open_qwen3(file)


def open_qwen35(file: ModelFile) -> ChatModel:
    from golem_qwen import opening

    return opening.open_qwen35(file)
