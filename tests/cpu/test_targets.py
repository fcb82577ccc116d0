"""Kernels for other processors: they compile, and call nothing that a process might not have."""

from __future__ import annotations

import re

import pytest

from golem_core.cpu import device  # noqa: F401  (registers the kernels)
from golem_core.cpu.library import Library
from golem_core.cpu.target import Target

TARGETS = {
    "x86-64": Target("x86_64-unknown-linux-gnu", "", ""),
    "x86-64-avx2": Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c,+sse4.1"),
    "arm": Target("aarch64-unknown-linux-gnu", "generic", ""),
    "mac": Target("arm64-apple-darwin", "apple-m1", ""),
    "windows": Target("x86_64-pc-windows-msvc", "", "+avx2,+fma,+f16c,+sse4.1"),
}
KERNELS = [
    "linear_Q4_0", "linear_Q8_0", "linear_F16", "repack_Q6_K", "attend_f16_4", "store_f16_halves_normed", "rope_angles",
    "residual2_norm_q32", "gelu_mul_q256", "quantize_q256", "route", "worker", "run_program", "launch",
]  # fmt: skip
OF_THE_SYSTEM = {"sched_yield", "SwitchToThread", "usleep", "Sleep"}


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_and_call_only_the_system(target):
    library = Library(TARGETS[target])
    text = library.assembly(KERNELS)
    for name in KERNELS:
        assert re.search(rf"^_?{name}:", text, re.M), name
    called = set(re.findall(r"^\s+(?:bl|callq?)\s+_?([A-Za-z_]\w*)", text, re.M))
    called |= set(re.findall(r"movabsq?\s+\$_?([A-Za-z_]\w*)(?![\w@])", text))
    assert called <= OF_THE_SYSTEM | set(KERNELS), called


def test_byte_products_use_the_instructions_made_for_them():
    text = Library(TARGETS["x86-64-avx2"]).assembly(["linear_Q4_0"])
    for instruction in ("vpmaddubsw", "vpmaddwd", "vfmadd", "vcvtph2ps"):
        assert instruction in text
    assert "vpmaddubsw" not in Library(TARGETS["x86-64"]).assembly(["linear_Q4_0"])
