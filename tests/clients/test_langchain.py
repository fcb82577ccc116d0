"""LangChain's chat models for OpenAI and for ollama."""

from __future__ import annotations

import json
from typing import Any

import pytest

CALL = '<call>{"name": "tide", "arguments": {"at": "Brest"}}</call>'


def tide(at: str) -> str:
    """When the tide comes at a harbour."""
    return at


@pytest.fixture
def model(echo) -> Any:
    package = pytest.importorskip("langchain_openai")
    return package.ChatOpenAI(model="any", base_url=f"{echo.url}/v1", api_key="any", max_retries=2)


def test_an_answer_and_a_stream_say_the_same(model) -> None:
    answer = model.invoke("Fine weather")
    assert answer.content == "Fine weather"
    assert answer.usage_metadata["input_tokens"] == 12
    assert answer.response_metadata["finish_reason"] == "stop"
    assert "".join(chunk.content for chunk in model.stream("Fine weather")) == "Fine weather"


def test_calls_are_read_and_answered(model) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    able = model.bind_tools([tide])
    answer = able.invoke(CALL)
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [("tide", {"at": "Brest"})]
    told = ToolMessage("at noon", tool_call_id=answer.tool_calls[0]["id"])
    assert able.invoke([HumanMessage(CALL), answer, told]).content == "at noon"
    chunks = list(able.stream(CALL))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("tide", {"at": "Brest"})]


def test_a_refusal_is_a_bad_request_and_not_asked_again(model, echo) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="context_length_exceeded"):
        model.invoke("x" * 5000)
    echo.engine.fail_at = 0
    with pytest.raises(openai.InternalServerError):
        model.invoke("hello")
    assert len(echo.engine.requests) == 1, "what fails once fails again: the client is told not to retry"


def test_structured_output_is_read_out_of_the_json_schema_mode(model, echo) -> None:
    schema = {"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    able = model.with_structured_output(schema, method="json_schema")
    assert able.invoke(json.dumps({"name": "Ada"})) == {"name": "Ada"}
    assert echo.engine.requests[-1].sampling.grammar is not None


def test_ollamas_chat_model_answers_streams_and_calls(echo) -> None:
    package = pytest.importorskip("langchain_ollama")
    model = package.ChatOllama(model="tiny-echo", base_url=echo.url)
    answer = model.invoke("Fine weather")
    assert (answer.content, answer.response_metadata["done_reason"]) == ("Fine weather", "stop")
    assert answer.usage_metadata["output_tokens"] == 13
    assert "".join(chunk.content for chunk in model.stream("Fine weather")) == "Fine weather"
    (call,) = model.bind_tools([tide]).invoke(CALL).tool_calls
    assert (call["name"], call["args"]) == ("tide", {"at": "Brest"})
