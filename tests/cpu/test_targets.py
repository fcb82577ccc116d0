"""Kernels for other processors: they compile, use the instructions made for them, and call nothing unknown."""

from __future__ import annotations

import re
import sys
from functools import cache

import pytest

from golem_core.cpu import device  # noqa: F401  (registers the kernels)
from golem_core.cpu import target as targets
from golem_core.cpu.library import Library
from golem_core.cpu.target import PATHS, Target

LINUX, WINDOWS = Target("x86_64-unknown-linux-gnu", "", ""), Target("x86_64-pc-windows-msvc", "", "")
ARM, MAC = Target("aarch64-unknown-linux-gnu", "", ""), Target("arm64-apple-darwin", "apple-m1", "")
TARGETS = {
    **{f"linux-x86-{name}": LINUX.on_path(name) for name in PATHS["x86"]},
    "linux-sapphire-rapids": Target(LINUX.triple, "sapphirerapids", LINUX.on_path("avx512-vnni").features),
    "windows-x86-avx2": WINDOWS.on_path("avx2"),
    "windows-x86-avx512-vnni": WINDOWS.on_path("avx512-vnni"),
    **{f"linux-arm-{name}": ARM.on_path(name) for name in PATHS["arm"]},
    "mac-baseline": MAC,
    "mac-dotprod": MAC.with_features(["dotprod"]),
    "mac-i8mm": MAC.with_features(["dotprod", "i8mm"]),
}
KERNELS = [
    "linear_Q4_0", "linear_Q8_0", "linear_F16", "repack_Q6_K", "attend_f16", "store_f16_halves_normed", "rope_angles",
    "residual2_norm_q32", "gelu_mul_q256", "quantize_q256", "route", "expert_order", "embed_Q6_K",
    "linear_F8_E4M3", "conv2d_BF16", "rope_at_angles", "rope_blocks_normed",
    "worker", "run_program", "launch",
]  # fmt: skip
OF_THE_SYSTEM = {"sched_yield", "SwitchToThread", "usleep", "Sleep"}


@cache
def assembly(target: str, *kernels: str) -> str:
    return Library(TARGETS[target]).assembly(list(kernels))


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_and_call_only_the_system(target):
    text = assembly(target, *KERNELS)
    for name in KERNELS:
        assert re.search(rf"^_?{name}:", text, re.M), name
    called = set(re.findall(r"^\s+(?:bl|callq?)\s+_?([A-Za-z_]\w*)", text, re.M))
    called |= set(re.findall(r"movabsq?\s+\$_?([A-Za-z_]\w*)(?![\w@])", text))
    assert called <= OF_THE_SYSTEM | set(KERNELS), called


# kernel, part of the targets' names, instructions used (with the registers that matter), instructions not used
INSTRUCTIONS = [
    ("linear_Q4_0", "avx512-vnni|sapphire", ["vpdpbusd.*%zmm", "vcvtph2ps.*%ymm", "vfmadd.*%zmm"], ["vpmaddubsw"]),
    ("linear_Q8_0", "avx512-vnni|sapphire", ["vpdpbusd.*%zmm", "vpdpbusd.*%ymm"], ["vpmaddubsw", "vpsignb"]),
    ("linear_Q6_K", "avx512-vnni", ["vpdpbusd.*%zmm", "vpmulld.*%zmm"], ["vpmaddubsw"]),
    ("linear_IQ4_XS", "avx512-vnni", ["vpdpbusd.*%zmm", "vpshufb"], ["vpmaddubsw", "vpsignb"]),
    ("linear_PQ2_0", "avx512-vnni", ["vpdpbusd.*%zmm"], ["vpmaddubsw"]),
    ("linear_Q4_0", "avx-vnni", ["vpdpbusd.*%ymm", "vcvtph2ps", "vfmadd.*%ymm"], ["vpmaddubsw", "%zmm"]),
    ("linear_Q8_0", "avx-vnni", ["vpdpbusd.*%ymm"], ["vpmaddubsw", "vpsignb", "%zmm"]),
    ("linear_Q4_0", "avx2", ["vpmaddubsw", "vpmaddwd", "vfmadd.*%ymm", "vcvtph2ps"], ["vpdpbusd", "%zmm"]),
    ("linear_Q8_0", "avx2", ["vpmaddubsw", "vpmaddwd", "vpsignb"], ["vpdpbusd", "%zmm"]),
    ("linear_IQ4_XS", "avx2", ["vpmaddubsw", "vpshufb"], ["vpdpbusd"]),
    ("linear_Q4_0", "x86-baseline", ["pmaddwd"], ["vpmaddubsw", "vpdpbusd", "%ymm", "vfmadd", "vcvtph2ps"]),
    ("linear_Q4_0", "arm-neon-dotprod|mac-dotprod", ["sdot", "fcvtl", "fmla"], ["smull", "smmla"]),
    ("linear_Q8_0", "arm-neon-dotprod|mac-dotprod", ["sdot"], ["smull", "smmla"]),
    ("linear_Q4_0", "i8mm", ["smmla", "sdot", "fcvtl", "fmla"], ["smull"]),
    ("linear_Q6_K", "i8mm", ["smmla", "sdot"], ["smull"]),
    ("linear_IQ4_XS", "arm-neon-dotprod|mac-dotprod", ["sdot", "tbl"], []),
    ("linear_Q4_0", "arm-baseline|mac-baseline", ["smull", "fcvtl", "fmla"], ["sdot"]),
    ("linear_IQ4_XS", "arm-baseline|mac-baseline", ["smull", "tbl"], ["sdot"]),
    ("linear_F16", "avx512-vnni|sapphire", ["vcvtph2ps", "vfmadd.*%zmm"], []),
    ("linear_F16", "avx2|avx-vnni", ["vcvtph2ps", "vfmadd.*%ymm"], ["%zmm"]),
    ("linear_F16", "arm|mac", ["fcvtl", "fmla"], []),
    ("store_f16_halves_normed", "arm|mac", ["fcvtzs", "fmla"], []),
    ("store_f16_halves_normed", "avx2|avx-vnni|avx512-vnni", ["vcvtps2dq", "vfmadd"], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "target", "used", "unused"),
    [
        (kernel, target, used, unused)
        for kernel, part, used, unused in INSTRUCTIONS
        for target in TARGETS
        if re.search(rf"-({part})", target)
    ],
)
def test_a_path_uses_the_instructions_made_for_it(kernel, target, used, unused):
    text = assembly(target, kernel)
    for pattern in used:
        assert re.search(rf"^\s+(?:\{{vex\}}\s+)?{pattern}", text, re.M), pattern
    for pattern in unused:
        assert not re.search(rf"\b{pattern}\b" if pattern[0] != "%" else pattern, text), pattern


@pytest.mark.parametrize("machine", PATHS)
def test_the_best_path_that_a_processor_has_the_features_for_is_taken(machine):
    triple = {"x86": LINUX.triple, "arm": ARM.triple, "other": "riscv64-unknown-linux-gnu"}[machine]
    names = list(PATHS[machine])
    for i, name in enumerate(names):
        paths = Target(triple, "", "").on_path(name).paths
        assert paths[0] == name and set(paths) <= set(names[i:]) and paths[-1] == "baseline"


def test_what_llvm_does_not_look_for_on_arm_is_read_from_the_system(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd evtstrm aes atomics asimddp sha512\nCPU part\t: 0xd0c\n")
    assert targets.arm_features(ARM.triple, cpuinfo) == ["dotprod"]
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp sve i8mm bf16\nCPU part\t: 0xd40\n")
    assert targets.arm_features(ARM.triple, cpuinfo) == ["dotprod", "i8mm"]
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd aes asimddphypothetical svei8mm\nCPU part\t: 0xd03\n")
    assert targets.arm_features(ARM.triple, cpuinfo) == []
    assert targets.arm_features(ARM.triple, tmp_path / "missing") == []
    for told, features in ((0, ["dotprod"]), (1, ["dotprod", "i8mm"])):
        monkeypatch.setattr(targets, "of_the_mac", lambda name, told=told: told)
        assert targets.arm_features(MAC.triple, tmp_path / "missing") == features


@pytest.mark.skipif(sys.platform != "linux", reason="of the systems that are no Mac, Linux is asked")
def test_a_system_that_is_no_mac_tells_nothing_as_one():
    assert not targets.of_the_mac("hw.optional.arm.FEAT_I8MM")
