"""A GGUF file that contradicts itself is refused with an error naming the file and the thing."""

from __future__ import annotations

import pytest

from golem_core.errors import BadFile
from golem_core.files import open_model

HUGE = 2**64 - 1

# what is wrong -> (the file's bytes, what the error must say)
CASES = {
    "version 1": (lambda b: b.file([], [], version=b.u32(1)), "GGUF version 1"),
    "version 4": (lambda b: b.file([], [], version=b.u32(4)), "GGUF version 4"),
    "big-endian": (lambda b: b.file([], [], version=b"\0\0\0\3"), "big-endian"),
    "too many keys": (lambda b: b.file([], [], key_count=HUGE), "keys do not fit"),
    "one key too many": (lambda b: b.file([], [], bytes(64), key_count=2), "key 1: a name of 0 bytes"),
    "too many tensors": (lambda b: b.file([], [], tensor_count=HUGE), "tensors do not fit"),
    "a key of no type": (lambda b: b.file([b.key("x", 13, b"")], []), "'x': there is no value type 13"),
    "an array of no type": (lambda b: b.file([b.key("x", 9, b.array(99, 1, b""))], []), "'x': .* value type 99"),
    "a key's length": (lambda b: b.file([b.text("x", HUGE)], []), "a name of 18446744073709551615 bytes"),
    "a key twice": (lambda b: b.file([b.key("x", 0, b"1")] * 2, []), "'x' appears twice"),
    "a key that is not UTF-8": (lambda b: b.file([b.key(b"\xff\xfe", 0, b"1")], []), "not UTF-8"),
    "a text's length": (lambda b: b.file([b.key("x", 8, b.u64(HUGE))], []), "'x': the file ends at byte"),
    "a text's length, wrapping": (lambda b: b.file([b.key("x", 8, b.u64(2**63))], []), "'x': the file ends"),
    "an array's count": (lambda b: b.file([b.key("x", 9, b.array(4, 2**62, b""))], []), "'x': .* elements do not fit"),
    "an array of bytes": (lambda b: b.file([b.key("x", 9, b.array(0, 10**6, b""))], []), "'x': .* elements do not"),
    "strings' count": (lambda b: b.file([b.key("x", 9, b.array(8, HUGE, b""))], []), "'x': .* elements do not fit"),
    "a string in an array": (
        lambda b: b.file([b.key("x", 9, b.array(8, 2, b.text("ok") + b.u64(HUGE)))], []),
        "'x': an array of 2 strings runs past the end",
    ),
    "a string of half the address space": (
        lambda b: b.file([b.key("x", 9, b.array(8, 2, b.u64(2**63 - 1) + b.text("ok")))], []),
        "'x': an array of 2 strings runs past the end",
    ),
    "arrays of arrays without end": (
        lambda b: b.file([b.key("x", 9, b.array(9, 1, b"") * 100)], []),
        "'x': arrays more than 4 deep",
    ),
    "a bool of 2": (lambda b: b.file([b.key("x", 7, b"\2")], []), "'x': a bool is 0 or 1"),
    "an array with a bool of 255": (
        lambda b: b.file([b.key("x", 9, b.array(7, 3, b"\0\1\xff"))], []),
        "'x': a bool is 0 or 1, this one is 255",
    ),
    "no alignment": (lambda b: b.file([b.key("general.alignment", 4, b.u32(0))], []), r"general\.alignment"),
    "an alignment of 48": (lambda b: b.file([b.key("general.alignment", 4, b.u32(48))], []), r"general\.alignment"),
    "an alignment of text": (
        lambda b: b.file([b.key("general.alignment", 8, b.text("32"))], []),
        r"general\.alignment",
    ),
    "a huge alignment": (
        lambda b: b.file([b.key("general.alignment", 10, b.u64(2**63))], [b.tensor("t", (8,), 0, 0)], bytes(32)),
        "'t': its data ends at byte",
    ),
    "a tensor twice": (
        lambda b: b.file([], [b.tensor("t", (8,), 0, 0), b.tensor("t", (8,), 0, 32)], bytes(64)),
        "'t' appears twice",
    ),
    "a tensor's name that is not UTF-8": (
        lambda b: b.file([], [b.tensor(b"\xc3", (8,), 0, 0)], bytes(32)),
        "tensor 0: the name .* is not UTF-8",
    ),
    "five dimensions": (lambda b: b.file([], [b.tensor("t", (1,) * 5, 0, 0)], bytes(32)), "'t': 5 dimensions"),
    "2**32 - 1 dimensions": (
        lambda b: b.file([], [b.text("t") + b.u32(2**32 - 1)], bytes(64)),
        "'t': 4294967295 dimensions",
    ),
    "an empty dimension": (lambda b: b.file([], [b.tensor("t", (8, 0), 0, 0)], bytes(32)), r"'t': the shape \(0, 8\)"),
    "too many elements": (
        lambda b: b.file([], [b.tensor("t", (2**32, 2**32), 0, 0)], bytes(32)),
        "'t': the shape .* larger than any file",
    ),
    "elements that wrap around to 8": (
        lambda b: b.file([], [b.tensor("t", (2**61 + 1, 8), 0, 0)], bytes(32)),
        "'t': the shape .* larger than any file",
    ),
    "no such type": (lambda b: b.file([], [b.tensor("t", (32,), 4, 0)], bytes(32)), "'t': there is no tensor type 4"),
    "half a block": (lambda b: b.file([], [b.tensor("t", (48,), 8, 0)], bytes(64)), "'t': rows of 48 .* Q8_0.* 32"),
    "a misaligned offset": (
        lambda b: b.file([], [b.tensor("t", (8,), 0, 8)], bytes(64)),
        "'t': its offset 8 is not a multiple of the alignment 32",
    ),
    "an offset beyond the file": (
        lambda b: b.file([], [b.tensor("t", (8,), 0, 2**64 - 32)], bytes(32)),
        "'t': its data ends at byte",
    ),
    "data one byte short": (lambda b: b.file([], [b.tensor("t", (8,), 0, 0)], bytes(31)), "'t': its data ends at"),
    "overlapping data": (
        lambda b: b.file([], [b.tensor("t", (16,), 0, 0), b.tensor("u", (8,), 0, 32)], bytes(64)),
        "'u': its data, at offset 32, overlaps that of tensor 't'",
    ),
    "one tensor's data in another's": (
        lambda b: b.file([], [b.tensor("t", (24,), 0, 0), b.tensor("u", (8,), 0, 0)], bytes(96)),
        "overlaps that of tensor",
    ),
}


@pytest.mark.parametrize("wrong", CASES)
def test_a_contradictory_file_is_refused_by_name(wrong, tmp_path, build):
    make, message = CASES[wrong]
    path = tmp_path / "wrong.gguf"
    path.write_bytes(make(build))
    with pytest.raises(BadFile, match=rf"wrong\.gguf: .*{message}"):
        open_model(path)


def test_the_same_file_without_a_fault_opens(tmp_path, build):
    path = tmp_path / "right.gguf"
    tensors = [build.tensor("t", (16,), 0, 0), build.tensor("u", (8,), 0, 64)]
    path.write_bytes(build.file([build.key("x", 7, b"\1")], tensors, bytes(96)))
    with open_model(path) as model:
        assert model.metadata["x"] is True and len(model.weights) == 2


def test_a_file_cut_anywhere_is_refused(tmp_path, build):
    array = build.array(build.STRING, 3, b"".join(map(build.text, ("a", "bc", ""))))
    keys = [build.key("x", build.UINT32, build.u32(5)), build.key("tokens", build.ARRAY, array)]
    whole = build.file(keys, [build.tensor("t", (4, 8), 0, 0)], bytes(128))
    for length in range(len(whole)):
        path = tmp_path / f"{length}.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(BadFile, match=rf"{length}\.gguf: "):
            open_model(path)
