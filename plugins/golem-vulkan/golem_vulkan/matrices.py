"""What a device's cooperative matrices can do: those of a subgroup (VK_KHR_cooperative_matrix), and those of a whole
workgroup, of nearly any size and read straight from memory (VK_NV_cooperative_matrix2).

The bindings are older than the second extension, so its structures are built here word by word, as Khronos' registry
(vk.xml) lays them out.
"""

from __future__ import annotations

from typing import Any

from golem_vulkan.api import bindings

EXTENSION = "VK_NV_cooperative_matrix2"
FEATURES_TYPE, SHAPES_TYPE = 1000593000, 1000593001
FEATURES = (
    "workgroup scope",
    "flexible dimensions",
    "reductions",
    "conversions",
    "per-element operations",
    "tensor addressing",
    "block loads",
)
"""The flags of its features, in order; kernels use every one."""
HEAD = 4
"""Words of a structure before its own: type, padding, the address of the next."""
MOST_THREADS = 256
"""Of the workgroups whose matrices are asked for."""


def workgroup_features() -> tuple[Any, Any]:
    """The structure of its features, to be chained, and the words that it consists of, to be kept."""
    ffi = bindings().ffi
    words = ffi.new(f"uint32_t[{HEAD + len(FEATURES) + 1}]")
    words[0] = FEATURES_TYPE
    return ffi.cast("VkBaseOutStructure*", words), words


def multiplies_halves(instance: Any, handle: Any) -> bool:
    """Whether a subgroup multiplies 16 × 16 × 16 float16 with float32 sums."""
    vk = bindings()
    found = listed(instance, handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", 14)
    half, single = vk.VK_COMPONENT_TYPE_FLOAT16_KHR, vk.VK_COMPONENT_TYPE_FLOAT32_KHR
    wanted = [16, 16, 16, half, half, single, single, vk.VK_SCOPE_SUBGROUP_KHR]
    return any([*s[HEAD : HEAD + 7], s[HEAD + 8]] == wanted for s in found)


def workgroup_shapes(instance: Any, handle: Any) -> list[list[int]]:
    """Of each kind of matrices of flexible size: the steps of their rows, columns and inner sizes, the types of A, B,
    C and the result, whether sums saturate, the scope, and the threads of a workgroup (0: any)."""
    name = "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV"
    return [s[HEAD:] for s in listed(instance, handle, name, 14, SHAPES_TYPE)]


def workgroups_multiply(instance: Any, handle: Any, features: Any) -> bool:
    """Whether workgroups of 128 and of 256 threads multiply float16 with float32 sums, in sizes of 64 × 64 × 32."""
    vk = bindings()
    if not all(features[HEAD : HEAD + len(FEATURES)]):
        return False
    half, single = vk.VK_COMPONENT_TYPE_FLOAT16_KHR, vk.VK_COMPONENT_TYPE_FLOAT32_KHR
    threads = {
        s[9]
        for s in workgroup_shapes(instance, handle)
        if s[3:7] == [half, half, single, single]
        and s[8] == vk.VK_SCOPE_WORKGROUP_KHR
        and not any(size % step for size, step in zip((64, 64, 32), s[:3], strict=True))
    }
    return 0 in threads or {128, MOST_THREADS} <= threads


def listed(instance: Any, handle: Any, name: str, words: int, kind: int = 1000506001) -> list[list[int]]:
    """What a query that fills structures of so many words returns."""
    vk = bindings()
    ffi = vk.ffi
    address = vk.lib.vkGetInstanceProcAddr(instance, name.encode())
    if address == ffi.NULL:
        return []
    query = ffi.cast("int32_t(*)(void*, uint32_t*, void*)", address)
    count = ffi.new("uint32_t*")
    query(ffi.cast("void*", handle), count, ffi.NULL)
    room = ffi.new(f"uint32_t[{words * count[0] + 1}]")
    for i in range(count[0]):
        room[words * i] = kind
    query(ffi.cast("void*", handle), count, room)
    return [list(room[words * i : words * (i + 1)]) for i in range(count[0])]
