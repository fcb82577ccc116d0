"""allOf: several schemas for one value, merged into one where a grammar can follow that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golem_core.sampling.grammar.json_text import FORMATS
from golem_core.sampling.grammar.keywords import DEEPEST, OF_ARRAYS, OF_STRINGS, REFUSED, among, escaped

if TYPE_CHECKING:
    from golem_core.sampling.grammar.schema import _Reader

__all__ = ["Merged"]


class Merged:
    """What the members of an allOf say together.

    The object has to have the properties of its members, except those that members list inside an anyOf.
    """

    def __init__(self, reader: _Reader, schema: dict[str, Any], path: str):
        self.properties: dict[str, tuple[Any, str]] = {}
        self.required: list[str] = []
        self.enum: list[Any] | None = None
        self.kind: str | None = None
        self.closed = False
        self._reader = reader
        self._add({key: value for key, value in schema.items() if key != "allOf"}, path, (), own=True, must=False)
        members = schema["allOf"]
        if not isinstance(members, list) or not members:
            reader.fail(f"allOf at {path}/allOf is not a list of schemas")
        self._each(members, f"{path}/allOf", (), must=True)

    def _each(self, members: list[Any], path: str, seen: tuple[str, ...], *, must: bool) -> None:
        for index, each in enumerate(members):
            self._add(each, f"{path}/{index}", seen, own=False, must=must)

    def _add(self, schema: Any, path: str, seen: tuple[str, ...], *, own: bool, must: bool) -> None:
        reader = self._reader
        reader.count()
        if schema is True:
            return
        if not isinstance(schema, dict):
            reader.fail(f"{path} is not a schema that allOf can be followed with")
        for keyword in (*REFUSED, "oneOf", "const", *OF_ARRAYS, *OF_STRINGS):
            if keyword in schema:
                reader.fail(f"{keyword} at {path}/{keyword} can't be followed inside allOf")
        if schema.get("format") in FORMATS:
            reader.fail(f"format at {path}/format can't be followed inside allOf")
        if "$ref" in schema:
            target = schema["$ref"]
            reader.only(schema, path, "$ref")
            found = reader.resolve(target, path)
            if target in seen:
                reader.fail(f"$ref {target!r} at {path}/$ref leads back to itself")
            self._add(found, target, (*seen, target), own=own, must=must)
            return
        if len(seen) > DEEPEST:
            reader.fail(f"more than {DEEPEST} schemas inside each other at {path}")
        kind = schema.get("type")
        if kind not in (None, "object", "string") or (kind and self.kind and kind != self.kind):
            reader.fail(f"type at {path}/type can't be followed inside allOf")
        self.kind = self.kind or kind
        more = schema.get("additionalProperties")
        if more is not None and not isinstance(more, bool):
            reader.fail(f"additionalProperties at {path}/additionalProperties can't be followed inside allOf")
        self.closed |= more is False
        if "enum" in schema:
            values = schema["enum"]
            if not isinstance(values, list):
                reader.fail(f"enum at {path}/enum is not a list of values")
            self.enum = values if self.enum is None else [each for each in self.enum if among(each, values)]
        self._take(schema, path, own=own, must=must)
        for keyword in ("allOf", "anyOf"):
            if keyword in schema and not own:
                members = schema[keyword]
                if not isinstance(members, list) or not members:
                    reader.fail(f"{keyword} at {path}/{keyword} is not a list of schemas")
                self._each(members, f"{path}/{keyword}", (*seen, path), must=must and keyword == "allOf")

    def _take(self, schema: dict[str, Any], path: str, *, own: bool, must: bool) -> None:
        reader = self._reader
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            reader.fail(f"properties at {path}/properties is not an object")
        for name, each in properties.items():
            place = f"{path}/properties/{escaped(name)}"
            if name in self.properties and self.properties[name][0] != each:
                reader.fail(f"{place} can't be followed: allOf has another schema for {name!r}")
            self.properties[name] = (each, place)
        names = reader.required(schema, path)
        if must:
            names = [*properties, *names]
        elif names and not own:
            reader.fail(f"required at {path}/required can't be followed inside allOf and anyOf")
        self.required += [name for name in names if name not in self.required]
