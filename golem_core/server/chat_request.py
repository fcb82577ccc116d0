"""What a chat request asks for: OpenAI's fields with llama.cpp's, checked in a fixed order and turned into a
`GenerationRequest` for the engine.

Everything here happens before a slot is taken, on a worker thread: reading the JSON, rendering the template,
and tokenising may take long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from golem_core.engine import GenerationRequest, constraint
from golem_core.errors import BadRequest
from golem_core.media.apart import readable
from golem_core.sampling import SamplingParams
from golem_core.sampling.params import LARGEST
from golem_core.server.bodies import Number, read_body, shown, whole
from golem_core.server.constraints import asked_grammar
from golem_core.server.messages import Message, conversation
from golem_core.server.tools import declared_tools

if TYPE_CHECKING:
    from golem_core.engine.media import Span
    from golem_core.server.loading import LoadedChat

__all__ = ["Asked", "ChatRequest", "asked", "prepare", "rendered"]


class StreamOptions(msgspec.Struct):
    """How a stream is to be written."""

    include_usage: Annotated[bool | None, Meta(description="End the stream with a chunk that has the usage.")] = None


class ChatRequest(msgspec.Struct):
    """The body of POST /v1/chat/completions; null is the same as absent."""

    messages: Annotated[list[Message] | None, Meta(description="The conversation; one message at least.")] = None
    tools: Annotated[list[Any] | None, Meta(description="Functions that the model may call.")] = None
    tool_choice: Annotated[Any, Meta(description='May be "auto", or "none" to call nothing.')] = None
    stream: Annotated[bool | None, Meta(description="Answer as a stream of events.")] = None
    stream_options: Annotated[StreamOptions | None, Meta(description="How a stream is to be written.")] = None
    max_tokens: Annotated[Number, Meta(description="The most tokens of the answer.")] = None
    max_completion_tokens: Annotated[Number, Meta(description="The same, and counts before it.")] = None
    temperature: Annotated[float | None, Meta(description="Divides the logits; 0 takes the likeliest token.")] = None
    top_p: Annotated[float | None, Meta(description="The mass of the likeliest tokens that may be drawn.")] = None
    top_k: Annotated[Number, Meta(description="How many of the likeliest tokens may be drawn; 0 is all.")] = None
    min_p: Annotated[float | None, Meta(description="The least probability, as a part of the greatest.")] = None
    seed: Annotated[Number, Meta(description="Starts the random numbers; negative: another one each time.")] = None
    repeat_penalty: Annotated[float | None, Meta(description="Divides the logits of tokens that were there.")] = None
    repeat_last_n: Annotated[Number, Meta(description="How many tokens the penalties look back; -1 is all.")] = None
    frequency_penalty: Annotated[float | None, Meta(description="Taken off for each time that a token was there.")] = (
        None
    )
    presence_penalty: Annotated[float | None, Meta(description="Taken off the logits of tokens that were there.")] = (
        None
    )
    logit_bias: Annotated[Any, Meta(description="Added to logits: an object of token id to bias, or pairs.")] = None
    stop: Annotated[str | list[str] | None, Meta(description="Texts at which the answer ends.")] = None
    response_format: Annotated[Any, Meta(description="Of the type text, json_object, or json_schema.")] = None
    grammar: Annotated[str | None, Meta(description="A GBNF grammar that the answer must follow.")] = None
    json_schema: Annotated[Any, Meta(description="A JSON schema that the answer must follow.")] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Meta(description="Variables of the chat template, such as enable_thinking.")
    ] = None
    reasoning_effort: Annotated[str | None, Meta(description='Thinks first unless it is "none".')] = None
    n: Annotated[Number, Meta(description="How many answers; one is drawn.")] = None
    logprobs: Annotated[Any, Meta(description="Not reported here; refused when true.")] = None


@dataclass(frozen=True)
class Asked:
    """A request that can be answered; `tools` are the functions that may be called, None where none may."""

    generation: GenerationRequest
    stream: bool
    include_usage: bool
    tools: list[dict[str, Any]] | None = None


def prepare(chat: LoadedChat, body: bytes, relayed: bool = False) -> Asked:
    """Read a request, which a proxy may have `relayed`.

    Raises BadRequest for the first thing about it that cannot be done.
    """
    request, plain = read_body(body, ChatRequest)
    return asked(chat, request, plain, relayed=relayed)


def asked(
    chat: LoadedChat,
    request: ChatRequest,
    plain: dict[str, Any],
    prompt: list[int] | None = None,
    *,
    relayed: bool = False,
) -> Asked:
    """What a request that was read asks for; `plain` has the fields that the struct does not know too.

    `prompt` is what to continue in place of the conversation.
    """
    if not request.messages and prompt is None:
        raise BadRequest("messages: the conversation has no message", param="messages")
    if request.n is not None and request.n != 1:
        raise BadRequest(f"n: {shown(request.n)} answers were asked for, but one answer is drawn", param="n")
    if request.logprobs:
        raise BadRequest("logprobs: this server does not report log-probabilities", param="logprobs")
    grammar = asked_grammar(chat.model, request)
    tools = declared_tools(request.tools, request.tool_choice)
    sampling = _sampling(chat, request, plain)
    budget = _budget(request) or chat.answer_budget
    stop = _stop(request)
    media: tuple[Span, ...] = ()
    if prompt is None:
        messages, given = conversation(request.messages or [], chat.media, relayed=relayed)
        text = chat.text(messages, tools, _template_settings(request))
        prompt, media = chat.place(chat.tokens(text), given)
    if grammar is not None:
        thinks = _template_settings(request)["enable_thinking"]
        sampling = replace(sampling, grammar=constraint(chat.model, grammar, prompt, thinks=thinks))
    generation = GenerationRequest(prompt=prompt, max_tokens=budget, sampling=sampling, stop=stop, media=media)
    options = request.stream_options
    return Asked(generation, bool(request.stream), bool(options and options.include_usage), tools)


def rendered(chat: LoadedChat, request: ChatRequest, relayed: bool = False) -> str:
    """The text of the request's conversation, up to where the model speaks."""
    tools = declared_tools(request.tools, request.tool_choice)
    messages, _ = conversation(request.messages or [], chat.media, relayed=relayed)
    return readable(chat.text(messages, tools, _template_settings(request)))


def _budget(request: ChatRequest) -> int | None:
    """The most tokens that the answer may have, when the request says so; only a positive number counts."""
    for field in ("max_completion_tokens", "max_tokens"):
        value = whole(getattr(request, field), field)
        if value is not None and value > 0:
            return value
    return None


MOST_STOPS = 1000
MOST_STOP_BYTES = 64 << 10  # of all of them


def _stop(request: ChatRequest) -> tuple[str, ...]:
    """The texts at which the answer ends; empty ones count as absent."""
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if len(stop) > MOST_STOPS:
        raise BadRequest(f"stop: {len(stop)} texts were given, {MOST_STOPS} at most are taken", param="stop")
    size = sum(len(each.encode("utf-8", "surrogatepass")) for each in stop)
    if size > MOST_STOP_BYTES:
        raise BadRequest(f"stop: the texts have {size} bytes, {MOST_STOP_BYTES} at most are taken", param="stop")
    return tuple(each for each in stop if each)


_PLAIN = ("temperature", "top_p", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty")


def _sampling(chat: LoadedChat, request: ChatRequest, plain: dict[str, Any]) -> SamplingParams:
    """The request's sampling fields, over what the model's file recommends."""
    preset = chat.model.sampling
    values: dict[str, Any] = {name: getattr(preset, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    given = {name: getattr(request, name) for name in _PLAIN}
    given |= {name: whole(getattr(request, name), name) for name in ("top_k", "repeat_last_n")}
    given["seed"] = whole(request.seed, "seed", most=(1 << 64) - 1)
    values |= {name: value for name, value in given.items() if value is not None}
    seed = values.get("seed")
    if seed is not None and seed < 0:
        values["seed"] = None
    known = {field.name for field in msgspec.structs.fields(ChatRequest)}
    return SamplingParams(
        **values,
        logit_bias=_logit_bias(chat, request.logit_bias),
        extra={name: value for name, value in plain.items() if name not in known},
    )


_LONGEST_TEXTS = 1 << 16  # characters of the texts that logit_bias names tokens by


def _logit_bias(chat: LoadedChat, given: Any) -> dict[int, float]:
    """OpenAI's object of token id → bias, or llama.cpp's array of [token id or text, bias]; false forbids."""
    pairs: list[Any]
    if given is None:
        return {}
    if isinstance(given, dict):
        pairs = list(given.items())
    elif isinstance(given, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        pairs = given
    else:
        raise BadRequest(f"logit_bias: expected an object of token id to bias, got {shown(given)}", param="logit_bias")
    size = chat.model.vocab_size
    if len(pairs) > size:
        raise BadRequest(f"logit_bias: {len(pairs)} biases, and there are {size} tokens", param="logit_bias")
    written = sum(len(token) for token, _ in pairs if isinstance(token, str) and not _is_number(token))
    if written > _LONGEST_TEXTS:
        raise BadRequest(
            f"logit_bias: its texts have {written} characters; {_LONGEST_TEXTS} are allowed", param="logit_bias"
        )
    biases: dict[int, float] = {}
    for token, bias in pairs:
        if bias is False:
            bias = -math.inf
        elif isinstance(bias, bool) or not isinstance(bias, int | float) or abs(bias) > LARGEST:
            raise BadRequest(
                f"logit_bias: the bias of {shown(token)} is {shown(bias)}, not a number that a logit can take",
                param="logit_bias",
            )
        for identity in _tokens(chat, token):
            if not 0 <= identity < chat.model.vocab_size:
                raise BadRequest(f"logit_bias: {identity} is not a token; there are {size}", param="logit_bias")
            biases[identity] = float(bias)
    return biases


def _tokens(chat: LoadedChat, token: Any) -> list[int]:
    if isinstance(token, int) and not isinstance(token, bool):
        return [token]
    if isinstance(token, str):
        return [int(token)] if _is_number(token) else chat.model.tokenizer.encode(token)
    raise BadRequest(f"logit_bias: {shown(token)} is not a token id or a text", param="logit_bias")


def _is_number(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _template_settings(request: ChatRequest) -> dict[str, Any]:
    """The variables of the chat template that the request sets."""
    settings: dict[str, Any] = {"enable_thinking": request.reasoning_effort not in (None, "none")}
    if settings["enable_thinking"]:
        settings["reasoning_effort"] = request.reasoning_effort
    given = request.chat_template_kwargs or {}
    settings |= {name: value for name, value in given.items() if (name, value) != ("enable_thinking", None)}
    for name, kinds in (("enable_thinking", (bool,)), ("preserve_thinking", (bool, type(None)))):
        if name in settings and not isinstance(settings[name], kinds):
            raise BadRequest(
                f"chat_template_kwargs.{name}: expected true or false, got {shown(settings[name])}",
                param="chat_template_kwargs",
            )
    return settings
