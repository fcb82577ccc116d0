"""From an open file to a model that converses: its facts, tensors, tokenizer, templates and markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from golem_core import (
    ChatModel,
    ChatTemplate,
    Drafting,
    Graph,
    JsonCalls,
    Markers,
    ModelFile,
    SamplingDefaults,
    TaggedCalls,
    Tokenizer,
    Unsupported,
    check_tensors,
    tokenizer_from_metadata,
)
from golem_qwen import prediction, projector, qwen3, qwen35, templates
from golem_qwen.config import suppressed, vocabulary
from golem_qwen.rotation import PREFIX, Rotation, refuse_unlisted

MARKERS = Markers(
    thought=("<think>", "</think>"),
    call=("<tool_call>", "</tool_call>"),
    syntaxes=(JsonCalls(), TaggedCalls()),
)
"""Models are read in both syntaxes of calls, whichever their template asks for."""


def open_qwen3(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = qwen3.Qwen3Config.read(file, vocabulary(file, tokenizer))
    check_tensors(file, cfg.tensors())
    refuse_unlisted(file, None, cfg.tensors())
    if Rotation.read(file) is not None:
        raise Unsupported(f"{file.path}: {PREFIX}: golem-qwen reads rotated matrices in files of qwen35, not of qwen3")
    return chat_model(file, tokenizer, cfg, qwen3.build, templates.QWEN3)


def open_qwen35(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = qwen35.Qwen35Config.read(file, vocabulary(file, tokenizer))
    tensors = [*cfg.tensors(), *(prediction.tensors(cfg) if cfg.predicting else ())]
    check_tensors(file, tensors)
    refuse_unlisted(file, cfg.rotation, tensors)
    drafting = Drafting(
        build=partial(qwen35.build, cfg, file.weights, hidden=True), guess=partial(prediction.build, cfg, file.weights)
    )
    model = chat_model(file, tokenizer, cfg, qwen35.build, templates.QWEN35)
    model = replace(model, projector=partial(projector.bind, cfg, file.weights, tokenizer))
    return replace(model, drafting=drafting) if cfg.predicting else model


def chat_model(
    file: ModelFile,
    tokenizer: Tokenizer,
    cfg: qwen3.Qwen3Config | qwen35.Qwen35Config,
    build: Callable[..., Graph],
    fallback_template: str,
) -> ChatModel:
    return ChatModel(
        name=file.name,
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(build, cfg, file.weights),
        tokenizer=tokenizer,
        template=ChatTemplate.read(file.metadata, tokenizer),
        fallback_template=fallback_template,
        suppress=suppressed(file, tokenizer),
        sampling=SamplingDefaults.read(file.metadata),
        markers=MARKERS,
        file=file,
    )
