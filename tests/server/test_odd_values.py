"""Whatever value a field has, a request is read or refused: nothing else may come of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from server_fakes import fake_chat

from golem_core.errors import BadRequest
from golem_core.sampling import STAGES, SamplerChain, SamplerContext
from golem_core.server.chat_request import ChatRequest, prepare

ODD: list[Any] = [None, True, False, 0, -1, 1, 8.0, 1.5, 1e300, -1e300, 10**30, 2**63, -(2**63), 2**64, 10**400]
ODD += ["", "x", "auto", "none", "\u0000", "😀", "-5", "٣"]
ODD += [[], {}, [None], [[]], [{}], [1, "a"], [["1", 1]], [["a", False]], [[True, 1]], [[1, 2, 3]], ["a", ""]]
ODD += [{"type": "text"}, {"type": None}, {"type": ["a"]}, {"a": {"b": [1]}}, {"1": 1}, {"": 1}, {"1": None}]
ODD += [{"1": 10**400}, {"include_usage": "x"}, {"function": 1}, [{"function": {"name": "f"}}]]
ODD += [[{"type": "function", "function": {"name": "f", "arguments": None}}], [{"id": 5, "function": {"name": "f"}}]]

FIELDS = [field.name for field in msgspec.structs.fields(ChatRequest)]
CHAT = fake_chat()


def read_or_refused(request: dict[str, Any]) -> None:
    try:
        asked = prepare(CHAT, json.dumps(request).encode()).generation
        chain = SamplerChain.build(STAGES, asked.sampling, SamplerContext(300, asked.prompt, CHAT.model.tokenizer))
        assert 0 <= chain.draw(np.zeros(300, np.float32)) < 300
    except BadRequest as refusal:
        assert str(refusal)


@pytest.mark.parametrize("field", FIELDS)
def test_in_a_request(field) -> None:
    for value in ODD:
        read_or_refused({"messages": [{"role": "user", "content": "hi"}], field: value})


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
@pytest.mark.parametrize("field", ["role", "content", "name", "reasoning_content", "tool_calls", "tool_call_id"])
def test_in_a_message(field, role) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for value in ODD:
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]
        read_or_refused({"messages": [*said, {"role": role, "content": "hi", field: value}]})


@pytest.mark.parametrize("kind", ["text", "image_url", "input_audio"])
def test_in_a_part(kind) -> None:
    for value in ODD:
        read_or_refused({"messages": [{"role": "user", "content": [{"type": kind, kind: value}]}]})
        read_or_refused(
            {"messages": [{"role": "user", "content": [{"type": kind, kind: {"url": value, "data": value}}]}]}
        )


@pytest.mark.parametrize("kind", [{}, [], ["text"], 3, None, "video"])
def test_a_part_of_an_odd_kind_is_named(kind: Any) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": kind}]}]}
    with pytest.raises(BadRequest, match=r"messages\[0\]\.content\[0\]\.type"):
        prepare(fake_chat(), json.dumps(body).encode())
