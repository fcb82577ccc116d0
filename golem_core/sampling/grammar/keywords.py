"""The keywords of JSON Schema by what they are about, the limits of a schema, and what both readers of schemas ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golem_core.sampling.grammar.json_text import PRIMITIVES

DEEPEST = 50  # schemas inside schemas
MOST_ITEMS = 10_000
LONGEST_TEXT = 100_000
LONGEST_NAME = 64  # of a property beside others that are not named
LARGEST = 6_000  # schemas and values in one schema
MOST_OPTIONAL = 500  # members of an object that may be left out: each nests in the one before when compiled

REFUSED = (
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "contains",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
)
OF_OBJECTS = ("properties", "required", "additionalProperties")
OF_ARRAYS = ("items", "prefixItems", "minItems", "maxItems")
OF_STRINGS = ("minLength", "maxLength")
TYPES = (*PRIMITIVES, "object", "array")


def has_type(value: Any, kind: str) -> bool:
    """Whether a JSON value has a type."""
    tests: dict[str, Callable[[Any], bool]] = {
        "null": lambda each: each is None,
        "boolean": lambda each: isinstance(each, bool),
        "string": lambda each: isinstance(each, str),
        "array": lambda each: isinstance(each, list),
        "object": lambda each: isinstance(each, dict),
        "number": lambda each: isinstance(each, int | float) and not isinstance(each, bool),
        "integer": lambda each: (
            not isinstance(each, bool) and (isinstance(each, int) or (isinstance(each, float) and each.is_integer()))
        ),
    }
    return tests[kind](value)


def among(value: Any, values: list[Any]) -> bool:
    return any(type(value) is type(each) and value == each for each in values)


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
