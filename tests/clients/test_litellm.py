"""litellm, as a client of OpenAI's API and of ollama's."""

from __future__ import annotations

from typing import Any

import pytest

litellm: Any = pytest.importorskip("litellm")
USER = [{"role": "user", "content": "Fine weather"}]


@pytest.fixture(params=["openai", "ollama_chat"])
def asking(request, echo) -> dict[str, Any]:
    if request.param == "openai":
        return {"model": "openai/any", "api_base": f"{echo.url}/v1", "api_key": "any"}
    return {"model": "ollama_chat/tiny-echo", "api_base": echo.url}


def test_an_answer_and_a_stream_say_the_same(asking) -> None:
    answer = litellm.completion(messages=USER, **asking)
    assert answer.choices[0].message.content == "Fine weather"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == 12
    pieces = litellm.completion(messages=USER, stream=True, **asking)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Fine weather"


def test_thoughts_come_apart(asking) -> None:
    messages = [{"role": "user", "content": "<think>why</think>Because."}]
    message = litellm.completion(messages=messages, **asking).choices[0].message
    assert (message.reasoning_content, message.content) == ("why", "Because.")


def test_a_refusal_names_the_context(echo) -> None:
    asking = {"model": "openai/any", "api_base": f"{echo.url}/v1", "api_key": "any", "max_retries": 2}
    with pytest.raises(litellm.BadRequestError, match="5000"):
        litellm.completion(messages=[{"role": "user", "content": "x" * 5000}], **asking)
    echo.engine.fail_at = 0
    with pytest.raises(litellm.InternalServerError):
        litellm.completion(messages=USER, **asking)
    assert len(echo.engine.requests) == 1, "what fails once fails again: the client is told not to retry"
