"""Products of bytes at their largest: no sum of a block may wrap."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph, Weight
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.library import Library
from golem_core.cpu.target import Target

ONE, ZERO, ALL = b"\x00\x3c", b"\x00\x00", b"\xff"
LARGEST = {  # a block whose scale is 1 and whose quants are all as large as they get
    "Q4_0": (ONE + b"\x00" * 16, -8),
    "Q4_1": (ONE + ZERO + ALL * 16, 15),
    "Q5_0": (ONE + ZERO * 2 + b"\x00" * 16, -16),
    "Q5_1": (ONE + ZERO + ALL * 20, 31),
    "Q8_0": (ONE + b"\x80" * 32, -128),
    "Q4_K": (ONE + ZERO + ALL * 140, 15 * 63),
    "Q5_K": (ONE + ZERO + ALL * 172, 31 * 63),
    "Q6_K": (b"\x00" * 192 + b"\x80" * 16 + ONE, 32 * 128),
    "Q2_K": (ALL * 80 + ONE + ZERO, 3 * 15),
}


@pytest.mark.parametrize("path", Target.host().paths)
@pytest.mark.parametrize("kind", LARGEST)
def test_the_largest_quants_meet_the_largest_activations(kind, path):
    block, each = LARGEST[kind]
    library = None if path == Target.host().paths[0] else Library(Target.host().on_path(path))
    rows = np.array([np.ones(512), -np.ones(512)], np.float32)
    weight = Weight("w", kind, (24, 512), np.frombuffer(block * (24 * 512 // (256 if "K" in kind else 32)), np.uint8))
    assert (weight.dequantize() == each).all()
    g = Graph()
    g.output("y", g.linear(g.embed(Weight("table", "F32", (2, 512), rows.reshape(-1).view(np.uint8))), weight))
    device = CpuDevice(threads=1, library=library)
    for n in (1, 4, 13):
        token = np.arange(n) % 2
        out = device.compile(g, scored=n).run(Columns(token, range(n), [0] * n, range(n)))["y"]
        want = device.round_input(weight, rows)[token] @ weight.dequantize().T
        np.testing.assert_allclose(out, want, rtol=1e-5)
