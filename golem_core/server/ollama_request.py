"""What ollama's clients send to POST /api/chat and /api/generate, turned into the request that OpenAI's would send.

All checks, all sampling and the template are those of the chat endpoint; here fields get the names that it knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from golem_core.errors import BadRequest
from golem_core.media.prompt import MOST_MEDIA, known
from golem_core.media.sources import Medium, read_base64
from golem_core.options import duration
from golem_core.server.bodies import Number, read_body, shown, whole
from golem_core.server.chat_request import Asked, ChatRequest, asked
from golem_core.server.messages import Message

if TYPE_CHECKING:
    from golem_core.server.loading import LoadedChat

__all__ = ["OllamaChat", "OllamaGenerate", "read_chat", "read_generate", "unloads"]

_LEVELS = ("low", "medium", "high", "max")


class OllamaOptions(msgspec.Struct):
    """How to sample, and how much; other options concern the loading of a model, which is done."""

    temperature: Annotated[float | None, Meta(description="Divides the logits; 0 takes the likeliest token.")] = None
    top_k: Annotated[Number, Meta(description="How many of the likeliest tokens may be drawn; 0 is all.")] = None
    top_p: Annotated[float | None, Meta(description="The mass of the likeliest tokens that may be drawn.")] = None
    min_p: Annotated[float | None, Meta(description="The least probability, as a part of the greatest.")] = None
    seed: Annotated[Number, Meta(description="Starts the random numbers; negative: another one each time.")] = None
    num_predict: Annotated[Number, Meta(description="The most tokens; negative: as many as have room.")] = None
    stop: Annotated[str | list[str] | None, Meta(description="Texts at which the answer ends.")] = None
    repeat_last_n: Annotated[Number, Meta(description="How many tokens the penalties look back.")] = None
    repeat_penalty: Annotated[float | None, Meta(description="Divides the logits of tokens that were there.")] = None
    presence_penalty: Annotated[float | None, Meta(description="Taken off the logits of tokens that were there.")] = (
        None
    )
    frequency_penalty: Annotated[float | None, Meta(description="Taken off for each time that a token was there.")] = (
        None
    )


class OllamaMessage(msgspec.Struct):
    """One message of a conversation."""

    role: Annotated[str | None, Meta(description='"system", "user", "assistant" or "tool".')] = None
    content: Annotated[str | None, Meta(description="The text.")] = None
    thinking: Annotated[str | None, Meta(description="What the assistant thought before.")] = None
    images: Annotated[list[Any] | None, Meta(description="Pictures, each as base64; for models with a projector.")] = (
        None
    )
    tool_calls: Annotated[list[Any] | None, Meta(description="Calls of the assistant; arguments are objects.")] = None
    tool_name: Annotated[str | None, Meta(description="The function whose result this is.")] = None
    tool_call_id: Annotated[str | None, Meta(description="The call whose result this is.")] = None


class OllamaCommon(msgspec.Struct):
    """What both endpoints take."""

    model: Annotated[str | None, Meta(description="Said again in the answer; there is one model here.")] = None
    options: Annotated[OllamaOptions | None, Meta(description="How to sample, and how much.")] = None
    format: Annotated[Any, Meta(description='"json", or the JSON schema that the answer must follow.')] = None
    think: Annotated[Any, Meta(description='Whether to think first: true, false, "low", "medium", "high", "max".')] = (
        None
    )
    stream: Annotated[bool | None, Meta(description="Whether to answer line by line; true.")] = None
    keep_alive: Annotated[Any, Meta(description="Seconds or a duration; the model stays loaded anyway.")] = None
    logprobs: Annotated[bool | None, Meta(description="Not reported here; refused when true.")] = None


class OllamaChat(OllamaCommon):
    """The body of POST /api/chat; null is the same as absent.  Without messages, it only asks for the model."""

    messages: Annotated[list[OllamaMessage] | None, Meta(description="The conversation.")] = None
    tools: Annotated[list[Any] | None, Meta(description="Functions that the model may call.")] = None


class OllamaGenerate(OllamaCommon):
    """The body of POST /api/generate; null is the same as absent.  Without a prompt, it only asks for the model."""

    prompt: Annotated[str | None, Meta(description="The text to answer.")] = None
    system: Annotated[str | None, Meta(description="A message before it.")] = None
    raw: Annotated[bool | None, Meta(description="Continue the prompt as it stands, without a template.")] = None
    context: Annotated[list[Number] | None, Meta(description="What an earlier answer gave, to go on from.")] = None
    suffix: Annotated[str | None, Meta(description="Not supported; refused unless empty.")] = None
    template: Annotated[str | None, Meta(description="Not supported; refused unless empty.")] = None
    images: Annotated[list[Any] | None, Meta(description="Pictures, each as base64; for models with a projector.")] = (
        None
    )


def read_chat(chat: LoadedChat, body: bytes) -> tuple[OllamaChat, Asked | None]:
    """Read a request; None stands for one that asks for nothing but a loaded model.  Raises BadRequest."""
    request, plain = read_body(body, OllamaChat)
    unloads(request.keep_alive)
    if not request.messages:
        return request, None
    return request, _asked(chat, request, plain, messages=_messages(chat, request.messages), tools=request.tools)


def read_generate(chat: LoadedChat, body: bytes) -> tuple[OllamaGenerate, Asked | None]:
    """The same for a single prompt.  A model without a chat template continues it as it stands."""
    request, plain = read_body(body, OllamaGenerate)
    unloads(request.keep_alive)
    pictures = _pictures(chat, request.images, "images")
    if request.suffix:
        raise BadRequest("suffix: this server completes texts at their end only", param="suffix")
    if request.template:
        message = "template: this server uses the model's own template; send a finished prompt with raw: true"
        raise BadRequest(message, param="template")
    if not request.prompt:
        return request, None
    context = [whole(value, f"context[{index}]") for index, value in enumerate(request.context or [])]
    for index, token in enumerate(context):
        if token is None or not 0 <= token < chat.model.vocab_size:
            value = shown((request.context or [])[index])
            raise BadRequest(f"context[{index}]: {value} is not a token; there are {chat.model.vocab_size}")
    prompt = [*(token for token in context if token is not None)]
    if pictures and (prompt or request.raw or chat.template is None):
        raise BadRequest("images: they go with a prompt that a chat template writes, without raw and context")
    if request.raw or chat.template is None:
        text = request.prompt if request.raw or not request.system else f"{request.system}\n\n{request.prompt}"
        tokens = chat.encode(text, add_special=True)
        return request, _asked(chat, request, plain, prompt=prompt + _without_bos(chat, tokens, again=bool(prompt)))
    messages = [Message("system", request.system)] if request.system else []
    messages.append(Message("user", _with_pictures(request.prompt, pictures)))
    found = _asked(chat, request, plain, messages=messages)
    if prompt:
        found.generation.prompt[:] = prompt + _without_bos(chat, found.generation.prompt, again=True)
    return request, found


def unloads(keep_alive: Any) -> bool:
    """Whether a `keep_alive` asks for the model to go at once.  Raises BadRequest for what is no duration."""
    if keep_alive is None:
        return False
    if isinstance(keep_alive, int | float) and not isinstance(keep_alive, bool):
        return keep_alive == 0
    try:
        if isinstance(keep_alive, str):
            return duration(keep_alive.removeprefix("-")) == 0
    except ValueError:
        pass
    message = f'keep_alive: expected seconds or a duration such as "5m", got {shown(keep_alive)}'
    raise BadRequest(message, param="keep_alive")


def _asked(
    chat: LoadedChat,
    request: OllamaCommon,
    plain: dict[str, Any],
    *,
    messages: list[Message] | None = None,
    tools: list[Any] | None = None,
    prompt: list[int] | None = None,
) -> Asked:
    options = request.options or OllamaOptions()
    budget = whole(options.num_predict, "options.num_predict")
    if budget is not None and budget < 0:
        budget = chat.slot_context
    same = (
        *("temperature", "top_k", "top_p", "min_p", "seed", "stop", "repeat_last_n", "repeat_penalty"),
        *("presence_penalty", "frequency_penalty"),
    )
    translated = ChatRequest(
        messages=messages,
        tools=tools,
        max_tokens=budget,
        response_format=_response_format(request.format),
        chat_template_kwargs=_thinking(chat, request.think),
        logprobs=request.logprobs,
        **{name: getattr(options, name) for name in same},
    )
    try:
        return asked(chat, translated, plain.get("options") or {}, prompt)
    except BadRequest as refusal:
        if refusal.param != "response_format":
            raise
        message = (
            str(refusal).replace("response_format.json_schema.schema", "format").replace("response_format", "format")
        )
        raise BadRequest(message, param="format", code=refusal.code) from None


def _response_format(given: Any) -> dict[str, Any] | None:
    if given is None or given == "":
        return None
    if given == "json":
        return {"type": "json_object"}
    if isinstance(given, dict):
        return {"type": "json_schema", "json_schema": {"name": "format", "schema": given}}
    raise BadRequest(f'format: expected "json" or a JSON schema, got {shown(given)}', param="format")


def _thinking(chat: LoadedChat, think: Any) -> dict[str, Any]:
    """The variables of the chat template for a wish to think."""
    if think is None or think is False:
        return {}
    if think is not True and think not in _LEVELS:
        levels = ", ".join(f'"{level}"' for level in _LEVELS)
        raise BadRequest(f"think: expected true, false, {levels}, got {shown(think)}", param="think")
    level = {} if think is True else {"reasoning_effort": think}
    if chat.template is None or not any(map(chat.template.takes, {"enable_thinking": True} | level)):
        raise BadRequest(f"think: {chat.name} does not support thinking: its chat template has no switch for it")
    return {"enable_thinking": True} | level


def _messages(chat: LoadedChat, given: list[OllamaMessage]) -> list[Message]:
    """OpenAI's messages for ollama's: calls get ids, and results that name a function the id of its first open call."""
    out = []
    waiting: list[tuple[str, str]] = []  # the calls without a result: function and id
    for index, message in enumerate(given):
        identity = message.tool_call_id
        calls = message.tool_calls
        if message.role == "tool":
            named = (id for name, id in waiting if name == message.tool_name)
            identity = identity or next(named, None)
            waiting = [call for call in waiting if call[1] != identity]
        elif calls:
            calls = [{"id": f"{index}.{n}"} | call if isinstance(call, dict) else call for n, call in enumerate(calls)]
            waiting = [(_function(call), call["id"]) for call in calls if isinstance(call, dict)]
        out.append(
            Message(
                role=message.role,
                content=_with_pictures(message.content, _pictures(chat, message.images, f"messages[{index}].images")),
                name=message.tool_name if message.role == "tool" else None,
                reasoning_content=message.thinking,
                tool_calls=calls,
                tool_call_id=identity,
            )
        )
    return out


def _function(call: dict[str, Any]) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, dict) else None


def _pictures(chat: LoadedChat, images: list[Any] | None, where: str) -> list[Medium]:
    """The pictures of a message, each base64."""
    if not images:
        return []
    if len(images) > MOST_MEDIA:
        raise BadRequest(
            f"{where}: {len(images)} pictures; {MOST_MEDIA} at most are taken", param=where.partition("[")[0]
        )
    found = []
    for index, image in enumerate(images):
        at = f"{where}[{index}]"
        known(None if chat.media is None else chat.media.media, "image", at)
        if not isinstance(image, str):
            raise BadRequest(f"{at}: expected base64, got {shown(image)}", param=where.partition("[")[0])
        found.append(read_base64("image", image, at))
    return found


def _with_pictures(text: str | None, pictures: list[Medium]) -> Any:
    """The content of a message as OpenAI's has it."""
    if not pictures:
        return text
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": picture} for picture in pictures]
    return [*parts, {"type": "text", "text": text or ""}]


def _without_bos(chat: LoadedChat, tokens: list[int], *, again: bool) -> list[int]:
    """`tokens` without those that begin a text twice, or `again` after a text that has begun."""
    bos = chat.model.tokenizer.bos
    while tokens and tokens[0] == bos and (again or tokens[1:2] == [bos]):
        tokens = tokens[1:]
    return tokens
