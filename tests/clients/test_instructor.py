"""instructor, in the modes that force nothing on the model but a JSON schema."""

from __future__ import annotations

from typing import Any

import openai
import pytest

instructor: Any = pytest.importorskip("instructor")
pydantic: Any = pytest.importorskip("pydantic")


class Person(pydantic.BaseModel):
    name: str
    age: int


def client(echo: Any, mode: Any) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=f"{echo.url}/v1", api_key="any"), mode=mode)


def test_an_object_is_read_out_of_the_json_schema_mode(echo) -> None:
    asking = client(echo, instructor.Mode.JSON_SCHEMA)
    messages = [{"role": "user", "content": '{"name": "Ada", "age": 36}'}]
    person = asking.chat.completions.create(model="any", messages=messages, response_model=Person, max_retries=0)
    assert (person.name, person.age) == ("Ada", 36)
    assert echo.engine.requests[-1].sampling.grammar is not None


def test_a_forced_call_is_refused_by_name(echo) -> None:
    asking = client(echo, instructor.Mode.TOOLS)
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(Exception, match="tool_choice") as refusal:
        asking.chat.completions.create(model="any", messages=messages, response_model=Person, max_retries=0)
    cause: BaseException | None = refusal.value
    found = []
    while cause is not None:
        found.append(type(cause))
        cause = cause.__cause__
    assert openai.BadRequestError in found
    assert not echo.engine.requests
