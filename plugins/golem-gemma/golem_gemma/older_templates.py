"""Gemma 4's chat templates, of which the first ones write results only as `tool_responses` of the message that called.

For those, results that come as messages of their own are put where they are looked for, as llama.cpp does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from golem_core import BadRequest, ChatTemplate

_PROBE = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "c", "name": "f", "content": "b"},
]


class Gemma4Template(ChatTemplate):
    """A file's template, whichever form of results it reads."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        if any(message["role"] == "tool" for message in messages) and not self._reads_tool_messages:
            messages = with_responses(messages)
        return super().render(messages, tools=tools, add_generation_prompt=add_generation_prompt, **kwargs)

    @cached_property
    def _reads_tool_messages(self) -> bool:
        try:
            return "<|tool_response>response:f" in super().render(_PROBE)
        except BadRequest:  # it cannot write any such conversation, and says so itself
            return True


def with_responses(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with each run of results as `tool_responses` of the message that called.

    The answer behind them belongs to the same turn, and so to the same message.  What was said before the calls would
    be written behind the results, so it becomes a message of its own.
    """
    folded: list[dict[str, Any]] = []
    answered = False
    for message in messages:
        last = folded[-1] if folded else {}
        if message["role"] == "tool" and last.get("tool_calls"):
            calls = {call.get("id"): call["function"]["name"] for call in last["tool_calls"]}
            name = calls.get(message.get("tool_call_id")) or message.get("name") or "unknown"
            if last.get("content"):
                folded.insert(-1, {"role": "assistant", "content": last["content"]})
                last["content"] = ""
            response = {"name": name, "response": message.get("content") or ""}
            last["tool_responses"] = [*last.get("tool_responses", ()), response]
            answered = True
        elif answered and message["role"] == "assistant" and not message.get("tool_calls"):
            last["content"], answered = message.get("content"), False
        else:
            folded.append(dict(message))
            answered = False
    return folded
