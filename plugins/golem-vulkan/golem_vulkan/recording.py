"""Command buffers: steps as dispatches with barriers where the plan asks for them, and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from golem_core import GolemError, Step
from golem_vulkan.api import bindings, check, struct
from golem_vulkan.gpu import Gpu, Timer
from golem_vulkan.memory import Block
from golem_vulkan.pipelines import Pipelines
from golem_vulkan.steps import Launch, push_constants

COMPUTE, TRANSFER, HOST = 0x800, 0x1000, 0x4000
READ = {COMPUTE: 0x20, TRANSFER: 0x800, HOST: 0x2000}
WRITE = {COMPUTE: 0x40, TRANSFER: 0x1000, HOST: 0x4000}
"""Bits of Vulkan's pipeline stages, and of the accesses that they make."""


@dataclass(frozen=True)
class Copy:
    """`size` bytes from one block to another, from and to so many bytes into them."""

    source: Block
    target: Block
    size: int
    start: int = 0
    to: int = 0


class Recording:
    """Writes one command buffer; `close` gives it back."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines):
        vk = bindings()
        self.gpu, self.pipelines, self.lib, self.ffi = gpu, pipelines, vk.lib, vk.ffi
        self.commands = gpu.command_buffer()
        self.bound: Any = None
        self.memory_barrier = struct("VkMemoryBarrier", vk.VK_STRUCTURE_TYPE_MEMORY_BARRIER)

    def begin(self) -> None:
        vk = bindings()
        info = struct("VkCommandBufferBeginInfo", vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO)
        check(self.lib.vkBeginCommandBuffer(self.commands, info), "beginning a command buffer")
        self.bound = None

    def end(self) -> Any:
        """The command buffer, to be submitted any number of times."""
        check(self.lib.vkEndCommandBuffer(self.commands), "ending a command buffer")
        return self.commands

    def barrier(self, before: int = COMPUTE, after: int = COMPUTE) -> None:
        """What stands behind sees what stages `before` wrote, and waits for what they read."""
        b, null = self.memory_barrier, self.ffi.NULL
        b.srcAccessMask = sum(bit for stage, bit in WRITE.items() if stage & before)
        b.dstAccessMask = sum(READ[stage] | WRITE[stage] for stage in READ if stage & after)
        self.lib.vkCmdPipelineBarrier(self.commands, before, after, 0, 1, b, 0, null, 0, null)

    def dispatch(self, kernel: str, launch: Launch, data: bytes) -> None:
        most = self.gpu.adapter.most_groups
        if any(n > limit for n, limit in zip(launch.groups, most, strict=True)):
            raise GolemError(f"vulkan: {kernel} would take {launch.groups} workgroups, the device has {most} at most")
        if 0 in launch.groups:
            return
        pipeline = self.pipelines.get(kernel, launch.constants)
        if pipeline is not self.bound:
            self.lib.vkCmdBindPipeline(self.commands, 1, pipeline)
            self.bound = pipeline
        self.lib.vkCmdPushConstants(
            self.commands, self.pipelines.layout, 0x20, 0, len(data), self.ffi.from_buffer(data)
        )
        self.lib.vkCmdDispatch(self.commands, *launch.groups)

    def steps(
        self, steps: Iterable[Step], address: Callable[[Any], int | Sequence[int]], timer: Timer | None = None
    ) -> None:
        """Dispatches in order.  With a timer, every step waits for the one before it and is followed by a stamp."""
        if timer is not None:
            timer.reset(self.commands)
            timer.stamp(self.commands, 0)
        for i, step in enumerate(steps):
            self.dispatch(step.kernel, step.args[0], push_constants(step.args[1:], address))
            if step.barrier or timer is not None:
                self.barrier()
            if timer is not None:
                timer.stamp(self.commands, i + 1)

    def copy(self, copies: Iterable[Copy]) -> None:
        for each in copies:
            region = self.ffi.new("VkBufferCopy*")
            region.srcOffset = each.source.offset + each.start
            region.dstOffset = each.target.offset + each.to
            region.size = each.size
            self.lib.vkCmdCopyBuffer(self.commands, each.source.buffer, each.target.buffer, 1, region)

    def fill(self, block: Block, start: int, size: int) -> None:
        """Zeros."""
        self.lib.vkCmdFillBuffer(self.commands, block.buffer, block.offset + start, size, 0)

    def close(self) -> None:
        self.gpu.free_command_buffer(self.commands)
