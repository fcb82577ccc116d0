"""What llama.cpp's server tells about itself: GET /props, GET /slots, and GET /metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import HTTPException
from msgspec import Meta

from golem_core.sampling import SamplingParams
from golem_core.server.embedding import ServedEmbedder, embedder_of
from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.server.app import Server
    from golem_core.server.loading import LoadedChat

__all__ = ["handlers"]


class Settings(msgspec.Struct):
    """How an answer is sampled unless its request says otherwise."""

    temperature: Annotated[float, Meta(description="Divides the logits.")]
    top_k: Annotated[int, Meta(description="How many of the likeliest tokens may be drawn; 0 is all.")]
    top_p: Annotated[float, Meta(description="The mass of the likeliest tokens that may be drawn.")]
    min_p: Annotated[float, Meta(description="The least probability, as a part of the greatest.")]
    repeat_last_n: Annotated[int, Meta(description="How many tokens the penalties look back.")]
    repeat_penalty: Annotated[float, Meta(description="Divides the logits of tokens that were there.")]
    frequency_penalty: Annotated[float, Meta(description="Taken off a logit for each time that its token was there.")]
    presence_penalty: Annotated[float, Meta(description="Taken off the logits of tokens that were there.")]
    seed: Annotated[int, Meta(description="Starts the random numbers; -1 is another one each time.")]
    n_predict: Annotated[int, Meta(description="The most tokens of an answer.")]


class Generation(msgspec.Struct):
    """What a slot holds, and how it answers."""

    n_ctx: Annotated[int, Meta(description="Positions that a conversation may have.")]
    params: Annotated[Settings, Meta(description="How an answer is sampled.")]


class Modalities(msgspec.Struct):
    """What a message may be besides text."""

    vision: Annotated[bool, Meta(description="Whether the model sees.")] = False
    audio: Annotated[bool, Meta(description="Whether the model hears.")] = False


class Embedding(msgspec.Struct):
    """The embedding model."""

    model_path: Annotated[str, Meta(description="The file or directory of the model.")]
    model_alias: Annotated[str, Meta(description="What /v1/models says.")]
    n_ctx: Annotated[int, Meta(description="Positions that a text may have.")]
    n_embd: Annotated[int, Meta(description="Components of a vector.")]


class Props(msgspec.Struct):
    """What is loaded, and how it answers unless a request says otherwise."""

    default_generation_settings: Annotated[
        Generation | None, Meta(description="How a request is answered; null without a conversation model.")
    ]
    total_slots: Annotated[int, Meta(description="Conversations held at once.")]
    model_path: Annotated[str, Meta(description="The file or directory of the model.")]
    model_alias: Annotated[str, Meta(description="What /v1/models says.")]
    chat_template: Annotated[str, Meta(description="Jinja source of the chat template; empty without one.")]
    bos_token: Annotated[str, Meta(description="The text of the token that begins a text; empty without one.")]
    eos_token: Annotated[str, Meta(description="The text of the token that ends a text; empty without one.")]
    modalities: Annotated[Modalities, Meta(description="What a message may be besides text.")]
    build_info: Annotated[str, Meta(description="The program and its version.")]
    embedding: Annotated[Embedding | None, Meta(description="The embedding model, if there is one.")] = None


class SlotInfo(msgspec.Struct):
    """One of the conversations held at once."""

    id: Annotated[int, Meta(description="The number of the slot.")]
    n_ctx: Annotated[int, Meta(description="Positions that it can hold.")]
    n_past: Annotated[int, Meta(description="Positions that it holds, for the next conversation to go on from.")]
    is_processing: Annotated[bool, Meta(description="Whether an answer is being made in it.")]


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need a conversation model or an embedding model."""
    chat, embedder = server.chat, embedder_of(server)

    @get("/props", sync_to_thread=False, **described(answer=Props))
    def props() -> Props:
        """What is loaded, and how it answers unless a request says otherwise."""
        return _props(server, chat, embedder)

    query = {"fail_on_no_slot": (str, "When given, a server without a free slot answers 503.")}

    @get("/slots", sync_to_thread=False, **described(answer=list[SlotInfo], query=query))
    def slots(request: Request) -> list[SlotInfo]:
        """The conversations held at once."""
        assert chat is not None
        states = chat.engine.slot_states()
        if "fail_on_no_slot" in request.query_params and all(state.busy for state in states):
            raise HTTPException("no slot is free", status_code=503)
        return [SlotInfo(state.index, chat.slot_context, state.positions, state.busy) for state in states]

    @get("/metrics", sync_to_thread=False, **described(answer=str))
    def metrics() -> Response[bytes]:
        """Counts for Prometheus."""
        if not server.options["metrics"]:
            once = {"x-should-retry": "false"}
            raise HTTPException("this server was started without -metrics", status_code=501, headers=once)
        text = "".join(_metrics(server, chat, embedder))
        return Response(text.encode(), media_type="text/plain; version=0.0.4")

    return [props, metrics] if chat is None else [props, slots, metrics]


def _props(server: Server, chat: LoadedChat | None, embedder: ServedEmbedder | None) -> Props:
    from golem_core.plugins import version

    build, embedding = f"golem {version()}", None
    if embedder is not None:
        held = embedder.loaded.model
        embedding = Embedding(str(held.file.path), embedder.name, held.limit, held.dimensions)
    if chat is None:
        path = "" if embedding is None else embedding.model_path
        return Props(None, 0, path, server.name, "", "", "", Modalities(), build, embedding)
    model, tokenizer = chat.model, chat.model.tokenizer
    preset, usual = model.sampling, SamplingParams()
    settings = Settings(
        temperature=preset.temperature,
        top_k=preset.top_k,
        top_p=preset.top_p,
        min_p=preset.min_p,
        repeat_last_n=usual.repeat_last_n,
        repeat_penalty=usual.repeat_penalty,
        frequency_penalty=usual.frequency_penalty,
        presence_penalty=usual.presence_penalty,
        seed=-1,
        n_predict=chat.answer_budget,
    )
    bos, eos = ("" if token is None else tokenizer.token_text(token) for token in (tokenizer.bos, tokenizer.eos))
    return Props(
        default_generation_settings=Generation(chat.slot_context, settings),
        total_slots=chat.slots,
        model_path=str(model.file.path),
        model_alias=server.name,
        chat_template="" if chat.template is None else chat.template.source,
        bos_token=bos,
        eos_token=eos,
        modalities=Modalities(chat.takes("image"), chat.takes("audio")),
        build_info=build,
        embedding=embedding,
    )


Metric = tuple[str, str, float, str]
"""Name, kind, value and meaning."""


def _metrics(server: Server, chat: LoadedChat | None, embedder: ServedEmbedder | None) -> Iterator[str]:
    """The text that Prometheus reads, under llama.cpp's names where it has them."""
    found = [] if chat is None else _of_conversations(server, chat)
    if embedder is not None:
        found += _of_embeddings(embedder)
    for name, kind, value, meaning in found:
        yield f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{name} {value}\n"


def _of_conversations(server: Server, chat: LoadedChat) -> list[Metric]:
    totals = server.totals
    busy = sum(state.busy for state in chat.engine.slot_states())
    return [
        ("llamacpp:prompt_tokens_total", "counter", totals.prompt_tokens, "Prompt tokens read."),
        ("llamacpp:prompt_seconds_total", "counter", totals.prompt_seconds, "Seconds of reading prompts."),
        ("llamacpp:tokens_predicted_total", "counter", totals.drawn_tokens, "Tokens drawn."),
        ("llamacpp:tokens_predicted_seconds_total", "counter", totals.drawn_seconds, "Seconds of drawing."),
        ("golem:prompt_tokens_cached_total", "counter", totals.cached_tokens, "Prompt tokens that were held already."),
        ("golem:tokens_guessed_total", "counter", totals.guessed_tokens, "Tokens guessed ahead."),
        ("golem:tokens_confirmed_total", "counter", totals.confirmed_tokens, "Of those, the ones that were drawn."),
        ("golem:answers_total", "counter", totals.answers, "Answers that have ended, cancelled ones among them."),
        (
            "llamacpp:prompt_tokens_seconds",
            "gauge",
            _rate(totals.prompt_tokens, totals.prompt_seconds),
            "Prompt tokens read per second.",
        ),
        (
            "llamacpp:predicted_tokens_seconds",
            "gauge",
            _rate(totals.drawn_tokens, totals.drawn_seconds),
            "Tokens drawn per second.",
        ),
        ("llamacpp:requests_processing", "gauge", busy, "Requests that have a slot."),
        ("llamacpp:requests_deferred", "gauge", chat.engine.waiting, "Requests that wait for a slot."),
    ]


def _of_embeddings(embedder: ServedEmbedder) -> list[Metric]:
    engine = embedder.loaded.engine
    return [
        ("golem:embedded_texts_total", "counter", engine.texts, "Texts embedded."),
        ("golem:embedded_positions_total", "counter", engine.positions, "Positions of embedded texts."),
        ("golem:embedding_passes_total", "counter", engine.passes, "Passes of the embedding model."),
        ("golem:embedding_seconds_total", "counter", engine.seconds, "Seconds of its passes."),
        ("golem:embedding_requests_deferred", "gauge", engine.waiting, "Requests that wait for a pass."),
    ]


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
