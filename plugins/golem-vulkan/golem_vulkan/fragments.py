"""Whether a device holds matrices of a subgroup as `shaders/fragments.glsl` has them: asked of the device itself, since
Vulkan leaves it open which invocation has which entry.
"""

from __future__ import annotations

import numpy as np

from golem_vulkan.gpu import Gpu
from golem_vulkan.memory import Arenas
from golem_vulkan.pipelines import Pipelines
from golem_vulkan.recording import COMPUTE, HOST, Recording
from golem_vulkan.steps import Launch, push_constants
from golem_vulkan.weights import Address

SUBGROUP = 32
USES, EACH = 3, 8
"""Left and right factors, and sums; the entries that an invocation has of each."""


def expected() -> np.ndarray:
    """16 * row + column of each entry, int64 (uses, invocations, entries)."""
    lane, i = np.arange(SUBGROUP)[:, None], np.arange(EACH)
    row, column = lane // 4 + i // 4 * 8, lane % 4 * 2 + i % 2 + i // 2 % 2 * 8
    return np.stack([16 * row + column, 16 * column + row, 16 * row + column])


def held(gpu: Gpu, pipelines: Pipelines) -> bool:
    if gpu.adapter.subgroup != SUBGROUP:
        return False
    arena, recording = Arenas(gpu, "download"), Recording(gpu, pipelines)
    try:
        block = arena.take(4 * USES * SUBGROUP * EACH)
        recording.begin()
        recording.dispatch(
            "probe", Launch((SUBGROUP,), (1, 1, 1)), push_constants([Address(block.address)], lambda a: a.value)
        )
        recording.barrier(COMPUTE, HOST)
        gpu.run(recording.end())
        assert block.bytes is not None
        found = block.bytes[: 4 * USES * SUBGROUP * EACH].view(np.float32).reshape(USES, SUBGROUP, EACH)
        return bool((found == expected()).all())
    finally:
        recording.close()
        arena.close()
