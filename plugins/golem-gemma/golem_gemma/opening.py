"""From an open file to a model that converses: its facts, tensors, tokenizer, templates and markers."""

from __future__ import annotations

from functools import partial

from golem_core import (
    ChatModel,
    ChatTemplate,
    ModelFile,
    SamplingDefaults,
    check_tensors,
    tokenizer_from_metadata,
)
from golem_gemma import answers, gemma3, gemma4, projector, templates
from golem_gemma.older_templates import Gemma4Template


def open_gemma3(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = gemma3.Gemma3Config.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors())
    return ChatModel(
        name=file.name,
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(gemma3.build, cfg, file.weights),
        tokenizer=tokenizer,
        template=ChatTemplate.read(file.metadata, tokenizer),
        fallback_template=templates.GEMMA3,
        suppress=suppressed(file, cfg.vocabulary),
        sampling=SamplingDefaults.read(file.metadata),
        projector=partial(projector.bind_gemma3, cfg, file.weights, tokenizer),
        file=file,
    )


def open_gemma4(file: ModelFile) -> ChatModel:
    tokenizer = tokenizer_from_metadata(file.metadata)
    cfg = gemma4.Gemma4Config.read(file, tokenizer.vocab_size)
    check_tensors(file, cfg.tensors(file.weights))
    return ChatModel(
        name=file.name,
        architecture=file.architecture,
        vocab_size=cfg.vocabulary,
        context_train=cfg.context,
        build=partial(gemma4.build, cfg, file.weights),
        tokenizer=tokenizer,
        template=Gemma4Template.read(file.metadata, tokenizer),
        fallback_template=templates.gemma4(empty_thought=begins_with_empty_thought(file, cfg)),
        suppress=suppressed(file, cfg.vocabulary),
        sampling=SamplingDefaults.read(file.metadata),
        markers=answers.GEMMA4,
        projector=partial(projector.bind_gemma4, cfg, file.weights, tokenizer),
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
