"""An opened device: its queue, its kinds of memory, and how work is handed over and waited for."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from golem_core import GolemError
from golem_vulkan.adapters import Adapter
from golem_vulkan.api import bindings, check, struct

SPIN = 2e-3
"""Seconds for which the end of a pass is looked for again and again before the thread sleeps: waking up costs 25 µs."""
MOST_BUFFERS = 3
"""Command buffers of a pass: its steps, lists of what is largest, and what copies results."""
PATIENCE = 1_000_000_000
"""Nanoseconds of one wait for the device; there may be any number of them."""


class Gpu:
    """One thread at a time uses it.  `close` destroys what was made through it, so nothing of it may be used then."""

    def __init__(self, adapter: Adapter):
        vk = bindings()
        self.adapter = adapter
        family = next(
            i
            for i, queue in enumerate(vk.vkGetPhysicalDeviceQueueFamilyProperties(adapter.handle))
            if queue.queueFlags & vk.VK_QUEUE_COMPUTE_BIT
        )
        queues = [vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0])]
        wanted = ("VK_KHR_cooperative_matrix", "VK_EXT_memory_budget")
        self.extensions = [name for name in wanted if name in adapter.extensions]
        info = vk.VkDeviceCreateInfo(
            pNext=adapter.chain[0], pQueueCreateInfos=queues, ppEnabledExtensionNames=self.extensions
        )
        try:
            self.handle = vk.vkCreateDevice(adapter.handle, info, None)
        except vk.VkError as error:
            raise GolemError(
                f"vulkan:{adapter.index}: {adapter.name} cannot be opened ({type(error).__name__})"
            ) from None
        self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
        self.memory = vk.vkGetPhysicalDeviceMemoryProperties(adapter.handle)
        self.pool = vk.vkCreateCommandPool(
            self.handle,
            vk.VkCommandPoolCreateInfo(
                queueFamilyIndex=family, flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
            ),
            None,
        )
        self.fence = vk.vkCreateFence(self.handle, vk.VkFenceCreateInfo(), None)
        self.fences = vk.ffi.new("VkFence[1]", [self.fence])
        self.commands = vk.ffi.new("VkCommandBuffer[]", MOST_BUFFERS)
        self.submission = struct("VkSubmitInfo", vk.VK_STRUCTURE_TYPE_SUBMIT_INFO)
        self.submission.pCommandBuffers = self.commands

    # ------------------------------------------------------------ memory

    def memory_type(self, allowed: int, *wishes: int) -> int | None:
        """The first kind of memory among `allowed` (bits) that has all flags of the first wish that can be met."""
        for wish in wishes:
            for i in range(self.memory.memoryTypeCount):
                if allowed >> i & 1 and self.memory.memoryTypes[i].propertyFlags & wish == wish:
                    return i
        return None

    def free_memory(self) -> int:
        """Bytes that may still be allocated of the device's own memory, where the driver tells; else all there are."""
        vk = bindings()
        if "VK_EXT_memory_budget" not in self.extensions:
            return self.adapter.memory
        budget = struct(
            "VkPhysicalDeviceMemoryBudgetPropertiesEXT",
            vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
        )
        kind = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2
        properties = struct("VkPhysicalDeviceMemoryProperties2", kind)
        properties.pNext = vk.ffi.cast("void*", budget)
        vk.lib.vkGetPhysicalDeviceMemoryProperties2(self.adapter.handle, properties)
        heaps = range(self.memory.memoryHeapCount)
        own = [i for i in heaps if self.memory.memoryHeaps[i].flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT]
        return max(max(0, budget.heapBudget[i] - budget.heapUsage[i]) for i in own)

    # ------------------------------------------------------------ work

    def command_buffer(self) -> Any:
        vk = bindings()
        info = vk.VkCommandBufferAllocateInfo(
            commandPool=self.pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        return vk.vkAllocateCommandBuffers(self.handle, info)[0]

    def free_command_buffer(self, commands: Any) -> None:
        vk = bindings()
        vk.vkFreeCommandBuffers(self.handle, self.pool, 1, [commands])

    def submit(self, *commands: Any) -> None:
        """Hands over at most `MOST_BUFFERS` recorded command buffers; `wait` before the next ones."""
        for i, each in enumerate(commands):
            self.commands[i] = each
        self.submission.commandBufferCount = len(commands)
        check(bindings().lib.vkQueueSubmit(self.queue, 1, self.submission, self.fence), "handing over a pass")

    def wait(self) -> None:
        """Returns when what was submitted is done and seen by the host."""
        vk = bindings()
        lib, until = vk.lib, time.perf_counter() + SPIN
        while (code := lib.vkGetFenceStatus(self.handle, self.fence)) == vk.VK_NOT_READY:
            if time.perf_counter() > until:
                break
        while code in (vk.VK_NOT_READY, vk.VK_TIMEOUT):
            code = lib.vkWaitForFences(self.handle, 1, self.fences, 1, PATIENCE)
        check(code, "waiting for a pass")
        check(lib.vkResetFences(self.handle, 1, self.fences), "resetting a fence")

    def run(self, commands: Any) -> None:
        self.submit(commands)
        self.wait()

    def close(self) -> None:
        vk = bindings()
        vk.vkDeviceWaitIdle(self.handle)
        vk.vkDestroyFence(self.handle, self.fence, None)
        vk.vkDestroyCommandPool(self.handle, self.pool, None)
        vk.vkDestroyDevice(self.handle, None)


class Timer:
    """`count` time stamps of a command buffer, for benchmarks."""

    def __init__(self, gpu: Gpu, count: int):
        vk = bindings()
        self.gpu, self.count = gpu, count
        info = vk.VkQueryPoolCreateInfo(queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count)
        self.handle = vk.vkCreateQueryPool(gpu.handle, info, None)

    def reset(self, commands: Any) -> None:
        bindings().lib.vkCmdResetQueryPool(commands, self.handle, 0, self.count)

    def stamp(self, commands: Any, i: int) -> None:
        vk = bindings()
        vk.lib.vkCmdWriteTimestamp(commands, vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, self.handle, i)

    def read(self) -> np.ndarray:
        """Nanoseconds of each stamp, float64 (count,)."""
        vk = bindings()
        ticks = np.zeros(self.count, np.uint64)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        room = vk.ffi.cast("void*", ticks.ctypes.data)
        code = vk.lib.vkGetQueryPoolResults(self.gpu.handle, self.handle, 0, self.count, ticks.nbytes, room, 8, flags)
        check(code, "reading time stamps")
        return ticks * self.gpu.adapter.timestamp_period

    def close(self) -> None:
        bindings().vkDestroyQueryPool(self.gpu.handle, self.handle, None)
