"""A provider that asks any server with OpenAI's API: OPENAI_BASE_URL and OPENAI_API_KEY say which."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from golem import JSONSchema, Message, Provider, ToolDef, UnsupportedFormat


class OpenAI(Provider):
    """Passes calls on."""

    def chat(self, model: str, messages: list[Message], tools: list[ToolDef] | None = None) -> Message:
        """The next message, with the calls that the model makes."""
        body: dict[str, Any] = {"model": model, "messages": [_message(each) for each in messages]}
        if tools:
            body["tools"] = [{"type": "function", "function": tool.to_dict()} for tool in tools]
        return Message.from_dict(self._post("chat/completions", body)["choices"][0]["message"])

    def chat_structured(self, model: str, messages: list[Message], schema: JSONSchema) -> Any:
        """A value that follows a schema."""
        wanted = {"name": schema.name, "strict": schema.strict, "schema": schema.schema}
        body = {
            "model": model,
            "messages": [_message(each) for each in messages],
            "response_format": {"type": "json_schema", "json_schema": wanted},
        }
        try:
            answer = self._post("chat/completions", body)
        except urllib.error.HTTPError as error:
            if error.code == 400:
                raise UnsupportedFormat(f"the server refuses a response_format: {error.read().decode()}") from None
            raise
        return json.loads(answer["choices"][0]["message"]["content"])

    def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        """A vector for each text."""
        answer = self._post("embeddings", {"model": model, "input": texts})
        return [each["embedding"] for each in sorted(answer["data"], key=lambda each: each["index"])]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
        }
        request = urllib.request.Request(f"{base}/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=110) as answer:
            return json.load(answer)


def _message(message: Message) -> dict[str, Any]:
    return {"content": None if message.tool_calls else "", **message.to_dict()}
