"""JSON Schema: which texts a schema accepts, by its slow meaning and by masks, and what is refused by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from random_schemas import random_schema
from slow_grammar import Pieces, Place

from golem_core.errors import BadRequest
from golem_core.sampling import STAGES, SamplerChain, SamplerContext, SamplingParams
from golem_core.sampling.grammar import Constraint, compile_schema, parse_schema

TOKENIZER = Pieces(
    *[
        '{"',
        '"}',
        '":',
        '",',
        '"}',
        "[[",
        "]}",
        "true",
        "false",
        "null",
        '"a',
        '"b"',
        '"a":',
        "12",
        "0.5",
        "\\u00",
        '\\"',
        "é日",
        '{"a":1',
    ],
    ": ",
    ', "',
)


def follows(schema, text: str) -> bool:
    matcher = compile_schema(TOKENIZER, schema).matcher()
    for byte in text.encode():
        if byte not in matcher.mask():
            return False
        matcher.accept(byte)
    return matcher.complete


ANY = ["1", '"x"', "[]", '{"a": [1, {"b": null}]}', "true", "null", "-1.5e+3", '[1,"a" ,{}]']
UUID = "01234567-89ab-cdef-0123-456789ABCDEF"
RECURSIVE = {
    "$ref": "#/$defs/tree~1~0 node",
    "$defs": {
        "tree/~ node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/tree~1~0%20node"}},
            "required": ["v"],
        }
    },
}
TWO = {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}}
LANGUAGES = [
    (True, ANY, ["", "x", "01", "{", "[1,]", "1 ", " 1", "[1 2]", '{"a" 1}']),
    ({}, ANY, ["nul"]),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "$id": "x", "$comment": "c"}, ANY, ["x"]),
    ({"type": "object"}, ["{}", '{"a":1}', '{ "a" : 1 , "a" : [ ] }'], ["1", "[]", '{"a"}', '{"a":1}}']),
    ({"type": "object", "additionalProperties": True}, ["{}", '{"a":1}'], ["1"]),
    ({"type": "object", "required": ["k"]}, ['{"k":1}', '{"k":[],"z":2}'], ["{}", '{"z":2}']),
    ({"type": "array"}, ["[]", '[1,"a",[]]', "[ 1 ,\n 2]"], ["{}", "[1,]", "[,]"]),
    (
        {"type": "string"},
        ['""', '"aé😀"', '"\\n\\u00e9\\""', '"\\ud800"'],
        ["a", '"', '"\n"', '"\\x"', '"\\u00g0"', '"\x7f"'],
    ),
    ({"type": "integer"}, ["0", "-12", "1234567890123456"], ["01", "1.0", "12345678901234567", "-", "+1"]),
    ({"type": "number"}, ["0", "-1.25", "1e9", "2.5E-10"], ["1.", ".5", "1e", "00", "1.12345678901234567"]),
    ({"type": "boolean"}, ["true", "false"], ["True", "1"]),
    ({"type": "null"}, ["null"], ["None"]),
    ({"type": ["string", "null"]}, ['"a"', "null"], ["1"]),
    ({"type": ["string", "integer"], "maxLength": 1}, ['"a"', "12"], ['"ab"', "1.5"]),
    ({"const": {"a": [1, "é"], "b": None}}, ['{"a":[1,"é"],"b":null}'], ['{"a": [1,"é"],"b":null}', "{}"]),
    (
        {"enum": ["a", "ab", 1, 12, None, [1.5]]},
        ['"a"', '"ab"', "1", "12", "null", "[1.5]"],
        ['"b"', "2", "[1.5", "121"],
    ),
    ({"type": "string", "enum": ["a", 1]}, ['"a"'], ["1"]),
    ({"type": ["integer", "null"], "enum": ["a", 1, None, 1.5]}, ["1", "null"], ['"a"', "1.5"]),
    ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"const": "x"}]}, ["1", "1.5", '"x"'], ['"y"', "true"]),
    (
        {"oneOf": [{"type": "object"}, {"const": {"a": 1}}, {"type": "array", "items": {}}]},
        ['{"a":1}', "{}", "[1]"],
        ["1"],
    ),
    ({"type": "string", "anyOf": [{"const": "a"}, {"format": "date"}, True]}, ['"a"', '"q"'], ["1"]),
    ({"anyOf": [{"type": "string"}, {"enum": ["a", "b"]}]}, ['"a"', '"abc"'], ["a"]),
    (
        {"properties": TWO, "required": ["b"]},
        ['{"b":true}', '{"b":true,"a":1}', '{ "b" : true , "c" : null }', '{"b":false,"a":1,"c":null}'],
        [
            "{}",
            '{"a":1}',
            '{"a":1,"b":true}',
            '{"b":true,"c":null,"a":1}',
            '{"b":true,}',
            '{"b":true,"x":1}',
            '{,"b":true}',
        ],
    ),
    (
        {"properties": TWO},
        ["{}", '{"a":1}', '{"c":null}', '{"a":1,"c":null}'],
        ['{"c":null,"a":1}', '{"a":1,}', '{,"a":1}'],
    ),
    ({"type": "object", "properties": {}}, ["{}", "{ }"], ['{"a":1}']),
    ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
    ({"properties": {"a": {}}, "required": ["a", "z"]}, ['{"a":1,"z":2}'], ['{"a":1}', '{"z":1,"a":1}']),
    ({"properties": {'q"\n': {"type": "null"}}}, ['{"q\\"\\n":null}'], ['{"q":null}']),
    ({"additionalProperties": {"type": "integer"}}, ["{}", '{"a":1,"b":2}'], ['{"a":"x"}']),
    (
        {"properties": {"ab": {"type": "null"}, "a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
        [
            '{"b":1}',
            '{"ab":null,"a":null,"abc":1,"":2}',
            '{"ac":1,"A":2}',
            '{"a\\n":1}',
            '{"a\\u0000":1}',
            '{"aé":1,"\\"":2}',
        ],
        ['{"a":1}', '{"ab":1}', '{"abc":null}', '{"a":null,"a":1}', '{"\\u0061":1}', '{"a\\u0062":1}'],
    ),
    (
        {"properties": {"a": {}}, "required": ["a"], "additionalProperties": True},
        ['{"a":1,"b":[],"c":2}'],
        ["{}", '{"b":1}'],
    ),
    ({"items": {"type": "integer"}}, ["[]", "[1]", "[1, 2 ,3]"], ['["a"]', "[1,]"]),
    ({"type": "array", "minItems": 2}, ["[1,2]", "[1,2,3]"], ["[]", "[1]"]),
    ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 3}, ["[1]", "[1,2,3]"], ["[]", "[1,2,3,4]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"type": "array", "maxItems": 1}, ["[]", "[1]"], ["[1,2]"]),
    ({"items": [{"type": "integer"}, {"type": "null"}]}, ["[1,null]"], ["[1]", "[]", "[null,1]"]),
    ({"prefixItems": [{"type": "integer"}, True], "minItems": 2}, ['[1,"x"]'], ["[1]"]),
    ({"type": "string", "minLength": 1}, ['"a"', '"abc"'], ['""']),
    (
        {"type": "string", "minLength": 2, "maxLength": 3},
        ['"ab"', '"éé日"', '"\\n\\u00e9"'],
        ['"a"', '"abcd"', '"\\ud83d\\ude00"'],
    ),
    ({"type": "string", "maxLength": 0}, ['""'], ['"a"']),
    ({"format": "date"}, ['"2024-02-30"', '"1999-12-01"'], ['"2024-13-01"', '"2024-01-32"', '"24-01-01"']),
    (
        {"type": "string", "format": "time"},
        ['"23:59:59Z"', '"00:00:00.123+02:30"'],
        ['"24:00:00Z"', '"12:00:00"', '"12:60:00Z"'],
    ),
    ({"format": "date-time"}, ['"2024-01-02T03:04:05Z"'], ['"2024-01-02 03:04:05Z"']),
    ({"format": "uuid"}, [f'"{UUID}"'], ['"0123"', f'"{UUID}0"']),
    ({"format": "uuid4"}, [f'"{UUID}"'], ['""']),
    ({"type": "string", "format": "whatever"}, ['"x"'], ["1"]),
    ({"type": "integer", "format": "int32", "minLength": 3}, ["1"], ['"abc"']),
    (RECURSIVE, ['{"v":1}', '{"v":1,"next":{"v":2,"next":{"v":3}}}'], ["{}", '{"v":1,"next":{}}']),
    ({"properties": {"x": {"type": "null"}, "y": {"$ref": "#/properties/x"}}}, ['{"x":null,"y":null}'], ['{"y":1}']),
    ({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, ["[]", "[[],[null,[]]]"], ["[1]"]),
    ({"prefixItems": [{"$ref": "#/x/1"}], "x": [True, {"type": "null"}]}, ["[null]"], ["[1]"]),
    (
        {
            "allOf": [{"properties": {"a": {"type": "null"}}}, {"$ref": "#/$defs/b"}],
            "$defs": {"b": {"properties": {"b": {}}}},
        },
        ['{"a":null,"b":1}'],
        ["{}", '{"a":null}'],
    ),
    (
        {
            "type": "object",
            "properties": {"z": {}},
            "allOf": [{"anyOf": [{"properties": {"a": {}}}]}, {"required": ["q"]}],
        },
        ['{"q":1}', '{"q":1,"z":2,"a":3}'],
        ["{}", '{"z":1}'],
    ),
    ({"allOf": [{"enum": [1, "a", 2]}, {"enum": ["a", 2, 3]}]}, ['"a"', "2"], ["1", "3"]),
    ({"type": "string", "allOf": [{"enum": ["a", 2]}]}, ['"a"'], ["2"]),
    ({"type": "string", "allOf": [{"description": "d"}]}, ['"a"'], ["2"]),
    ({"uniqueItems": False, "type": "array"}, ["[1,1]"], ["1"]),
]
CASES = [
    (schema, text, fits)
    for schema, yes, no in LANGUAGES
    for fits, texts in ((True, yes), (False, no))
    for text in texts
]


@pytest.mark.parametrize(("schema", "text", "fits"), CASES)
def test_a_schema_accepts_its_values_and_no_others(schema, text, fits):
    assert Place(parse_schema(schema)).accepts(text) == fits
    assert follows(schema, text) == fits


@pytest.mark.parametrize("gap", ["", " ", "\n", "\n\n", "\n" + " \t" * 10, "\n\n" + " " * 20])
def test_gaps_are_short_and_stand_between_tokens(gap):
    text = f'{{{gap}"a"{gap}:{gap}[{gap}1{gap},{gap}2{gap}]{gap}}}'
    assert follows({}, text) and Place(parse_schema({})).accepts(text)


@pytest.mark.parametrize("gap", ["  ", " \n", "\n\n\n", "\n" + " " * 21, "\t", "\r\n"])
def test_no_other_gaps(gap):
    assert not follows({}, f"[{gap}1]") and not Place(parse_schema({})).accepts(f"[{gap}1]")


REFUSED = [
    *[
        ({"type": "object", "properties": {"p": {key: 1}}}, [key, f"#/properties/p/{key}"])
        for key in [
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
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedItems",
            "unevaluatedProperties",
            "$dynamicRef",
        ]
    ],
    ({"items": {"uniqueItems": True}}, ["uniqueItems", "#/items/uniqueItems"]),
    (False, ["false", "#"]),
    ({"properties": {"a/b": False}}, ["false", "#/properties/a~1b"]),
    ({"properties": {"a": 5}}, ["#/properties/a", "not a schema"]),
    ({"properties": [1]}, ["properties", "#/properties"]),
    ({"$ref": "http://example.com/x"}, ["$ref", "http://example.com/x", "#/$ref"]),
    ({"$ref": "#anchor"}, ["$ref", "#anchor"]),
    ({"$ref": 5}, ["$ref", "5"]),
    ({"items": {"$ref": "#/$defs/x"}}, ["$ref", "#/$defs/x", "#/items/$ref", "nowhere"]),
    ({"$ref": "#/x", "x": {}, "minLength": 1}, ["minLength", "$ref"]),
    ({"$ref": "#"}, ["$ref", "itself"]),
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, ["$ref", "itself"]),
    ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ["no finite value"]),
    ({"type": "text"}, ["type", "text", "#/type"]),
    ({"type": 5}, ["type", "5"]),
    ({"type": []}, ["type", "empty"]),
    ({"type": ["string", "text"]}, ["type", "text"]),
    ({"anyOf": []}, ["anyOf", "#/anyOf"]),
    ({"anyOf": [{}], "properties": {"a": {}}}, ["properties", "anyOf"]),
    ({"anyOf": [{}], "oneOf": [{}]}, ["anyOf", "oneOf"]),
    ({"enum": []}, ["enum"]),
    ({"enum": ["a"], "type": "integer"}, ["enum", "integer"]),
    ({"enum": ["a"], "minLength": 3}, ["minLength", "enum"]),
    ({"const": "\ud800"}, ["const", "JSON"]),
    ({"required": ["a"]}, ["required", "#/required"]),
    ({"type": "object", "required": "a"}, ["required"]),
    ({"minItems": 1}, ["minItems", "#/minItems"]),
    ({"minLength": 1}, ["minLength", "#/minLength"]),
    ({"type": "array", "minItems": 3, "maxItems": 2}, ["minItems", "maxItems"]),
    ({"type": "array", "minItems": -1}, ["minItems", "-1"]),
    ({"type": "array", "maxItems": 10**9}, ["maxItems"]),
    ({"type": "string", "maxLength": "x"}, ["maxLength", "x"]),
    ({"type": "string", "minLength": 2, "maxLength": 1}, ["minLength", "maxLength"]),
    ({"type": "string", "format": "date", "minLength": 2}, ["minLength", "format"]),
    ({"prefixItems": [True], "minItems": 2}, ["prefixItems", "minItems"]),
    ({"prefixItems": {}}, ["prefixItems"]),
    ({"properties": {"a": {}}, "items": {}}, ["items", "properties"]),
    ({"allOf": [{"minLength": 1}]}, ["minLength", "#/allOf/0/minLength"]),
    ({"allOf": [{"oneOf": [{}]}]}, ["oneOf", "#/allOf/0/oneOf"]),
    ({"type": "integer", "allOf": [{}]}, ["allOf", "integer"]),
    (
        {"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "string"}}}]},
        ["'a'", "#/allOf/1"],
    ),
    ({"allOf": [{"enum": [1]}, {"enum": [2]}]}, ["enum", "allOf"]),
    ({"allOf": [{"anyOf": [{"properties": {"a": {}}, "required": ["a"]}]}]}, ["required", "#/allOf/0/anyOf/0"]),
    ({"properties": {"n" * 70: {}}, "additionalProperties": True}, ["additionalProperties", "64"]),
    ("text", ["not a schema"]),
]


@pytest.mark.parametrize(("schema", "named"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_name_and_place(schema, named):
    with pytest.raises(BadRequest) as caught:
        compile_schema(TOKENIZER, schema, param="response_format")
    assert str(caught.value).startswith("response_format: ") and caught.value.param == "response_format"
    for part in named:
        assert part in str(caught.value)


@pytest.mark.parametrize("schema", [{"anyOf": [{"items": {}}] * 30_000}, {"enum": list(range(100_000))}])
def test_a_schema_that_is_too_large_is_refused(schema):
    with pytest.raises(BadRequest, match="too large"):
        compile_schema(TOKENIZER, schema)


def test_compiled_schemas_are_kept_up_to_a_million_characters():
    tokenizer = Pieces()
    compiled = lambda number: compile_schema(tokenizer, {"type": "null", "description": f"{number} " + "x" * 300_000})
    first = compiled(0)
    compiled(1)
    compiled(2)
    assert compiled(0) is first
    compiled(3)
    assert compiled(0) is first, "1 was asked for longer ago"
    compiled(4)
    compiled(5)
    compiled(6)
    assert compiled(0) is not first
    huge = {"type": "null", "description": "x" * 2_000_000}
    assert compile_schema(tokenizer, huge) is compile_schema(tokenizer, huge)


def test_more_names_than_the_compiler_can_count_are_refused_in_plain_words():
    names = [f"n{index}" for index in range(5000)]
    schema = {"properties": {name: {"type": "null"} for name in names}, "required": names}
    with pytest.raises(BadRequest, match=r"^json_schema: the grammar can't be compiled: it is too large$"):
        compile_schema(TOKENIZER, schema)


def test_an_enum_may_have_thousands_of_values():
    values = [f"number {index}" for index in range(5500)]
    matcher = compile_schema(TOKENIZER, {"enum": values}).matcher()
    for token in b'"number 5499"':
        assert matcher.mask().flags()[token]
        matcher.accept(token)
    assert matcher.complete


def test_a_schema_nested_too_deeply_is_refused():
    schema: dict = {}
    for _ in range(400):
        schema = {"items": schema}
    with pytest.raises(BadRequest, match="inside each other"):
        compile_schema(TOKENIZER, schema)


def answer(schema, seed: int, tokens: int = 120) -> str | None:
    """What a model that knows nothing answers; None where it doesn't come to an end in time."""
    random = np.random.default_rng(seed)
    params = SamplingParams(seed=seed, top_k=40, grammar=Constraint(compile_schema(TOKENIZER, schema)))
    chain = SamplerChain.build(STAGES, params, SamplerContext(TOKENIZER.vocab_size, (), TOKENIZER))
    text = b""
    for _ in range(tokens):
        logits = random.normal(size=TOKENIZER.vocab_size).astype(np.float32) * 3
        logits[[ord(each) for each in '"]}']] += 6  # so that it comes to an end
        logits[TOKENIZER.end] += 9
        token = chain.draw(logits)
        if token == TOKENIZER.end:
            return text.decode()
        text += TOKENIZER.pieces[token]
    return None


@pytest.mark.parametrize("block", range(10))
def test_every_answer_of_a_random_model_is_valid_under_a_random_schema(block):
    from jsonschema import Draft202012Validator

    ended = 0
    for number in range(100 * block, 100 * block + 100):
        schema = random_schema(number)
        text = answer(schema, number)
        if text is not None:
            ended += 1
            Draft202012Validator(schema).validate(json.loads(text))
    assert ended > 50


def test_as_many_optional_members_as_can_be_followed():
    """More would take the compiler's stack, and the whole process with it."""
    properties = {f"p{i}": {"type": "integer"} for i in range(501)}
    with pytest.raises(BadRequest, match="501 names that are not required; at most 500 can be followed"):
        parse_schema({"type": "object", "properties": properties})
    parse_schema({"type": "object", "properties": properties, "required": ["p3"]})
