"""Random schemas out of everything that a grammar can follow, with a meaning that a validator agrees with."""

from __future__ import annotations

import random
from typing import Any

_NAMES = ["a", "ab", "b", "é", 'q"', "long name", "A", "日本"]
_VALUES = [None, True, False, 0, -3, 1.5, "a", "ab", "é\n", [], [1, "x"], {"a": 1}, {}]


def random_schema(seed: int) -> Any:
    """The same schema for the same seed."""
    chance = random.Random(seed)
    schema = _schema(chance, 3, references=True)
    if isinstance(schema, dict):
        schema["$defs"] = {"leaf": _schema(chance, 1, references=False), "list": _list_of_lists()}
    return schema


def _list_of_lists() -> dict[str, Any]:
    return {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "integer"}]}, "maxItems": 3}


def _schema(chance: random.Random, depth: int, *, references: bool) -> Any:
    leaves = [_plain, _plain, _string, _values]
    branches = [_object, _object, _array, _tuple, _union, _types]
    if references:
        leaves.append(_reference)
    return chance.choice(leaves if depth == 0 else leaves + branches)(chance, depth - 1, references)


def _plain(chance: random.Random, depth: int, references: bool) -> Any:
    kinds = ["string", "integer", "number", "boolean", "null", "object", "array"]
    return chance.choice([True, {}, *({"type": kind} for kind in kinds)])


def _string(chance: random.Random, depth: int, references: bool) -> Any:
    least = chance.randrange(3)
    schema: dict[str, Any] = {"type": "string", "minLength": least}
    if chance.random() < 0.6:
        schema["maxLength"] = least + chance.randrange(4)
    if chance.random() < 0.3:
        return {"type": "string", "format": chance.choice(["date", "time", "date-time", "uuid", "made-up"])}
    return schema


def _values(chance: random.Random, depth: int, references: bool) -> Any:
    if chance.random() < 0.4:
        return {"const": chance.choice(_VALUES)}
    return {"enum": chance.sample(_VALUES, chance.randrange(1, 5))}


def _object(chance: random.Random, depth: int, references: bool) -> Any:
    names = chance.sample(_NAMES, chance.randrange(5))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(chance, depth, references=references) for name in names},
        "required": [name for name in names if chance.random() < 0.5],
    }
    more = chance.random()
    if more < 0.3:
        schema["additionalProperties"] = _schema(chance, 0, references=False)
    elif more < 0.5:
        schema["additionalProperties"] = False
    return schema


def _array(chance: random.Random, depth: int, references: bool) -> Any:
    least = chance.randrange(3)
    schema = {"type": "array", "items": _schema(chance, depth, references=references), "minItems": least}
    if chance.random() < 0.6:
        schema["maxItems"] = least + chance.randrange(3)
    return schema


def _tuple(chance: random.Random, depth: int, references: bool) -> Any:
    items = [_schema(chance, depth, references=references) for _ in range(chance.randrange(1, 4))]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _union(chance: random.Random, depth: int, references: bool) -> Any:
    return {"anyOf": [_schema(chance, depth, references=references) for _ in range(chance.randrange(1, 4))]}


def _types(chance: random.Random, depth: int, references: bool) -> Any:
    return {"type": chance.sample(["string", "integer", "boolean", "null", "array"], 2), "maxLength": 2}


def _reference(chance: random.Random, depth: int, references: bool) -> Any:
    return {"$ref": chance.choice(["#/$defs/leaf", "#/$defs/list"])}
