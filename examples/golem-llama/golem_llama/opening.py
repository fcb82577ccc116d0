"""From an open file to a model that converses: its facts, tensors, tokenizer, template and markers."""

from __future__ import annotations

from functools import partial

from golem_core import (
    ChatModel,
    ChatTemplate,
    JsonCalls,
    Markers,
    ModelFile,
    SamplingDefaults,
    check_tensors,
    tokenizer_from_metadata,
)
from golem_llama.model import LlamaConfig, build


def open_llama(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = LlamaConfig.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors())
    template = ChatTemplate.read(file.metadata, tokenizer)
    return ChatModel(
        name=file.name,
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
