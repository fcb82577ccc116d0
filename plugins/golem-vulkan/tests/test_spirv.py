"""The SPIR-V in the package is what its GLSL compiles to."""

from __future__ import annotations

from importlib import resources

import pytest
from golem_vulkan import kernels

from golem_core import Unsupported


def test_every_kernel_is_there_and_none_besides():
    there = {f.name for f in resources.files("golem_vulkan").joinpath("spirv").iterdir()}
    assert there == {f"{name}.spv" for name in kernels.variants()}


def test_the_sources_compile_to_what_is_there(tmp_path):
    try:
        kernels.compiler()
    except Unsupported as reason:
        pytest.skip(str(reason))
    kernels.compile_to(tmp_path, list(kernels.variants()))
    shipped = resources.files("golem_vulkan").joinpath("spirv")
    stale = [
        name
        for name in kernels.variants()
        if shipped.joinpath(f"{name}.spv").read_bytes() != (tmp_path / f"{name}.spv").read_bytes()
    ]
    assert not stale, "run python -m golem_vulkan.kernels"
