"""Device memory: arenas of up to a GiB, cut into stretches that kernels know by their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core import GolemError
from golem_vulkan.api import bindings, struct
from golem_vulkan.gpu import Gpu

ARENA = 1 << 30
"""Bytes of an arena that many weights share."""
ALIGNMENT = 256

LOCAL, VISIBLE, COHERENT, CACHED = 0x1, 0x2, 0x4, 0x8
WISHES = {
    "device": (LOCAL,),
    # what the host writes in every pass: in the device's own memory if the host reaches it there
    "header": (LOCAL | VISIBLE | COHERENT, VISIBLE | COHERENT),
    "upload": (VISIBLE | COHERENT,),
    "download": (VISIBLE | COHERENT | CACHED, VISIBLE | COHERENT),
    "host": (VISIBLE | COHERENT | CACHED, VISIBLE | COHERENT),
}
"""Kinds of memory by what they are for: flags wished for, the best first."""


@dataclass(frozen=True, eq=False)
class Block:
    """A stretch of memory: its buffer, where it begins in it, its address for kernels, and its bytes if the host
    sees them (uint8)."""

    buffer: Any
    offset: int
    address: int
    size: int
    bytes: np.ndarray | None


class Buffer:
    """One allocation of device memory with a buffer on it.  Raises GolemError where the device gives none."""

    def __init__(self, gpu: Gpu, size: int, kind: str):
        vk = bindings()
        self.gpu, self.size, self.kind = gpu, size, kind
        usage = (
            vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
            | vk.lib.VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT
        )
        info = vk.VkBufferCreateInfo(size=size, usage=usage, sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        self.handle = vk.vkCreateBuffer(gpu.handle, info, None)
        needs = vk.vkGetBufferMemoryRequirements(gpu.handle, self.handle)
        wishes = WISHES[kind]
        self.allocation = None
        for wish in wishes:
            index = gpu.memory_type(needs.memoryTypeBits, wish)
            if index is None:
                continue
            flags = vk.VkMemoryAllocateFlagsInfo(flags=vk.lib.VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, deviceMask=0)
            info = vk.VkMemoryAllocateInfo(pNext=flags, allocationSize=needs.size, memoryTypeIndex=index)
            try:
                self.allocation = vk.vkAllocateMemory(gpu.handle, info, None)
                break
            except (vk.VkErrorOutOfDeviceMemory, vk.VkErrorOutOfHostMemory):
                continue
        if self.allocation is None:
            vk.vkDestroyBuffer(gpu.handle, self.handle, None)
            raise GolemError(
                f"vulkan:{gpu.adapter.index}: {gpu.adapter.name} gives no {size / 1e9:.2f} GB of {kind} memory; "
                f"{gpu.free_memory() / 1e9:.2f} GB of its own are free"
            )
        vk.vkBindBufferMemory(gpu.handle, self.handle, self.allocation, 0)
        about = struct("VkBufferDeviceAddressInfo", vk.VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO)
        about.buffer = self.handle
        self.address = vk.lib.vkGetBufferDeviceAddress(gpu.handle, about)
        self.bytes: np.ndarray | None = None
        if kind not in ("device", "host"):
            self.bytes = np.frombuffer(vk.vkMapMemory(gpu.handle, self.allocation, 0, size, 0), np.uint8)

    def block(self, offset: int, size: int) -> Block:
        view = None if self.bytes is None else self.bytes[offset : offset + size]
        return Block(self.handle, offset, self.address + offset, size, view)

    def close(self) -> None:
        vk = bindings()
        if self.bytes is not None:
            self.bytes = None
            vk.vkUnmapMemory(self.gpu.handle, self.allocation)
        vk.vkDestroyBuffer(self.gpu.handle, self.handle, None)
        vk.vkFreeMemory(self.gpu.handle, self.allocation, None)


class Arenas:
    """Hands out stretches of memory of one kind; all are given back together."""

    def __init__(self, gpu: Gpu, kind: str):
        self.gpu, self.kind = gpu, kind
        self.buffers: list[Buffer] = []
        self.used: list[int] = []
        """Bytes handed out of each of them."""

    def take(self, size: int, expected: int = 0) -> Block:
        """`size` bytes.  `expected` is how many will be asked for after these, so that no arena is larger than it
        need be.  Raises GolemError for more than the device allocates at once, or has."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        most = self.gpu.adapter.largest_allocation
        if size > most:
            raise GolemError(
                f"vulkan:{self.gpu.adapter.index}: {self.gpu.adapter.name} allocates at most {most / 1e9:.2f} GB at "
                f"once; {size / 1e9:.2f} GB are needed"
            )
        i = next((i for i, buffer in enumerate(self.buffers) if self.used[i] + size <= buffer.size), len(self.buffers))
        if i == len(self.buffers):
            room = max(size, min(ARENA, most, size + expected))
            self.buffers.append(Buffer(self.gpu, room, self.kind))
            self.used.append(0)
        block = self.buffers[i].block(self.used[i], size)
        self.used[i] += size
        return block

    def close(self) -> None:
        for buffer in self.buffers:
            buffer.close()
        self.buffers, self.used = [], []
