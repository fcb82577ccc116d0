"""What a request may ask for, and what is refused by field and value."""

from __future__ import annotations

import json

import msgspec
import pytest
from golem_krea2.request import ImageRequest, Settings, read

from golem_core import BadRequest


def asked(**fields) -> Settings:
    return read(json.dumps({"prompt": "a cat", **fields}).encode())[0]


def test_what_is_left_out():
    settings, stream = read(b'{"prompt": "a cat"}')
    assert not stream
    assert 0 <= settings.seed < 1 << 50
    assert settings == Settings("a cat", "", 768, 1024, 8, 1.0, settings.seed, None, 1.0, False)
    assert asked().seed != asked().seed


def test_null_is_the_same_as_absent():
    names = [field.name for field in msgspec.structs.fields(ImageRequest) if field.name != "prompt"]
    settings = asked(**dict.fromkeys(names))
    assert settings == Settings("a cat", seed=settings.seed)


def test_everything_at_once():
    body = {
        "prompt": "a (red:1.3) cat, 猫",
        "negative_prompt": "blur",
        "n": 1,
        "size": "1536x640",
        "response_format": "b64_json",
        "steps": 20.0,
        "cfg": 2,
        "seed": 2**64 - 1,
        "lora": "style.safetensors",
        "lora_strength": 0.75,
        "hide_prompt": True,
        "stream": True,
        "model": "dall-e-3",
        "quality": "hd",
        "user": ["ignored"],
    }
    settings, stream = read(json.dumps(body).encode())
    assert stream
    assert settings == Settings(
        "a (red:1.3) cat, 猫", "blur", 1536, 640, 20, 2.0, 2**64 - 1, "style.safetensors", 0.75, True
    )


@pytest.mark.parametrize("size", ["64x64", "1024x1024", "16384x64", "768x1024", "1360x768"])
def test_sizes(size):
    settings = asked(size=size)
    assert f"{settings.width}x{settings.height}" == size


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": None}, "prompt: there is nothing to draw"),
        ({"prompt": " \n\t"}, "prompt: there is nothing to draw"),
        ({"prompt": 7}, "prompt: expected a text, got 7"),
        ({"prompt": "a\0b"}, "prompt: there is a zero character"),
        ({"prompt": "x" * 300_000}, "prompt: 300000 characters, at most 262144"),
        ({"negative_prompt": "\0"}, "negative_prompt: there is a zero character"),
        ({"n": 2}, "n: 2 pictures were asked for"),
        ({"n": -1}, "n: -1 pictures"),
        ({"n": 1.5}, "n: expected a whole number, got 1.5"),
        ({"response_format": "url"}, 'response_format: expected "b64_json", got "url"'),
        ({"size": "auto"}, 'size: expected WIDTHxHEIGHT such as 768x1024, got "auto"'),
        ({"size": "768X1024"}, "size: expected WIDTHxHEIGHT"),
        ({"size": "768x1024 "}, "size: expected WIDTHxHEIGHT"),
        ({"size": "-768x1024"}, "size: expected WIDTHxHEIGHT"),
        ({"size": "٧٦٨x1024"}, "size: expected WIDTHxHEIGHT"),
        ({"size": "9999999999999999x16"}, "size: expected WIDTHxHEIGHT"),
        ({"size": ""}, "size: expected WIDTHxHEIGHT"),
        ({"size": [768, 1024]}, "size: expected a text"),
        ({"size": "48x64"}, "size: 48x64 has a side of 48, not a multiple of 16 from 64"),
        ({"size": "0x0"}, "size: 0x0 has a side of 0"),
        ({"size": "1000x1000"}, "size: 1000x1000 has a side of 1000"),
        ({"size": "1024x1040"}, "size: 1024x1040 has 1064960 pixels, at most 1048576"),
        ({"size": "999984x999984"}, "size: 999984x999984 has 999968000256 pixels"),
        ({"steps": 101}, "steps: expected 1 to 100, got 101"),
        ({"steps": -1}, "steps: expected 1 to 100, got -1"),
        ({"steps": 1e300}, "steps: expected a number from"),
        ({"steps": "8"}, 'steps: expected a number, got "8"'),
        ({"cfg": 0}, "cfg: expected a number above 0 to 1000, got 0"),
        ({"cfg": -1.5}, "cfg: expected a number above 0 to 1000, got -1.5"),
        ({"cfg": 1e30}, "cfg: expected a number above 0 to 1000"),
        ({"cfg": True}, "cfg: expected a number, got true"),
        ({"seed": 2**64}, "seed: expected"),
        ({"seed": "5"}, 'seed: expected a number, got "5"'),
        ({"seed": 0.5}, "seed: expected a whole number, got 0.5"),
        ({"lora_strength": 2.1}, "lora_strength: expected a number from 0 to 2, got 2.1"),
        ({"lora_strength": -0.1}, "lora_strength: expected a number from 0 to 2, got -0.1"),
        ({"lora": 5}, "lora: expected a text, got 5"),
        ({"hide_prompt": "yes"}, 'hide_prompt: expected true or false, got "yes"'),
        ({"stream": 1}, "stream: expected true or false, got 1"),
    ],
)
def test_refusals_name_field_and_value(fields, message):
    with pytest.raises(BadRequest) as refused:
        asked(**fields)
    assert message in str(refused.value)
    assert refused.value.param == next(iter(fields))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "a/b.safetensors",
        "a\\b.safetensors",
        "/etc/passwd",
        ".hidden.safetensors",
        "..",
        "style",
        "style.safetensors\0",
        "style.pt",
        "C:style.safetensors",
        "a\n.safetensors",
        "x" * 300 + ".safetensors",
        "style.safetensors:stream",
    ],
)
def test_a_lora_is_a_bare_name(name):
    with pytest.raises(BadRequest, match="lora: expected the name of a file") as refused:
        asked(lora=name)
    assert refused.value.param == "lora"


@pytest.mark.parametrize("field", ["prompt", "negative", "lora"])
def test_what_is_not_unicode_is_refused(field):
    """As a command line has it whose bytes are no UTF-8."""
    given = {"prompt": "a fox", field: "caf\udce9.safetensors"}
    with pytest.raises(BadRequest, match=r"it is not UTF-8, got 'caf\\udce9\.safetensors'") as refused:
        Settings.checked(**given)
    assert refused.value.param == {"negative": "negative_prompt"}.get(field, field)


def test_no_lora_and_no_strength():
    assert asked(lora="").lora is None
    off = asked(lora="a b (1).safetensors", lora_strength=0)
    assert off.lora == "a b (1).safetensors" and off.active_lora is None


def test_seeds():
    assert asked(seed=0).seed == 0 and asked(seed=5.0).seed == 5
    assert asked(seed=2**63 + 1).seed == 2**63 + 1
    assert 0 <= asked(seed=-1).seed < 2**50 and asked(seed=-1).seed != asked(seed=-1).seed
    assert asked(steps=0).steps == 8


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"a cat"', b"\xff", b'{"prompt": "\\ud800"}', b"[" * 100_000, b"null"]
)
def test_what_is_no_request(body):
    with pytest.raises(BadRequest, match=r"body|prompt"):
        read(body)


FIELDS = [field.name for field in msgspec.structs.fields(ImageRequest)]
ODD = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    -1e-300,
    2**63,
    2**64,
    -(2**70),
    "",
    "0",
    "\U0001f98a",
    [],
    [1],
    {},
    {"a": [{}]},
]


@pytest.mark.parametrize("name", FIELDS)
def test_any_value_of_a_field_is_taken_or_refused_by_its_name(name):
    for value in ODD:
        try:
            settings = asked(**{name: value})
        except BadRequest as refused:
            assert refused.param == name, f"{value!r}: {refused}"
            assert str(refused).startswith(f"{name}: ")
        else:
            assert settings.prompt.strip() and settings.width % 16 == 0 and 1 <= settings.steps <= 100
            assert 0 <= settings.seed < 1 << 64
