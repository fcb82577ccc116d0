"""What gguf-py writes is what the reader gives, and a long vocabulary costs nothing before it is asked for."""

from __future__ import annotations

import time

import gguf
import numpy as np
import pytest

from golem_core.errors import BadFile
from golem_core.files import GGUF_TYPES, open_model
from golem_core.files.metadata import Deferred

SCALARS = {
    "u8": 250,
    "i8": -7,
    "u16": 65000,
    "i16": -30000,
    "u32": 4_000_000_000,
    "i32": -2_000_000_000,
    "u64": 2**63 + 5,
    "i64": -(2**62),
    "f32": 0.5,
    "f64": 1e-200,
}


def fill(writer: gguf.GGUFWriter) -> None:
    for code, value in SCALARS.items():
        kind = {"u": "uint", "i": "int", "f": "float"}[code[0]] + code[1:]
        getattr(writer, f"add_{kind}")(f"tiny.{code}", value)
    writer.add_bool("tiny.yes", True)
    writer.add_bool("tiny.no", False)
    writer.add_string("tiny.text", "grüße 🙂")
    writer.add_array("tiny.ints", [3, 1, 2])
    writer.add_array("tiny.floats", [0.25, -1.5])
    writer.add_array("tiny.bools", [True, False])
    writer.add_array("tiny.texts", ["", "▁the", "ä"])


def test_every_value_type_reads_as_gguf_py_wrote_it(tmp_path, write_gguf):
    with open_model(write_gguf(tmp_path / "a.gguf", {"x": np.zeros(4, np.float32)}, fill)) as model:
        meta = model.metadata.scoped("tiny")
        assert {code: meta[code] for code in SCALARS} == SCALARS
        assert meta["yes"] is True and meta["no"] is False
        assert meta["text"] == "grüße 🙂"
        assert meta["ints"] == [3, 1, 2] and meta["floats"] == [0.25, -1.5] and meta["bools"] == [True, False]
        assert meta["texts"] == ["", "▁the", "ä"]
        assert model.architecture == model.metadata["general.architecture"] == "tiny"


def test_arrays_of_arrays_read(tmp_path, build):
    inner = build.array(build.UINT32, 2, build.u32(1) + build.u32(2)) + build.array(build.STRING, 1, build.text("a"))
    path = tmp_path / "a.gguf"
    path.write_bytes(build.file([build.key("x", build.ARRAY, build.array(build.ARRAY, 2, inner))], []))
    with open_model(path) as model:
        assert model.metadata["x"] == [[1, 2], ["a"]]


def test_version_2_reads(tmp_path, build):
    path = tmp_path / "a.gguf"
    path.write_bytes(build.file([], [build.tensor("x", (8,), 0, 0)], bytes(32), version=build.u32(2)))
    with open_model(path) as model:
        assert model.weights.get("x").shape == (8,)


def test_bytes_that_are_not_utf8_survive_in_arrays(tmp_path, build):
    path = tmp_path / "a.gguf"
    array = build.array(build.STRING, 2, build.text(b"\xe4\xb8") + build.text("ok"))
    path.write_bytes(build.file([build.key("tokens", build.ARRAY, array)], []))
    with open_model(path) as model:
        broken, whole = model.metadata["tokens"]
        assert broken.encode("utf-8", "surrogateescape") == b"\xe4\xb8" and whole == "ok"


def test_a_text_that_is_not_utf8_is_refused_when_asked_for(tmp_path, build):
    path = tmp_path / "a.gguf"
    path.write_bytes(build.file([build.key("general.author", build.STRING, build.text(b"Andr\xe9"))], []))
    with open_model(path) as model:
        assert model.architecture == "tiny"
        with pytest.raises(BadFile, match=r"a\.gguf.*general\.author.*byte 4"):
            _ = model.metadata["general.author"]


def test_tensors_have_row_major_shapes_and_the_bytes_of_the_file(tmp_path, write_gguf, rng):
    matrix = rng.standard_normal((5, 64)).astype(np.float32)
    tensors = {
        "token_embd.weight": matrix,
        "half.weight": matrix.astype(np.float16),
        "blk.0.attn_q.weight": (gguf.quantize(matrix, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0),
        "blk.0.experts.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "counts": np.arange(3, dtype=np.int64),
    }
    with open_model(write_gguf(tmp_path / "a.gguf", tensors)) as model:
        weights = model.weights
        assert list(weights) == list(tensors)
        assert weights.token_embd.shape == (5, 64) and weights.token_embd.type == "F32"
        assert np.array_equal(weights.token_embd.dequantize(), matrix)
        assert weights.half.type == "F16" and weights.half.nbytes == 640
        quantized = weights.blocks[0].attn_q
        assert quantized.type == "Q8_0" and (quantized.rows, quantized.width, quantized.row_nbytes) == (5, 64, 68)
        assert quantized.data.tobytes() == tensors["blk.0.attn_q.weight"][0].tobytes()
        assert weights.blocks[0].experts.rows == 6
        assert np.array_equal(weights.blocks[0].experts.dequantize(), tensors["blk.0.experts.weight"])
        assert weights["counts"].type == "I64" and not weights["counts"].data.flags.writeable


def test_another_alignment_is_honoured(tmp_path, write_gguf):
    def align(writer: gguf.GGUFWriter) -> None:
        writer.add_custom_alignment(256)

    tensors = {"a": np.full(3, 1.5, np.float32), "b": np.full(5, 2.5, np.float32)}
    with open_model(write_gguf(tmp_path / "a.gguf", tensors, align)) as model:
        for name, tensor in tensors.items():
            assert np.array_equal(model.weights[name].dequantize(), tensor)


def test_a_tensor_without_dimensions_is_one_number(tmp_path, build):
    path = tmp_path / "a.gguf"
    path.write_bytes(build.file([], [build.tensor("scale", (), 0, 0)], np.float32(2.5).tobytes()))
    with open_model(path) as model:
        assert model.weights["scale"].dequantize().tolist() == [2.5]


def test_the_type_table_is_gguf_pys():
    ours = {(number, kind.name, kind.block, kind.nbytes) for number, kind in GGUF_TYPES.items()}
    theirs = {
        (int(kind), kind.name, *gguf.GGML_QUANT_SIZES[kind])
        for kind in gguf.GGMLQuantizationType
        if kind in gguf.GGML_QUANT_SIZES
    }
    assert theirs <= ours


def test_a_long_vocabulary_is_passed_over_fast_and_decoded_once(tmp_path, build):
    tokens = [f"token{i}" for i in range(262_144)]
    array = build.array(build.STRING, len(tokens), b"".join(map(build.text, tokens)))
    path = tmp_path / "a.gguf"
    path.write_bytes(build.file([build.key("tokens", build.ARRAY, array)], []))
    start = time.perf_counter()
    model = open_model(path)
    assert time.perf_counter() - start < 1.0  # About 0.03 s on a quiet machine.
    with model:
        assert isinstance(model.metadata._values["tokens"], Deferred)
        assert model.metadata["tokens"] == tokens
        assert model.metadata["tokens"] is model.metadata["tokens"]


@pytest.fixture
def split(tmp_path, write_gguf):
    """Three parts, tensors t0 to t4 spread over them; -> their paths.  `changes` maps (part, key) to a value."""

    def write(changes: dict[tuple[int, str], int | None] | None = None, names=(("t0", "t1"), ("t2",), ("t3", "t4"))):
        paths = []
        for part, tensors in enumerate(names):

            def fill(writer: gguf.GGUFWriter, part: int = part) -> None:
                for key, value in {"split.no": part, "split.count": 3, "split.tensors.count": 5}.items():
                    value = (changes or {}).get((part, key), value)
                    if value is not None:
                        writer.add_int32(key, value)
                writer.add_string("tiny.which", f"part {part}")

            path = tmp_path / f"model-{part + 1:05d}-of-00003.gguf"
            paths.append(write_gguf(path, {n: np.full(4, int(n[1:]), np.float32) for n in tensors}, fill))
        return paths

    return write


@pytest.mark.parametrize("given", [0, 1, 2])
def test_a_split_file_opens_by_any_part(split, given):
    with open_model(split()[given]) as model:
        assert list(model.weights) == ["t0", "t1", "t2", "t3", "t4"]
        assert [weight.dequantize()[0] for weight in model.weights.values()] == [0, 1, 2, 3, 4]
        assert model.metadata["tiny.which"] == "part 0"


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(split, missing):
    paths = split()
    paths[missing].unlink()
    with pytest.raises(BadFile, match=rf"model-0000{missing + 1}-of-00003\.gguf: part {missing + 1} of the 3"):
        open_model(paths[1 if missing == 0 else 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({(1, "split.no"): 2}, r"00002-of.*split\.no is 2"),
        ({(2, "split.count"): 4}, r"00003-of.*split\.count is 4"),
        ({(2, "split.count"): None}, r"00003-of.*split\.count.*missing"),
        ({(0, "split.tensors.count"): 6}, r"00001-of.*split\.tensors\.count is 6, .* 5 tensors"),
    ],
)
def test_parts_that_disagree_are_refused(split, changes, message):
    with pytest.raises(BadFile, match=message):
        open_model(split(changes)[0])


def test_a_tensor_in_two_parts_is_refused(split):
    with pytest.raises(BadFile, match=r"00003-of.*'t1' is in an earlier part"):
        open_model(split(names=(("t0", "t1"), ("t2",), ("t3", "t1")))[0])


def test_a_part_under_another_name_is_refused(split, tmp_path):
    renamed = split()[0].rename(tmp_path / "other.gguf")
    with pytest.raises(BadFile, match=r"other\.gguf: split\.count makes it one of 3 parts"):
        open_model(renamed)
