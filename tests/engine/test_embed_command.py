"""`golem embed`: where texts come from, what is written, and what is refused."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_embedder import DIMENSIONS, END, fake_embedder, vector

from golem_core import api, embed_command
from golem_core.embedder import unit
from golem_core.errors import BadRequest, GolemError


@pytest.fixture
def run(monkeypatch, capfdbinary, tmp_path):
    """run(*texts, stdin=, **options) -> what is written to standard output, line by line."""
    monkeypatch.setattr(api, "load_embedder", lambda path, **options: fake_embedder(limit=16)[0])
    monkeypatch.chdir(tmp_path)

    def act(*texts: str, stdin: bytes | None = None, **given: Any) -> list[Any]:
        terminal = SimpleNamespace(buffer=io.BytesIO(stdin or b""), isatty=lambda: stdin is None)
        monkeypatch.setattr(sys, "stdin", terminal)
        usual = {"file": None, "out": None, "dimensions": None, "truncate": False, "raw": False}
        embed_command.embed({"embed": "model.gguf", "device": "cpu", "threads": None, "texts": texts, **usual, **given})
        return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]

    return act


def expected(text: str) -> np.ndarray:
    return vector([0, *map(ord, text), END])


def test_arguments_become_lines_of_json(run):
    assert run("a", "bc") == [
        {"text": text, "embedding": unit(expected(text)[None])[0].tolist()} for text in ("a", "bc")
    ]


def test_raw_vectors_are_the_model_s_and_dimensions_are_the_first(run):
    assert run("a", raw=True) == [{"text": "a", "embedding": expected("a").tolist()}]
    (short,) = run("a", dimensions=2)
    np.testing.assert_allclose(short["embedding"], unit(expected("a")[None, :2])[0], rtol=1e-6)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_are_piped_in_or_read_from_a_file(run, end):
    data = end.join([b"a", b"", "é".encode()]) + end
    assert [each["text"] for each in run(stdin=data)] == ["a", "", "é"]
    Path("texts.txt").write_bytes(data)
    assert run(file="texts.txt") == run(stdin=data, file="-") == run("a", "", "é")


def test_an_array_has_a_row_for_each_text(run):
    texts = [str(number) for number in range(300)]
    assert run(*texts, out="vectors.npy") == []
    array = np.load("vectors.npy")
    assert array.shape == (300, DIMENSIONS) and array.dtype == np.float32
    np.testing.assert_array_equal(array, unit(np.array([expected(text) for text in texts])))
    run(*texts, out="vectors.jsonl")
    lines = [json.loads(line) for line in Path("vectors.jsonl").read_text().splitlines()]
    assert [each["text"] for each in lines] == texts
    np.testing.assert_array_equal(np.float32([each["embedding"] for each in lines]), array)


def test_long_texts_are_refused_by_number_or_cut(run):
    with pytest.raises(
        BadRequest, match="text 2 has 102 tokens, and the model takes 16; shorten it, or cut it with -t"
    ):
        run("a", "x" * 100)
    assert run("x" * 100, truncate=True, raw=True)[0]["embedding"] == expected("x" * 14).tolist()


@pytest.mark.parametrize(
    "given, words",
    [
        ({"embed": None}, "no embedding model is named"),
        ({}, "there is no text"),
        ({"stdin": b""}, "standard input: there is no text"),
        ({"stdin": b"a\nb\xff\n"}, "standard input: line 2 is not UTF-8"),
        ({"file": "missing.txt"}, "-file missing.txt: No such file"),
        ({"stdin": b"a", "out": "no/where.npy"}, "-out no/where.npy: No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(run, given, words):
    with pytest.raises(GolemError, match=words):
        run(**given)


def test_texts_are_given_in_one_way(run):
    with pytest.raises(GolemError, match="give them in one way"):
        run("a", file="texts.txt")
