"""JSON Schema, as far as a grammar can follow it, into a `Grammar` for the JSON texts of the values it describes.

Every keyword that constrains a value is either followed or refused by its name and its place in the schema; none is
dropped.  Members of an object come in the schema's order, the required ones first, and an object whose `properties`
are listed has no others unless `additionalProperties` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from golem_core.errors import BadRequest
from golem_core.sampling.grammar.all_of import Merged
from golem_core.sampling.grammar.ast import EMPTY, Choice, Grammar, Name, Node, Repeat, Seq, left_recursive, pruned
from golem_core.sampling.grammar.json_text import (
    ANY_RULES,
    FORMATS,
    GAP,
    PRIMITIVES,
    array,
    constant,
    key_besides,
    member,
    sign,
    text_of,
)
from golem_core.sampling.grammar.keywords import (
    DEEPEST,
    LARGEST,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_ITEMS,
    MOST_OPTIONAL,
    OF_ARRAYS,
    OF_OBJECTS,
    OF_STRINGS,
    REFUSED,
    TYPES,
    escaped,
    has_type,
)

__all__ = ["parse_schema"]


def parse_schema(schema: Any, *, param: str = "json_schema") -> Grammar:
    """The grammar of a schema, a dict or a bool.

    Raises BadRequest, its `param` as given, naming the keyword and its path for whatever is malformed or can't be
    followed, and where no value satisfies the schema.
    """
    reader = _Reader(schema, param)
    try:
        reader.rules["root"] = reader.node(schema, "#", 0)
    except RecursionError:
        raise BadRequest(f"{param}: the schema is nested too deeply", param=param) from None
    name = left_recursive(reader.rules)
    if name is not None:
        raise BadRequest(f"{param}: a $ref in the schema leads back to itself", param=param)
    grammar = pruned(Grammar(reader.rules))
    if grammar is None:
        raise BadRequest(f"{param}: no finite value satisfies the schema", param=param)
    return grammar


class _Reader:
    """Reads one document; `rules` grows by the definitions that are referred to."""

    def __init__(self, document: Any, param: str):
        self.rules: dict[str, Node] = {}
        self._document = document
        self._param = param
        self._references: dict[str, str] = {}
        self._size = 0

    def fail(self, message: str) -> NoReturn:
        raise BadRequest(f"{self._param}: {message}", param=self._param)

    def count(self, more: int = 1) -> None:
        self._size += more
        if self._size > LARGEST:
            self.fail("the schema is too large")

    def node(self, schema: Any, path: str, depth: int) -> Node:
        """What a schema describes.  `path` is where it stands."""
        self.count()
        if depth > DEEPEST:
            self.fail(f"more than {DEEPEST} schemas inside each other at {path}")
        if schema is True:
            return self.any("value")
        if schema is False:
            self.fail(f"false at {path} allows no value")
        if not isinstance(schema, dict):
            self.fail(f"{path} is not a schema: expected an object or a boolean")
        for keyword in REFUSED:
            if keyword in schema:
                self.fail(f"{keyword} at {path}/{keyword} is not supported")
        if schema.get("uniqueItems", False) is not False:
            self.fail(f"uniqueItems at {path}/uniqueItems is not supported")
        for ways in (
            self._reference,
            self._union,
            self._types,
            self._values,
            self._all_of,
            self._object,
            self._array,
            self._string,
        ):
            found = ways(schema, path, depth)
            if found is not None:
                return found
        self.only(schema, path, "type")
        kind = schema.get("type")
        return self.any("value") if kind is None else self.any(kind) if kind == "object" else PRIMITIVES[kind]

    def any(self, name: str) -> Node:
        """Any value, or any object or array."""
        self.rules |= {rule: body for rule, body in ANY_RULES.items() if rule not in self.rules}
        return Name(name)

    def only(self, schema: dict[str, Any], path: str, *followed: str) -> None:
        """Refuse every other keyword that constrains values of the schema's type."""
        kind = schema.get("type")
        others = ["$ref", "oneOf", "anyOf", "allOf", "const", "enum", "type"]
        for kinds, keywords in (("object", OF_OBJECTS), ("array", OF_ARRAYS), ("string", OF_STRINGS)):
            if kind is None or kind == kinds or isinstance(kind, list):
                others += keywords
        if kind in (None, "string") and schema.get("format") in FORMATS:
            others.append("format")
        for keyword in others:
            if keyword == "additionalProperties" and schema.get(keyword) is True:
                continue  # says nothing
            if keyword in schema and keyword not in followed:
                beside = f" beside {followed[0]}" if followed and followed[0] in schema else ""
                self.fail(f"{keyword} at {path}/{keyword} can't be followed{beside}")

    # ------------------------------------------------------------ what isn't of one type

    def _reference(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        if "$ref" not in schema:
            return None
        self.only(schema, path, "$ref")
        target = schema["$ref"]
        if isinstance(target, str) and target in self._references:
            return Name(self._references[target])
        found = self.resolve(target, path)
        name = self._references[target] = f"ref-{len(self._references)}"
        # A definition is read on its own, however deep the reference to it stands.
        self.rules[name] = EMPTY
        self.rules[name] = self.node(found, target, depth + 1)
        return Name(name)

    def resolve(self, target: Any, path: str) -> Any:
        if not isinstance(target, str) or (target != "#" and not target.startswith("#/")):
            self.fail(f"$ref {target!r} at {path}/$ref is not supported; it may be # or begin with #/")
        found = self._document
        for part in target.split("/")[1:]:
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(found):
                found = found[int(part)]
            else:
                self.fail(f"$ref {target!r} at {path}/$ref leads nowhere")
        return found

    def _union(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        keyword = next((each for each in ("oneOf", "anyOf") if each in schema), None)
        if keyword is None:
            return None
        self.only(schema, path, keyword, "type")
        members = schema[keyword]
        if not isinstance(members, list) or not members:
            self.fail(f"{keyword} at {path}/{keyword} is not a list of schemas")
        place = lambda index: f"{path}/{keyword}/{index}"
        if "type" in schema:
            members = [self._typed(each, schema["type"], place(index)) for index, each in enumerate(members)]
        return Choice(tuple(self.node(each, place(index), depth + 1) for index, each in enumerate(members)))

    def _typed(self, schema: Any, kind: Any, path: str) -> Any:
        """A member of a union whose type is given beside the union."""
        if schema is True:
            return {"type": kind}
        if not isinstance(schema, dict) or schema.get("type") == kind:
            return schema
        if "type" in schema or "$ref" in schema:
            self.fail(f"type beside a union can't be followed with the type at {path}")
        return {"type": kind, **schema}

    def _types(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        kind = schema.get("type")
        if "type" in schema and not isinstance(kind, list) and (not isinstance(kind, str) or kind not in TYPES):
            self.fail(f"type at {path}/type is {kind!r}, not one of {', '.join(TYPES)}")
        if not isinstance(kind, list):
            return None
        if not kind:
            self.fail(f"type at {path}/type is an empty list")
        if "enum" in schema or "const" in schema:
            return None
        if "allOf" in schema:
            self.fail(f"allOf at {path}/allOf can't be followed beside a list of types")
        return Choice(tuple(self.node({**schema, "type": each}, path, depth + 1) for each in kind))

    def _values(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        keyword = next((each for each in ("const", "enum") if each in schema), None)
        if keyword is None or (keyword == "enum" and "allOf" in schema):
            return None
        self.only(schema, path, keyword, "type")
        values = schema[keyword] if keyword == "enum" else [schema[keyword]]
        if not isinstance(values, list) or not values:
            self.fail(f"enum at {path}/enum is not a list of values")
        self.count(len(values))
        kinds = schema.get("type")
        if kinds is not None:
            kinds = kinds if isinstance(kinds, list) else [kinds]
            for kind in kinds:
                if not isinstance(kind, str) or kind not in TYPES:
                    self.fail(f"type at {path}/type is {kind!r}, not one of {', '.join(TYPES)}")
            values = [value for value in values if any(has_type(value, kind) for kind in kinds)]
            if not values:
                self.fail(f"no value of {keyword} at {path}/{keyword} has the type {' or '.join(kinds)}")
        return self._choice(values, f"{path}/{keyword}")

    def _choice(self, values: list[Any], path: str) -> Node:
        try:
            return Choice(tuple(map(constant, values)))
        except (ValueError, TypeError) as error:
            self.fail(f"a value at {path} can't be written as JSON: {error}")

    def _all_of(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        if "allOf" not in schema:
            return None
        self.only(schema, path, "allOf", "type", "enum", *OF_OBJECTS)
        if schema.get("type") not in (None, "object", "string"):
            self.fail(f"allOf at {path}/allOf can't be followed for the type {schema['type']}")
        merged = Merged(self, schema, path)
        if merged.enum is not None:
            if merged.properties:
                self.fail(f"enum and properties inside allOf at {path}/allOf can't be followed together")
            kind = merged.kind
            values = [each for each in merged.enum if kind is None or has_type(each, kind)]
            if not values:
                self.fail(f"no value is in every enum of allOf at {path}/allOf")
            return self._choice(values, f"{path}/allOf")
        if merged.kind == "string":
            return PRIMITIVES["string"]
        if merged.kind is None and not merged.properties:
            if merged.required:
                self.fail(f"required inside allOf at {path}/allOf needs the type object")
            return self.any("value")
        if not merged.properties and not merged.required and not merged.closed:
            return self.any("object")
        return self._members(merged.properties, merged.required, None, path, depth)

    # ------------------------------------------------------------ one type

    def _object(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        kind = schema.get("type")
        more = schema.get("additionalProperties")
        named = "properties" in schema
        shaped = named or (more is not None and more is not True) or (kind == "object" and "required" in schema)
        if kind not in (None, "object") or not shaped:
            if kind == "object":
                self.only(schema, path, "type", *OF_OBJECTS)
            return None
        self.only(schema, path, "properties", "type", *OF_OBJECTS)
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            self.fail(f"properties at {path}/properties is not an object")
        places = {name: (each, f"{path}/properties/{escaped(name)}") for name, each in properties.items()}
        if more is None and not named:
            more = True
        return self._members(places, self.required(schema, path), more, path, depth)

    def required(self, schema: dict[str, Any], path: str) -> list[str]:
        """The names that a schema requires."""
        names = schema.get("required", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.fail(f"required at {path}/required is not a list of names")
        return list(dict.fromkeys(names))

    def _members(
        self, properties: Mapping[str, tuple[Any, str]], required: list[str], more: Any, path: str, depth: int
    ) -> Node:
        """An object with these properties and, by `more`, others."""
        named = {**{name: (True, path) for name in required if name not in properties}, **properties}
        named = {name: named[name] for name in [*properties, *(each for each in named if each not in properties)]}
        members: dict[str, Node] = {}
        for name, (schema, place) in named.items():
            try:
                key = constant(name)
            except ValueError as error:
                self.fail(f"the name {name!r} at {path} can't be written as JSON: {error}")
            members[name] = member(key, self.node(schema, place, depth + 1))
        must = [members[name] for name in members if name in required]
        may = [members[name] for name in members if name not in required]
        if len(may) > MOST_OPTIONAL:
            self.fail(
                f"properties at {path}/properties has {len(may)} names that are not required; at most {MOST_OPTIONAL} "
                "can be followed"
            )
        if more is not None and more is not False:
            long = next((name for name in members if len(name) > LONGEST_NAME), None)
            if long is not None:
                self.fail(
                    f"additionalProperties at {path}/additionalProperties can't be followed beside names of more than "
                    f"{LONGEST_NAME} characters ({long[:20]}...)"
                )
            self.count(sum(map(len, members)))
            further = self.node(more, f"{path}/additionalProperties", depth + 1)
            may.append(member(key_besides(members), further))
        repeats = more is not None and more is not False
        comma = Seq((sign(","), GAP))
        inside: list[Node] = []
        for index, each in enumerate(must):
            inside += [comma, each] if index else [each]
        if may:
            inside.append(self._optional(may, comma, repeats, bool(must)))
        return Seq((sign("{"), GAP, *inside, sign("}")))

    def _optional(self, members: list[Node], comma: Node, repeats: bool, follows: bool) -> Node:
        """Members of which each may be left out, in their order; with `repeats` the last may come again."""
        stem = f"members-{len(self.rules)}"
        # What may stand after the members up to one of them.  As rules, because each is used twice.
        after: Node = Repeat(Seq((comma, members[-1])), 0, None) if repeats else EMPTY
        first: list[Node] = [Seq((members[-1], after))]
        left = members[:-1] if repeats else members
        if not repeats:
            first, after = [], EMPTY
        else:
            self.rules[f"{stem}-more"] = after
            after = Name(f"{stem}-more")
            first = [Seq((members[-1], after))]
        for index in reversed(range(len(left))):
            first.append(Seq((left[index], after)))
            name = f"{stem}-{index}"
            self.rules[name] = Seq((Repeat(Seq((comma, left[index])), 0, 1), after))
            after = Name(name)
        return after if follows else Repeat(Choice(tuple(reversed(first))), 0, 1)

    def _array(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        kind = schema.get("type")
        if kind not in (None, "array") or not (kind or "items" in schema or "prefixItems" in schema):
            return None
        self.only(schema, path, "items", "type", *OF_ARRAYS)
        least = self._limit(schema, "minItems", path, MOST_ITEMS) or 0
        most = self._limit(schema, "maxItems", path, MOST_ITEMS)
        if most is not None and least > most:
            self.fail(f"minItems at {path}/minItems is more than maxItems")
        keyword = "prefixItems" if "prefixItems" in schema else "items"
        items = schema.get(keyword, True)
        if not isinstance(items, list):
            if keyword == "prefixItems":
                self.fail(f"prefixItems at {path}/prefixItems is not a list of schemas")
            item = EMPTY if most == 0 else self.node(items, f"{path}/items", depth + 1)
            return array(item, least, most)
        if least > len(items) or (most is not None and most < len(items)):
            self.fail(f"{keyword} at {path}/{keyword} has {len(items)} items, which minItems and maxItems don't allow")
        parts: list[Node] = []
        for index, each in enumerate(items):
            item = self.node(each, f"{path}/{keyword}/{index}", depth + 1)
            parts += [*([sign(","), GAP] if index else []), item, GAP]
        return Seq((sign("["), GAP, *parts, sign("]")))

    def _string(self, schema: dict[str, Any], path: str, depth: int) -> Node | None:
        kind = schema.get("type")
        form = schema.get("format")
        if kind in (None, "string") and isinstance(form, str) and form in FORMATS:
            self.only(schema, path, "format", "type")
            return FORMATS[form]
        if kind != "string" or not any(keyword in schema for keyword in OF_STRINGS):
            return None
        self.only(schema, path, "type", *OF_STRINGS)
        least = self._limit(schema, "minLength", path, LONGEST_TEXT) or 0
        most = self._limit(schema, "maxLength", path, LONGEST_TEXT)
        if most is not None and least > most:
            self.fail(f"minLength at {path}/minLength is more than maxLength")
        return text_of(least, most)

    def _limit(self, schema: dict[str, Any], keyword: str, path: str, largest: int) -> int | None:
        if keyword not in schema:
            return None
        value: Any = schema[keyword]
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
            self.fail(f"{keyword} at {path}/{keyword} is {value!r}, not a number of things")
        if value > largest:
            self.fail(f"{keyword} at {path}/{keyword} is {value:.0f}; more than {largest} can't be counted")
        return int(value)
