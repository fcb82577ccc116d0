"""A path that is no model says what was expected, and closing a model never pulls memory from under a weight."""

from __future__ import annotations

import os

import numpy as np
import pytest

from golem_core.errors import BadFile
from golem_core.files import architecture_of, open_model


@pytest.fixture
def tiny(tmp_path, write_gguf):
    def fill(writer):
        writer.add_name("a tiny model")

    return write_gguf(tmp_path / "tiny.gguf", {"x.weight": np.arange(8, dtype=np.float32)}, fill)


def test_a_path_may_be_a_text(tiny):
    with open_model(str(tiny)) as model:
        assert model.path == tiny and model.architecture == "tiny"


@pytest.mark.parametrize(
    ("file", "name"), [("a.b.gguf", "a.b"), ("A.GGUF", "A"), ("plain", "plain"), ("a.gguf.part", "a.gguf.part")]
)
def test_a_model_is_named_after_its_file(tmp_path, tiny, file, name):
    path = tmp_path / file
    path.write_bytes(tiny.read_bytes())
    with open_model(path) as opened:
        assert (opened.name, opened.path) == (name, path)


def test_the_architecture_is_found_without_reading_what_follows_it(tmp_path, tiny, build):
    assert architecture_of(str(tiny)) == "tiny"
    cut = tmp_path / "cut.gguf"
    key = build.key("general.architecture", build.STRING, build.text("tiny"))
    cut.write_bytes(b"GGUF" + build.u32(3) + build.u64(0) + build.u64(2) + key + bytes(13))
    assert architecture_of(cut) == "tiny"
    with pytest.raises(BadFile, match=r"cut\.gguf"):
        open_model(cut)


@pytest.mark.parametrize("name", ["absent.gguf", "x" * 5000, "a\0b"])
def test_a_path_that_does_not_exist_is_named(tmp_path, name):
    with pytest.raises(BadFile, match=name[:10]):
        open_model(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a GGUF file, or a directory"),
        (b"GGU", "expected a GGUF file, or a directory"),
        (b"PK\3\4" + bytes(100), r"begins with b'PK\\x03\\x04'; expected a GGUF file, or a directory"),
        (b"\2\0\0\0\0\0\0\0{}", "a safetensors file; give the directory"),
    ],
)
def test_a_file_of_another_kind_is_told_what_was_expected(tmp_path, data, message):
    path = tmp_path / "other.bin"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=rf"other\.bin: .*{message}"):
        open_model(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="not a regular file"):
        open_model(tmp_path / "pipe")


@pytest.mark.parametrize("value", [None, (8, "")])
def test_a_file_without_an_architecture_is_refused(tmp_path, build, value):
    path = tmp_path / "a.gguf"
    header = b"GGUF" + build.u32(3) + build.u64(0)
    key = b"" if value is None else build.key("general.architecture", build.STRING, build.text(""))
    path.write_bytes(header + build.u64(1 if key else 0) + key)
    for opened in (open_model, architecture_of):
        with pytest.raises(BadFile, match=r"a\.gguf: .*expected general\.architecture"):
            opened(path)


def test_a_weight_stays_readable_after_closing(tiny):
    model = open_model(tiny)
    weight = model.weights.x
    model.close()
    model.close()
    assert weight.dequantize().tolist() == list(range(8))


def test_a_closed_model_says_so(tiny):
    model = open_model(tiny)
    weights = model.weights
    model.close()
    with pytest.raises(BadFile, match=r"tiny\.gguf: the file is closed"):
        _ = model.metadata["general.name"]
    with pytest.raises(BadFile, match=r"tiny\.gguf: .*closed"):
        _ = weights.x


def test_closing_gives_the_map_back(tiny):
    model = open_model(tiny)
    raw = model._contents.files[0].raw
    model.close()
    assert raw.closed
