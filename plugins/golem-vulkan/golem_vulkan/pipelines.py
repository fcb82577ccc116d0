"""Compute pipelines out of the SPIR-V that the package carries, made once each and cached on disk between runs."""

from __future__ import annotations

import os
import struct as packing
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from golem_vulkan.api import bindings, check
from golem_vulkan.gpu import Gpu

PUSH_BYTES = 128
"""Of push constants that every kernel may take; Vulkan grants no device fewer."""
HEADER = 32
"""Bytes with which the data of a pipeline cache begins: version, vendor, device, and the driver's identity."""


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "golem" / "vulkan"


class Pipelines:
    """Pipelines by kernel and specialization constants.  Constant 0 is the number of threads of a workgroup."""

    def __init__(self, gpu: Gpu, directory: Path | None = None):
        vk = bindings()
        self.gpu = gpu
        self.file = (directory or cache_directory()) / f"{gpu.adapter.identity}.bin"
        self.modules: dict[str, Any] = {}
        self.made: dict[tuple[str, tuple[int, ...]], Any] = {}
        constants = vk.VkPushConstantRange(stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=PUSH_BYTES)
        self.layout = vk.vkCreatePipelineLayout(
            gpu.handle, vk.VkPipelineLayoutCreateInfo(pPushConstantRanges=[constants]), None
        )
        known = self.read()
        room = vk.ffi.new("char[]", known) if known else vk.ffi.NULL
        info = vk.VkPipelineCacheCreateInfo(initialDataSize=len(known), pInitialData=room)
        self.cache = vk.vkCreatePipelineCache(gpu.handle, info, None)
        self.changed = False

    def get(self, kernel: str, constants: tuple[int, ...]) -> Any:
        """The pipeline's handle."""
        key = kernel, constants
        if key not in self.made:
            self.made[key] = self.make(kernel, constants)
            self.changed = True
        return self.made[key]

    def module(self, kernel: str) -> Any:
        vk = bindings()
        if kernel not in self.modules:
            code = resources.files("golem_vulkan").joinpath("spirv", f"{kernel}.spv").read_bytes()
            info = vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code)
            self.modules[kernel] = vk.vkCreateShaderModule(self.gpu.handle, info, None)
        return self.modules[kernel]

    def make(self, kernel: str, constants: tuple[int, ...]) -> Any:
        vk = bindings()
        entries = [vk.VkSpecializationMapEntry(constantID=i, offset=4 * i, size=4) for i in range(len(constants))]
        data = packing.pack(f"{len(constants)}I", *constants)
        room = vk.ffi.new("char[]", data)
        special = vk.VkSpecializationInfo(pMapEntries=entries, dataSize=len(data), pData=room)
        size = vk.VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(requiredSubgroupSize=self.gpu.adapter.subgroup)
        full = vk.lib.VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
        stage = vk.VkPipelineShaderStageCreateInfo(
            pNext=size,
            flags=full if constants[0] % self.gpu.adapter.subgroup == 0 else 0,
            stage=vk.VK_SHADER_STAGE_COMPUTE_BIT,
            module=self.module(kernel),
            pName="main",
            pSpecializationInfo=special,
        )
        info = vk.VkComputePipelineCreateInfo(stage=stage, layout=self.layout)
        return vk.vkCreateComputePipelines(self.gpu.handle, self.cache, 1, [info], None)[0]

    # ------------------------------------------------------------ on disk

    def read(self) -> bytes:
        """What was saved, if this very driver saved it: a driver may trust what it is given."""
        try:
            data = self.file.read_bytes()
        except OSError:
            return b""
        uuid = self.gpu.adapter.identity.rpartition("-")[2]
        return data if len(data) > HEADER and data[16:HEADER].hex() == uuid else b""

    def save(self) -> None:
        """Keeps what was compiled for the next run; a cache that can't be written is only a slower start."""
        if not self.changed:
            return
        vk = bindings()
        size = vk.ffi.new("size_t*")
        get = vk.lib.vkGetPipelineCacheData
        check(get(self.gpu.handle, self.cache, size, vk.ffi.NULL), "reading the pipeline cache")
        room = vk.ffi.new("char[]", size[0])
        check(get(self.gpu.handle, self.cache, size, room), "reading the pipeline cache")
        data = bytes(vk.ffi.buffer(room, size[0]))
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=self.file.parent)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                os.replace(written, self.file)
            except BaseException:
                os.unlink(written)
                raise
        except OSError:
            return
        self.changed = False

    def close(self) -> None:
        vk, device = bindings(), self.gpu.handle
        for pipeline in self.made.values():
            vk.vkDestroyPipeline(device, pipeline, None)
        for module in self.modules.values():
            vk.vkDestroyShaderModule(device, module, None)
        vk.vkDestroyPipelineCache(device, self.cache, None)
        vk.vkDestroyPipelineLayout(device, self.layout, None)
        self.made, self.modules = {}, {}
