"""Arm's kernels, run by qemu, against the meaning of the ops in numpy."""

from __future__ import annotations

import pytest

from golem_core.cpu import device, passes
from golem_core.cpu.target import Target

from ..graph.op_cases import CASES
from ..graph.test_ops import compare
from . import emulation

pytestmark = pytest.mark.skipif(
    not (emulation.QEMU and emulation.COMPILER), reason="qemu-aarch64 and aarch64-linux-gnu-gcc are not both installed"
)
ARM = Target("aarch64-unknown-linux-gnu", "", "")
DEVICES = {"neon-i8mm": "max", "neon-dotprod": "neoverse-n1", "baseline": "cortex-a72"}
"""Instruction path -> a processor that has its instructions."""
NAMES = [
    "linear-Q4_0-40x160", "linear-Q4_K-40x512", "linear-Q8_0-40x160", "linear-IQ4_XS-40x512", "linear-F16-40x160",
    "attend-4of2x32-9", "elementwise-19", "block", "mixture",
]  # fmt: skip
"""What is run on every path; on the first, everything is."""


@pytest.fixture(scope="module", params=DEVICES)
def arm(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for module in (device, passes):
            patch.setattr(module, "Assembly", emulation.Assembly)
        folder = tmp_path_factory.mktemp(request.param)
        yield emulation.ArmDevice(ARM.on_path(request.param), DEVICES[request.param], folder)


@pytest.mark.parametrize(
    ("arm", "case"),
    [
        pytest.param(path, case, id=f"{path}-{case.name}")
        for path in DEVICES
        for case in CASES
        if path == next(iter(DEVICES)) or case.name in NAMES
    ],
    indirect=["arm"],
)
def test_an_op_means_on_arm_what_it_means_in_numpy(arm, case):
    compare(arm, case)
