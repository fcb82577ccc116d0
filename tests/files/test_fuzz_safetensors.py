"""Damaged safetensors files and model directories are read or refused, never a crash, a hang or a large allocation.

GOLEM_FUZZ_SECONDS=180 runs each test that long instead of a fixed number of cases; a failure names its seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import Unsupported
from golem_core.files import open_model

CONFIG = json.dumps({"architectures": ["Tiny"], "text_config": {"hidden_size": 8}, "eps": 1e-6}).encode()


def read_everything(path: Path) -> None:
    refused = None
    with open_model(path.parent) as model, np.errstate(all="ignore"):
        assert len(dict(model.metadata)) == len(model.metadata)
        for weight in model.weights.values():
            try:
                assert weight.dequantize().shape == weight.shape
            except Unsupported as error:
                refused = error
    if refused:
        raise refused


@pytest.fixture(scope="module")
def shards(safetensors_bytes) -> dict[str, bytes]:
    one = {"a": ("F32", [2, 4], bytes(32)), "b": ("BF16", [8], bytes(16)), "n": ("F32", [0, 2], b"")}
    two = {"c": ("F16", [2, 2, 2], bytes(16)), "d": ("I64", [], bytes(8))}
    places = {name: "one.safetensors" for name in one} | {name: "two.safetensors" for name in two}
    return {
        "config.json": CONFIG,
        "model.safetensors.index.json": json.dumps({"weight_map": places}).encode(),
        "one.safetensors": safetensors_bytes(one, lambda header: header | {"__metadata__": {"format": "pt"}}),
        "two.safetensors": safetensors_bytes(two),
    }


def test_the_undamaged_directory_reads(tmp_path, shards):
    for name, data in shards.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(Unsupported, match="'d': I64"):  # All else in it has a decoder.
        read_everything(tmp_path / "config.json")


def test_damaged_directories(fuzz, shards):
    fuzz = fuzz(300)

    def damage(random) -> dict[str, bytes]:
        files = dict(shards)
        name = random.choice(list(files))
        files[name] = fuzz.damaged(files[name], random)
        return files

    outcomes = fuzz.run(damage, read_everything)
    print(f"{outcomes.total()} damaged directories: {dict(outcomes)}")
    assert outcomes["BadFile"] and outcomes["Unsupported"]
