"""Damaged GGUF files are read or refused, never a crash, a hang or a large allocation.

GOLEM_FUZZ_SECONDS=180 runs each test that long instead of a fixed number of cases; a failure names its seed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import Unsupported
from golem_core.files import open_model


def read_everything(path: Path) -> None:
    refused = None
    with open_model(path) as model, np.errstate(all="ignore"):
        for key in model.metadata:
            _ = model.metadata[key]
        for block in model.weights.blocks:
            assert len(block)
        for weight in model.weights.values():
            try:
                assert weight.dequantize().shape == weight.shape
            except Unsupported as error:
                refused = error
    if refused:
        raise refused


@pytest.fixture(scope="module")
def seed_file(build) -> bytes:
    """About 1.2 kB with every kind of value and tensors of several types."""
    texts = b"".join(map(build.text, ("<s>", "▁the", "", "ab")))
    keys = [
        build.key("general.alignment", build.UINT32, build.u32(32)),
        *(build.key(f"k{kind}", kind, bytes(size)) for kind, size in zip(range(7), (1, 1, 2, 2, 4, 4, 4), strict=True)),
        build.key("k7", 7, b"\1"),
        build.key("k10", 10, bytes(8)),
        build.key("k12", 12, struct.pack("<d", 0.5)),
        build.key("text", build.STRING, build.text("grüße")),
        build.key("tokens", build.ARRAY, build.array(build.STRING, 4, texts)),
        build.key("scores", build.ARRAY, build.array(6, 4, bytes(16))),
        build.key("flags", build.ARRAY, build.array(7, 2, b"\0\1")),
        build.key("nested", build.ARRAY, build.array(9, 2, build.array(4, 1, bytes(4)) + build.array(8, 0, b""))),
    ]
    tensors = [
        build.tensor("output_norm.weight", (8,), 0, 0),
        build.tensor("blk.0.a.weight", (32, 2), 2, 32),
        build.tensor("blk.0.b.weight", (256, 1), 12, 96),
        build.tensor("blk.1.a.weight", (4, 2, 2), 1, 256),
        build.tensor("blk.1.b.weight", (32,), 39, 288),
    ]
    return build.file(keys, tensors, bytes(range(256)) + bytes(64))


def test_the_undamaged_file_reads(tmp_path, seed_file):
    (tmp_path / "whole.gguf").write_bytes(seed_file)
    with pytest.raises(Unsupported, match=r"blk\.1\.b.*MXFP4"):  # All else in it has a decoder.
        read_everything(tmp_path / "whole.gguf")


def test_damaged_files(fuzz, seed_file):
    fuzz = fuzz(600)
    outcomes = fuzz.run(lambda random: {"a.gguf": fuzz.damaged(seed_file, random)}, read_everything)
    print(f"{outcomes.total()} damaged GGUF files: {dict(outcomes)}")
    assert outcomes["BadFile"] and outcomes["Unsupported"]


def test_every_number_made_huge(fuzz, seed_file):
    """Each 8 bytes of the header in turn, wherever its numbers may lie."""
    fuzz = fuzz(0)
    end = seed_file.index(b"blk.1.b.weight") + 60
    outcomes = fuzz.run_all(
        (
            {"a.gguf": seed_file[:at] + number.to_bytes(8, "little") + seed_file[at + 8 :]}
            for at in range(4, end)
            for number in ((2**64 - 1, 2**62) if fuzz.seconds else (2**64 - 1,))
        ),
        read_everything,
    )
    assert outcomes["BadFile"] > outcomes.total() // 2


def test_damaged_parts_of_a_split(fuzz, build):
    def part(number: int) -> bytes:
        split = {"split.no": number, "split.count": 2, "split.tensors.count": 2}
        keys = [build.key(name, build.UINT32, build.u32(value)) for name, value in split.items()]
        return build.file(keys, [build.tensor(f"blk.{number}.a", (8,), 0, 0)], bytes(32))

    whole = [part(0), part(1)]
    fuzz = fuzz(200)

    def damage(random) -> dict[str, bytes]:
        parts = list(whole)
        at = random.randrange(2)
        parts[at] = fuzz.damaged(parts[at], random)
        return {f"a-{number:05d}-of-00002.gguf": data for number, data in enumerate(parts, 1)}

    outcomes = fuzz.run(damage, read_everything)
    print(f"{outcomes.total()} damaged split files: {dict(outcomes)}")
    assert outcomes["BadFile"] and outcomes["read"]
