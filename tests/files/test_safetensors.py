"""Model directories open, whole or in shards, and headers that contradict themselves are refused by name."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from golem_core.errors import BadFile, Unsupported
from golem_core.files import open_model, open_safetensors, read_json
from golem_core.files.safetensors import read_safetensors

CONFIG = {"architectures": ["TinyForCausalLM"], "model_type": "tiny", "text_config": {"hidden_size": 8}}


@pytest.fixture
def directory(tmp_path):
    """write(files, config) -> a model directory."""

    def write(files: dict[str, bytes], config: object = CONFIG):
        folder = tmp_path / "model"
        folder.mkdir()
        if config is not None:
            (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return folder

    return write


def test_a_directory_reads_as_written(directory, safetensors_bytes, rng):
    matrix = rng.standard_normal((4, 8)).astype(np.float32)
    tensors = {
        "model.embed.weight": ("F32", [4, 8], matrix.tobytes()),
        "model.half.weight": ("F16", [4, 8], matrix.astype(np.float16).tobytes()),
        "model.brain.weight": ("BF16", [4, 8], (matrix.view(np.uint32) >> 16).astype(np.uint16).tobytes()),
        "scalar": ("F32", [], struct.pack("<f", 2.5)),
        "none": ("F32", [0, 3], b""),
        "ids": ("I64", [2], bytes(16)),
    }
    with open_model(directory({"model.safetensors": safetensors_bytes(tensors)})) as model:
        assert model.architecture == "TinyForCausalLM"
        assert model.metadata["model_type"] == "tiny" and model.metadata.scoped("text_config")["hidden_size"] == 8
        weights = model.weights.scoped("model")
        assert np.array_equal(weights.embed.dequantize(), matrix) and weights.embed.type == "F32"
        assert np.array_equal(weights.half.dequantize(), matrix.astype(np.float16).astype(np.float32))
        assert np.array_equal(
            weights.brain.dequantize().view(np.uint32), matrix.view(np.uint32) & np.uint32(0xFFFF0000)
        )
        assert model.weights["scalar"].dequantize().tolist() == [2.5]
        assert model.weights["none"].dequantize().shape == (0, 3)
        with pytest.raises(Unsupported, match="'ids': I64"):
            model.weights["ids"].dequantize()


def test_the_safetensors_packages_own_files_read(tmp_path, rng):
    library = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    tensors = {name: rng.standard_normal((3, n)).astype(np.float32) for n, name in enumerate("abcd")}
    library.save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "np"})
    contents = read_safetensors(tmp_path / "x.safetensors")
    assert {name: weight.dequantize().tolist() for name, weight in contents.tensors.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert dict(contents.metadata) == {"format": "np"}
    contents.close()


def test_the_architecture_falls_back_to_the_model_type(directory, safetensors_bytes):
    with open_model(directory({"a.safetensors": safetensors_bytes({})}, {"model_type": "tiny"})) as model:
        assert model.architecture == "tiny" and len(model.weights) == 0


@pytest.mark.parametrize("config", ["{}", '{"architectures": [3]}', '{"architectures": [], "model_type": null}'])
def test_a_directory_without_an_architecture_is_refused(directory, safetensors_bytes, config):
    with pytest.raises(
        BadFile, match=r"model: it does not name its architecture: expected architectures or model_type"
    ):
        open_model(directory({"a.safetensors": safetensors_bytes({})}, config))


@pytest.mark.parametrize(
    ("files", "config", "message"),
    [
        ({}, None, "without config.json"),
        ({}, CONFIG, "expected model.safetensors, .* not 0"),
        ({"a.safetensors": b"", "b.safetensors": b""}, CONFIG, "expected model.safetensors, .* not 2"),
        ({"model.safetensors": b""}, CONFIG, r"model\.safetensors: the file is empty"),
        ({}, "[1]", r"config\.json: not a JSON object"),
        ({}, "{", r"config\.json: not JSON"),
        ({}, '{"a": 1, "a": 2}', r"config\.json: the key 'a' appears twice"),
        ({}, r'{"a": ["\ud800"]}', r"config\.json: not JSON: .*surrogates"),
        ({}, '{"a": ' + "[" * 200_000, r"config\.json: nested too deeply"),
        ({}, '{"a": 1' + "0" * 10_000 + "}", r"config\.json: not JSON"),
    ],
)
def test_a_directory_that_is_no_model_is_refused(directory, files, config, message):
    with pytest.raises(BadFile, match=message):
        open_model(directory(files, config))


def index(places: object) -> bytes:
    return json.dumps({"metadata": {"total_size": 1}, "weight_map": places}).encode()


def test_shards_are_joined_by_the_index(directory, safetensors_bytes):
    one = {"a": ("F32", [1], struct.pack("<f", 1)), "unlisted": ("F32", [1], bytes(4))}
    two = {"b": ("F32", [1], struct.pack("<f", 2))}
    files = {
        "model-1.safetensors": safetensors_bytes(one),
        "model-2.safetensors": safetensors_bytes(two),
        "model.safetensors.index.json": index({"b": "model-2.safetensors", "a": "model-1.safetensors"}),
    }
    with open_model(directory(files)) as model:
        assert {name: weight.dequantize()[0] for name, weight in model.weights.items()} == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"a": "one.safetensors", "b": "two.safetensors"}, r"two\.safetensors: the file that .* lists for 'b'"),
        ({"c": "one.safetensors"}, r"one\.safetensors: there is no tensor 'c'"),
        ({"a": "../one.safetensors"}, r"index\.json: '\.\./one\.safetensors' is not the name of a file beside it"),
        ({"a": "/etc/passwd"}, r"index\.json: '/etc/passwd' is not the name of a file beside it"),
        ({"a": "..\\one"}, "is not the name of a file beside it"),
        ({"a": ".."}, "is missing"),
        ({"a": "x" * 5000}, "is missing"),
        ({"a": "\ud800"}, "not JSON: .*surrogates"),
        ({"a": 3}, "weight_map is not an object of file names"),
        (None, "weight_map is not an object of file names"),
    ],
)
def test_an_index_that_points_nowhere_is_refused(directory, safetensors_bytes, places, message):
    files = {
        "one.safetensors": safetensors_bytes({"a": ("F32", [1], bytes(4))}),
        "model.safetensors.index.json": index(places),
    }
    with pytest.raises(BadFile, match=message):
        open_model(directory(files))


def entry(**changes: object):
    """Changes the entry of tensor "a", an F32 of shape [2, 2]; None takes a field away."""

    def change(header):
        fields = header["a"] | changes
        return header | {"a": {name: value for name, value in fields.items() if value is not None}}

    return change


HEADERS = {
    "a list": (lambda header: [header], "not a safetensors file"),
    "an entry that is a list": (lambda header: {"a": [1]}, "'a': its entry is not an object"),
    "no shape": (entry(shape=None), "'a': its entry is not an object of dtype, shape"),
    "another field": (entry(more=1), "'a': its entry is not an object of dtype, shape"),
    "an unknown dtype": (entry(dtype="F128"), "'a': there is no dtype 'F128'"),
    "a dtype that is a list": (entry(dtype=["F32"]), "'a': there is no dtype"),
    "a negative size": (entry(shape=[-2, -2]), "'a': its shape is not"),
    "a size that is a float": (entry(shape=[4.0]), "'a': its shape is not"),
    "a size that is a bool": (entry(shape=[True, 4]), "'a': its shape is not"),
    "a million dimensions": (entry(shape=[1] * 1_000_000), "'a': its shape is not"),
    "sizes that multiply past 64 bits": (entry(shape=[2**40, 2**40]), "'a': the shape .* larger than any file"),
    "nothing of a huge width": (entry(shape=[0, 2**60, 2**60]), "'a': the shape .* larger than any file"),
    "a shape of another size": (entry(shape=[2, 3]), r"'a': 16 bytes of data are not what F32 of the shape \[2, 3\]"),
    "a dtype of another size": (entry(dtype="F16"), "'a': 16 bytes of data are not what F16"),
    "offsets backwards": (entry(data_offsets=[16, 0]), "'a': its data_offsets"),
    "three offsets": (entry(data_offsets=[0, 8, 16]), "'a': its data_offsets"),
    "an offset beyond the file": (entry(data_offsets=[2**50, 2**50 + 16]), "'b': .* leaves 16 bytes unused"),
    "overlapping data": (
        lambda header: header | {"b": header["b"] | {"data_offsets": [8, 16]}},
        "'b': .* overlaps the tensor before it",
    ),
    "the same data twice": (lambda header: header | {"c": header["a"]}, "'c': .* overlaps the tensor before it"),
    "bytes of no tensor": (lambda header: {"a": header["a"]}, "take 16 bytes, but 24 bytes follow"),
    "a gap": (lambda header: {"b": header["b"]}, "'b': .* leaves 16 bytes unused"),
    "metadata that is a list": (lambda header: header | {"__metadata__": []}, "__metadata__ is not"),
    "metadata that nests": (lambda header: header | {"__metadata__": {"a": {}}}, "__metadata__ is not"),
}


@pytest.mark.parametrize("wrong", HEADERS)
def test_a_contradictory_header_is_refused_by_name(wrong, tmp_path, safetensors_bytes):
    change, message = HEADERS[wrong]
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(safetensors_bytes({"a": ("F32", [2, 2], bytes(16)), "b": ("F16", [4], bytes(8))}, change))
    with pytest.raises(BadFile, match=rf"wrong\.safetensors: .*({message})"):
        read_safetensors(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234567", "at least 8 are needed"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "a header of 18446744073709551615 bytes in a file of 10"),
        (struct.pack("<Q", 3) + b"{}", "a header of 3 bytes in a file of 10"),
        (struct.pack("<Q", 2) + b" {", "not a JSON object"),
        (struct.pack("<Q", 2) + b"{]", "not JSON"),
        (struct.pack("<Q", 5) + b'{"\xff":', "not JSON"),
        (struct.pack("<Q", 16) + b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
        (struct.pack("<Q", 100_005) + b'{"a":' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_header_that_is_no_json_object_is_refused(tmp_path, data, message):
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=rf"wrong\.safetensors: .*{message}"):
        read_safetensors(path)


def test_a_file_cut_anywhere_is_refused(tmp_path, safetensors_bytes):
    whole = safetensors_bytes({"a": ("F32", [2, 2], bytes(16)), "b": ("F16", [4], bytes(8))})
    for length in range(len(whole)):
        path = tmp_path / f"{length}.safetensors"
        path.write_bytes(whole[:length])
        with pytest.raises(BadFile, match=rf"{length}\.safetensors: "):
            read_safetensors(path)


def test_one_file_is_opened_as_a_model_of_the_architecture_that_is_named(tmp_path) -> None:
    header = (
        b'{"a.weight": {"dtype": "F16", "shape": [1, 2], "data_offsets": [0, 4]}, "__metadata__": {"format": "pt"}}'
    )
    path = tmp_path / "any.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\x3c\0\x40")
    with open_safetensors(path, "toy") as file:
        assert file.architecture == "toy" and dict(file.metadata) == {"format": "pt"}
        assert file.weights.a.dequantize().tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1', b'{"a": 1, "a": 2}', b"\xff"])
def test_a_json_file_is_an_object_or_refused_by_name(tmp_path, content) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": {"b": 3}}')
    assert read_json(path).scoped("a").number("b", int) == 3
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"config\.json"):
        read_json(path)
    with pytest.raises(BadFile, match=r"none\.json: cannot be read"):
        read_json(tmp_path / "none.json")
