"""What llama.cpp's server offers to those who count tokens: POST /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, post
from msgspec import Meta

from golem_core.errors import BadRequest
from golem_core.server.bodies import Number, read_body, shown, whole
from golem_core.server.chat_request import ChatRequest, rendered
from golem_core.server.guard import is_relayed
from golem_core.server.openapi import described

if TYPE_CHECKING:
    from golem_core.server.app import Server
    from golem_core.server.loading import LoadedChat

__all__ = ["handlers"]


MOST_TEXT = 4 << 20
"""Characters that are cut into tokens at once: each may take 300 bytes of memory meanwhile."""


class TokenizeRequest(msgspec.Struct):
    """A text to be cut into tokens."""

    content: Annotated[
        str | list[str | Number] | None, Meta(description="The text, or an array of texts and ids of tokens.")
    ] = None
    add_special: Annotated[bool | None, Meta(description="Add the tokens that the file puts around texts.")] = None
    parse_special: Annotated[bool | None, Meta(description="Read the names of control tokens as these; true.")] = None
    with_pieces: Annotated[bool | None, Meta(description="Tell what each token stands for.")] = None


class Piece(msgspec.Struct):
    """A token with what it stands for."""

    id: Annotated[int, Meta(description="The token.")]
    piece: Annotated[str | list[int], Meta(description="Its text, or its bytes where they are no UTF-8.")]


class Tokens(msgspec.Struct):
    """The tokens of a text."""

    tokens: Annotated[Sequence[int | Piece], Meta(description="Ids, or ids with their pieces if asked for.")]


class DetokenizeRequest(msgspec.Struct):
    """Tokens whose text is wanted."""

    tokens: Annotated[list[Number] | None, Meta(description="The ids.")] = None


class Text(msgspec.Struct):
    """The text of tokens."""

    content: Annotated[str, Meta(description="The text, control tokens by their names.")]


class Prompt(msgspec.Struct):
    """A conversation as the model reads it."""

    prompt: Annotated[str, Meta(description="What the chat template wrote.")]


def handlers(server: Server) -> list[Any]:
    """The route handlers; they need a conversation model."""
    chat = server.chat
    assert chat is not None

    @post("/tokenize", status_code=200, **described(body=TokenizeRequest, answer=Tokens))
    async def tokenize(request: Request) -> Tokens:
        """Cut a text into tokens."""
        return await asyncio.to_thread(_tokenize, chat, await request.body())

    @post("/detokenize", status_code=200, **described(body=DetokenizeRequest, answer=Text))
    async def detokenize(request: Request) -> Text:
        """Join tokens to a text."""
        return await asyncio.to_thread(_detokenize, chat, await request.body())

    @post("/apply-template", status_code=200, **described(body=ChatRequest, answer=Prompt))
    async def apply_template(request: Request) -> Prompt:
        """Write a conversation down as the model would read it."""
        return await asyncio.to_thread(_apply_template, chat, await request.body(), is_relayed(request.scope))

    return [tokenize, detokenize, apply_template]


def _tokenize(chat: LoadedChat, body: bytes) -> Tokens:
    request, _ = read_body(body, TokenizeRequest)
    if request.content is None:
        raise BadRequest("content: there is no text to cut into tokens", param="content")
    tokenizer = chat.model.tokenizer
    parts = [request.content] if isinstance(request.content, str) else request.content
    size = sum(len(part) for part in parts if isinstance(part, str))
    if size > MOST_TEXT:
        raise BadRequest(f"content: {size} characters; {MOST_TEXT} at most are cut at once", param="content")
    parse_special = request.parse_special is not False
    ids: list[int] = []
    first = 0
    if request.add_special and parts and isinstance(parts[0], str):
        ids += tokenizer.encode(parts[0], add_special=True, parse_special=parse_special)
        first = 1
    rest = parts[first:]
    texts = tokenizer.encode_many([part for part in rest if isinstance(part, str)], parse_special=parse_special)
    for index, part in enumerate(rest, first):
        if isinstance(part, str):
            ids += next(texts)
        else:
            ids.append(_token(chat, part, f"content[{index}]", "content"))
    if not request.with_pieces:
        return Tokens(ids)
    return Tokens([Piece(id, _piece(tokenizer.piece(id, special=True))) for id in ids])


def _piece(found: bytes) -> str | list[int]:
    try:
        return found.decode()
    except UnicodeDecodeError:
        return list(found)


def _detokenize(chat: LoadedChat, body: bytes) -> Text:
    request, _ = read_body(body, DetokenizeRequest)
    if request.tokens is None:
        raise BadRequest("tokens: there are no tokens to join", param="tokens")
    ids = [_token(chat, value, f"tokens[{index}]", "tokens") for index, value in enumerate(request.tokens)]
    return Text(chat.model.tokenizer.decode(ids, special=True))


def _token(chat: LoadedChat, value: Number, where: str, param: str) -> int:
    """The id that stands `where`; BadRequest for what is none of this vocabulary."""
    id = whole(value, where)
    if id is None or not 0 <= id < chat.model.vocab_size:
        raise BadRequest(f"{where}: {shown(value)} is not a token; there are {chat.model.vocab_size}", param=param)
    return id


def _apply_template(chat: LoadedChat, body: bytes, relayed: bool) -> Prompt:
    request, _ = read_body(body, ChatRequest)
    if not request.messages:
        raise BadRequest("messages: the conversation has no message", param="messages")
    return Prompt(rendered(chat, request, relayed))
