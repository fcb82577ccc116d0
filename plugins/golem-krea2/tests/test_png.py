"""The file: its pixels, and what it says of itself."""

from __future__ import annotations

import io
import json
import zlib

import numpy as np
import pytest
from golem_krea2.png import described, png, shortest
from golem_krea2.request import Settings
from PIL import Image

from golem_core import version

SETTINGS = Settings("a red fox", seed=5)
LINE = (
    "Steps: 8, Sampler: er_sde, Schedule type: simple, CFG scale: 1, Seed: 5, Size: 768x1024, Model: m, "
    f"Version: golem {version()}"
)


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = [], 8
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        assert int.from_bytes(data[at + 8 + size : at + 12 + size]) == zlib.crc32(kind + body)
        found.append((kind, body))
        at += 12 + size
    return found


def test_three_texts_stand_behind_the_header():
    picture = np.random.default_rng(1).integers(0, 256, (64, 96, 3), np.uint8)
    data = png(picture, SETTINGS, "m")
    found = chunks(data)
    assert [kind for kind, _ in found[:5]] == [b"IHDR", b"iTXt", b"iTXt", b"iTXt", b"IDAT"]
    texts = described(SETTINGS, "m")
    for (_, body), (keyword, text) in zip(found[1:4], texts.items(), strict=True):
        assert body == keyword.encode() + b"\0" * 5 + text.encode()
    assert list(texts) == ["parameters", "Software", "golem"]
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.mode == "RGB" and opened.size == (96, 64)
        np.testing.assert_array_equal(np.asarray(opened), picture)
        assert opened.text == texts  # type: ignore[attr-defined]


def test_what_the_texts_say():
    texts = described(SETTINGS, "m")
    assert texts["parameters"] == f"a red fox\n{LINE}"
    assert texts["Software"] == f"golem {version()}"
    record = {"prompt": "a red fox", "negative": "", "width": 768, "height": 1024, "steps": 8, "cfg": 1, "seed": 5}
    assert json.loads(texts["golem"]) == record
    assert '"cfg": 1,' in texts["golem"]


def test_all_that_may_be_said():
    settings = Settings("狐 ré\nline", "blur", 64, 64, 20, 1.5, 2**64 - 1, "my style.safetensors", 0.75)
    texts = described(settings, "krea2_turbo_fp8")
    assert texts["parameters"] == (
        "狐 ré\nline <lora:my style:0.75>\nNegative prompt: blur\nSteps: 20, Sampler: er_sde, Schedule type: simple, "
        "CFG scale: 1.5, Seed: 18446744073709551615, Size: 64x64, Model: krea2_turbo_fp8, "
        f"Version: golem {version()}"
    )
    record = json.loads(texts["golem"])
    assert record["lora"] == "my style.safetensors" and record["lora_strength"] == 0.75
    assert record["seed"] == 2**64 - 1 and record["negative"] == "blur"
    data = png(np.zeros((64, 64, 3), np.uint8), settings, "krea2_turbo_fp8")
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.text["parameters"] == texts["parameters"]  # type: ignore[attr-defined]


def test_a_hidden_prompt_is_nowhere():
    settings = Settings("secret fox", "secret blur", seed=5, lora="style.safetensors", hide_prompt=True)
    texts = described(settings, "m")
    assert texts["parameters"] == f"<lora:style:1>\n{LINE}"
    assert json.loads(texts["golem"])["prompt"] == "" and "hide_prompt" not in texts["golem"]
    assert b"secret" not in png(np.zeros((64, 64, 3), np.uint8), settings, "m")
    assert described(Settings("secret", seed=5, hide_prompt=True), "m")["parameters"] == f"\n{LINE}"


def test_what_the_program_was_started_with():
    plain, started = described(SETTINGS, "m"), {"noise": "cpu+1", "literal": True}
    texts = described(SETTINGS, "m", started)
    assert json.loads(texts["golem"]) == json.loads(plain["golem"]) | started
    assert texts["parameters"] == plain["parameters"]


def test_a_lora_that_changes_nothing_is_not_said():
    texts = described(Settings("a", seed=5, lora="style.safetensors", lora_strength=0.0), "m")
    assert "lora" not in texts["parameters"] and "lora" not in texts["golem"]


@pytest.mark.parametrize(("number", "text"), [(1.0, "1"), (1.5, "1.5"), (0.75, "0.75"), (0.1, "0.1"), (1000.0, "1000")])
def test_numbers_are_short(number, text):
    assert shortest(number) == text
