"""What an answer must follow: `response_format`, `json_schema` and `grammar` of a request, compiled for its model.

At most one of them is followed.  Compiling takes up to a second and happens on the worker thread that reads the
request, before a slot is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from golem_core.errors import BadRequest
from golem_core.server.bodies import shown

if TYPE_CHECKING:
    from golem_core.engine.roles import ChatModel
    from golem_core.sampling.grammar import CompiledGrammar

__all__ = ["asked_grammar"]

JSON_OBJECT = {"type": "object"}  # what "json_object" stands for


class Constrained(Protocol):
    """The fields of a request that are looked at."""

    response_format: Any
    json_schema: Any
    grammar: str | None
    tools: list[Any] | None
    tool_choice: Any


def asked_grammar(model: ChatModel, request: Constrained) -> CompiledGrammar | None:
    """What the answer must follow, None for nothing.

    Raises BadRequest for fields that contradict each other, and for a grammar or a schema that can't be followed.
    """
    from golem_core.sampling import grammar

    formatted = _schema_of_format(request.response_format)
    given = {"grammar": request.grammar or None, "response_format": formatted, "json_schema": request.json_schema}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        raise BadRequest(f"{' and '.join(named)} were both given; an answer follows one of them", param=named[0])
    if request.grammar:
        if request.tools and request.tool_choice != "none":
            raise BadRequest("grammar and tools were both given; a grammar leaves no calls", param="grammar")
        return grammar.compile_gbnf(model.tokenizer, request.grammar)
    return grammar.compile_schema(model.tokenizer, given[named[0]], param=named[0])


def _schema_of_format(given: Any) -> Any:
    """The schema that a response_format stands for, None for free text."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise BadRequest(f"response_format: expected an object, got {shown(given)}", param="response_format")
    kind = given.get("type")
    if kind in (None, "", "text"):
        return None
    if kind == "json_object":
        schema = given.get("schema")
        return JSON_OBJECT if schema is None else schema
    if kind != "json_schema":
        raise BadRequest(
            f"response_format.type: {shown(kind)} is not one of text, json_object, json_schema", param="response_format"
        )
    described = given.get("json_schema")
    if not isinstance(described, dict) or described.get("schema") is None:
        raise BadRequest("response_format.json_schema.schema: the schema is missing", param="response_format")
    return described["schema"]
