"""The conversation of a request: OpenAI's messages checked and brought into the form that chat templates read.

Comes in: the decoded `messages` array.  Goes out: a list of dicts with a role, text content, and, where they
belong, reasoning, calls (arguments as an object) and the call that a result answers; and the pictures and recordings
in the order in which the conversation has them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from golem_core.errors import BadRequest
from golem_core.media.parts import read_content
from golem_core.media.prompt import MediaReader, known
from golem_core.media.sources import Files, Kind, Medium, read_source
from golem_core.server.bodies import shown

__all__ = ["Message", "conversation"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


class Message(msgspec.Struct):
    """One message as it comes over the wire."""

    role: Annotated[str | None, Meta(description="May be system, developer, user, assistant, or tool.")] = None
    content: Annotated[Any, Meta(description="A text, or an array of parts.")] = None
    name: Annotated[str | None, Meta(description="Who speaks, or the function whose result this is.")] = None
    reasoning_content: Annotated[str | None, Meta(description="What the assistant thought before.")] = None
    tool_calls: Annotated[list[Any] | None, Meta(description="Calls of the assistant.")] = None
    tool_call_id: Annotated[str | None, Meta(description="The call whose result this is.")] = None


def conversation(
    messages: list[Message], reader: MediaReader | None = None, *, relayed: bool = False
) -> tuple[list[dict[str, Any]], list[Medium]]:
    """The messages as a template reads them, and their media, which `reader` says are taken.  No file is read where
    the request is `relayed` by a proxy.

    Content with media is a list of parts: the pictures, the recordings, the text.  Raises BadRequest naming the message
    by its index.
    """
    media: list[Medium] = []
    files = None if reader is None or relayed else reader.files
    read: list[dict[str, Any]] = []
    calls: dict[str, str] = {}  # calls of the assistant message that results may still answer: id → name
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.role not in _ROLES:
            given = shown(message.role)
            raise _bad(f"{where}.role: {given} is not one of {', '.join(_ROLES)}")
        entry: dict[str, Any] = {
            "role": "system" if message.role == "developer" else message.role,
            "content": _content(message.content, where, reader, files, media),
        }
        if message.name is not None:
            entry["name"] = message.name
        if message.role == "tool":
            identity = _answered(message, calls, open_calls, where)
            entry["tool_call_id"] = identity
            entry.setdefault("name", calls[identity])
        else:
            calls, open_calls = {}, []
        if message.role == "assistant":
            if message.reasoning_content:
                entry["reasoning_content"] = message.reasoning_content
            if message.tool_calls:
                made = [_call(call, f"{where}.tool_calls[{n}]") for n, call in enumerate(message.tool_calls)]
                entry["tool_calls"] = made
                calls = {call["id"]: call["function"]["name"] for call in made}
                open_calls = list(calls)
        read.append(entry)
    return read, media


def _answered(message: Message, calls: dict[str, str], open_calls: list[str], where: str) -> str:
    """The id of the call that a result answers: the one it names, or the first that has no result yet."""
    identity = message.tool_call_id
    if not identity:
        if not open_calls:
            raise _bad(f"{where}: a tool result without tool_call_id, and no call before it is waiting for one")
        identity = open_calls[0]
    if identity not in calls:
        raise _bad(f"{where}.tool_call_id: {shown(identity)} answers no call of the assistant message before it")
    if identity in open_calls:
        open_calls.remove(identity)
    return identity


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise _bad(f"{where}: expected a call with function.name, got {shown(call)}")
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            raise _bad(f"{where}.function.arguments: not JSON: {shown(arguments)}") from None
    if arguments is None or arguments == "" or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}
    if not isinstance(arguments, dict):
        raise _bad(f"{where}.function.arguments: expected an object, got {shown(arguments)}")
    identity = call.get("id")
    if identity is not None and not isinstance(identity, str):
        raise _bad(f"{where}.id: expected a text, got {shown(identity)}")
    return {"id": identity or where, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def _content(
    content: Any, where: str, reader: MediaReader | None, files: Files | None, media: list[Medium]
) -> str | list[dict[str, Any]]:
    """A text, or parts where there are media among them, which are added to `media`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _bad(f"{where}.content: expected a text or an array of parts, got {shown(content)}")

    def source(kind: Kind, given: Any, at: str) -> Medium:
        if isinstance(given, str) and given[:8].lower().startswith(("http://", "https://")):
            return read_source(kind, given, at, None)
        known(reader.media if reader else None, kind, at)
        if isinstance(given, Medium):  # of a caller in this process
            return given
        if not isinstance(given, str):
            raise _bad(f"{at}: expected a text, got {shown(given)}")
        return read_source(kind, given, at, files)

    read, found = read_content(content, f"{where}.content", source)
    media += found
    return read


def _bad(message: str) -> BadRequest:
    return BadRequest(message, param="messages")
