"""The physical devices of this machine: what each is, what it can do, and which one was asked for.

A device that lacks something golem needs is listed all the same; opening it is refused, naming what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from golem_core import Unsupported
from golem_vulkan.api import bindings, chain, struct

API = (1, 3)
"""The version of Vulkan that a device must have."""

FEATURES = {
    "bufferDeviceAddress": "addresses of buffers in kernels",
    "shaderInt64": "64-bit integers",
    "shaderInt16": "16-bit integers",
    "shaderInt8": "8-bit integers",
    "shaderFloat16": "16-bit floats",
    "storageBuffer8BitAccess": "8-bit memory",
    "storageBuffer16BitAccess": "16-bit memory",
    "shaderIntegerDotProduct": "dot products of bytes",
    "subgroupSizeControl": "a fixed subgroup size",
    "computeFullSubgroups": "full subgroups",
}
"""What every kernel builds on, by the names of Vulkan's feature structures."""

SUBGROUP = 8
"""The least threads that must step together."""
SUBGROUP_OPERATIONS = {"basic": 0x1, "arithmetic": 0x4, "shuffle": 0x10}

KINDS = {0: "other", 1: "integrated", 2: "discrete", 3: "virtual", 4: "processor"}
ORDER = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "processor": 4}


@dataclass(frozen=True, eq=False)
class Adapter:
    """A physical device.  Sizes are in bytes."""

    handle: Any
    index: int
    name: str
    kind: str
    driver: str
    api: tuple[int, int, int]
    features: frozenset[str]
    """Of `FEATURES`, and "cooperativeMatrix" where 16 × 16 × 16 products of float16 with float32 sums are there."""
    missing: tuple[str, ...]
    """What golem needs and the device has not, in words."""
    memory: int
    """Of the largest heap that is the device's own."""
    subgroup: int
    most_threads: int
    """Of a workgroup whose subgroups are of that size; a power of two."""
    push_constants: int
    shared_memory: int
    largest_allocation: int
    most_groups: tuple[int, int, int]
    timestamp_period: float
    """Nanoseconds of one tick."""
    identity: str
    """Names device and driver, for what is kept on disk."""
    chain: tuple[Any, ...] = field(repr=False)
    """The features as structures, to be enabled as they are."""
    extensions: frozenset[str] = field(repr=False)

    @property
    def summary(self) -> str:
        """One line on what it is."""
        version = ".".join(str(n) for n in self.api)
        matrix = ", cooperative matrices" if "cooperativeMatrix" in self.features else ""
        lacking = f"; lacks {', '.join(self.missing)}" if self.missing else ""
        return (
            f"{self.name} ({self.kind}, {self.driver}, Vulkan {version}), {self.memory / 1e9:.1f} GB, "
            f"subgroups of {self.subgroup}{matrix}{lacking}"
        )


class Instance:
    """The loader's door.  `validate` turns the validation layer on; what it says is added to `complaints`."""

    def __init__(self, *, validate: bool = False):
        vk = bindings()
        self.complaints: list[str] = []
        application = vk.VkApplicationInfo(
            pApplicationName="golem",
            applicationVersion=1,
            pEngineName="golem",
            engineVersion=1,
            apiVersion=vk.VK_MAKE_VERSION(*API, 0),
        )
        layers, extensions = [], []
        if validate:
            layers, extensions = ["VK_LAYER_KHRONOS_validation"], ["VK_EXT_debug_utils"]
        try:
            self.handle = vk.vkCreateInstance(
                vk.VkInstanceCreateInfo(
                    pApplicationInfo=application, ppEnabledLayerNames=layers, ppEnabledExtensionNames=extensions
                ),
                None,
            )
        except vk.VkErrorLayerNotPresent:
            raise Unsupported("vulkan: the validation layer is not installed") from None
        except vk.VkError as error:
            raise Unsupported(f"vulkan: the loader makes no instance ({type(error).__name__})") from None
        self.messenger = self.listen() if validate else None

    def listen(self) -> Any:
        vk = bindings()

        def hear(severity, types, data, user) -> int:
            self.complaints.append(vk.ffi.string(data.pMessage).decode(errors="replace"))
            return 0

        info = vk.VkDebugUtilsMessengerCreateInfoEXT(
            messageSeverity=vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT
            | vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
            messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
            | vk.VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
            pfnUserCallback=hear,
        )
        create = vk.vkGetInstanceProcAddr(self.handle, "vkCreateDebugUtilsMessengerEXT")
        return info, create(self.handle, info, None)

    def adapters(self) -> list[Adapter]:
        """Every physical device; those that are real come first."""
        vk = bindings()
        found = [describe(self.handle, handle) for handle in vk.vkEnumeratePhysicalDevices(self.handle)]
        found.sort(key=lambda a: ORDER[a.kind])
        return [Adapter(**{**vars(a), "index": i}) for i, a in enumerate(found)]

    def close(self) -> None:
        vk = bindings()
        if self.messenger is not None:
            destroy = vk.vkGetInstanceProcAddr(self.handle, "vkDestroyDebugUtilsMessengerEXT")
            destroy(self.handle, self.messenger[1], None)
        vk.vkDestroyInstance(self.handle, None)


def describe(instance: Any, handle: Any) -> Adapter:
    vk = bindings()
    ffi, lib = vk.ffi, vk.lib
    plain = vk.vkGetPhysicalDeviceProperties(handle)
    extensions = frozenset(e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(handle, None))
    version = plain.apiVersion >> 22, plain.apiVersion >> 12 & 1023, plain.apiVersion & 4095
    structs = [
        struct("VkPhysicalDeviceFeatures2", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2),
        struct("VkPhysicalDeviceVulkan11Features", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES),
        struct("VkPhysicalDeviceVulkan12Features", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES),
    ]
    if version >= API:
        kind = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES
        structs.append(struct("VkPhysicalDeviceVulkan13Features", kind))
    if "VK_KHR_cooperative_matrix" in extensions:
        kind = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR
        structs.append(struct("VkPhysicalDeviceCooperativeMatrixFeaturesKHR", kind))
    features = chain(*structs)
    lib.vkGetPhysicalDeviceFeatures2(handle, features[0])
    features[0].features.robustBufferAccess = 0  # addresses know no bounds, and checking descriptors costs
    fields = [features[0].features, *features[1:]]
    have = {name for name in FEATURES if any(getattr(part, name, 0) for part in fields)}
    offered = "VK_KHR_cooperative_matrix" in extensions and features[-1].cooperativeMatrix
    if offered and multiplies_halves(instance, handle):
        have.add("cooperativeMatrix")

    properties = struct("VkPhysicalDeviceProperties2", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2)
    eleven = struct("VkPhysicalDeviceVulkan11Properties", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
    twelve = struct("VkPhysicalDeviceVulkan12Properties", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
    thirteen = struct("VkPhysicalDeviceVulkan13Properties", vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES)
    kept = chain(properties, eleven, twelve, *([thirteen] if version >= API else []))
    lib.vkGetPhysicalDeviceProperties2(handle, properties)
    driver = f"{text(twelve.driverName)} {text(twelve.driverInfo)}".strip()
    heaps = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    own = [heaps.memoryHeaps[i] for i in range(heaps.memoryHeapCount)]
    limits = plain.limits
    missing = [] if version >= API else [f"Vulkan {API[0]}.{API[1]} (it has {version[0]}.{version[1]})"]
    missing += [f"{words} ({name})" for name, words in FEATURES.items() if name not in have]
    if eleven.subgroupSize < SUBGROUP:
        missing.append(f"subgroups of {SUBGROUP} (it has {eleven.subgroupSize})")
    missing += [
        f"the subgroup operations {name!r}"
        for name, bit in SUBGROUP_OPERATIONS.items()
        if not eleven.subgroupSupportedOperations & bit
    ]
    uuid = bytes(ffi.buffer(plain.pipelineCacheUUID)).hex()
    del kept
    return Adapter(
        handle=handle,
        index=0,
        name=plain.deviceName,
        kind=KINDS.get(plain.deviceType, "other"),
        driver=driver,
        api=version,
        features=frozenset(have),
        missing=tuple(missing),
        memory=max(heap.size for heap in own if heap.flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT),
        subgroup=eleven.subgroupSize,
        most_threads=most_threads(limits, eleven.subgroupSize, thirteen.maxComputeWorkgroupSubgroups),
        push_constants=limits.maxPushConstantsSize,
        shared_memory=limits.maxComputeSharedMemorySize,
        largest_allocation=eleven.maxMemoryAllocationSize,
        most_groups=tuple(limits.maxComputeWorkGroupCount),
        timestamp_period=limits.timestampPeriod,
        identity=f"{plain.vendorID:04x}-{plain.deviceID:04x}-{plain.driverVersion:08x}-{uuid}",
        chain=features,
        extensions=extensions,
    )


def most_threads(limits: Any, subgroup: int, subgroups: int) -> int:
    """Of a workgroup with at most so many subgroups, rounded down to a power of two."""
    most = min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0], subgroup * subgroups)
    return 1 << most.bit_length() - 1 if most else 0


def text(array: Any) -> str:
    return bindings().ffi.string(array).decode(errors="replace")


def multiplies_halves(instance: Any, handle: Any) -> bool:
    """Whether a subgroup multiplies 16 × 16 × 16 float16 with float32 sums."""
    vk = bindings()
    ffi, name = vk.ffi, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    address = vk.lib.vkGetInstanceProcAddr(instance, name.encode())
    if address == ffi.NULL:
        return False
    found = ffi.cast(f"PFN_{name}", address)
    count = ffi.new("uint32_t*")
    found(handle, count, ffi.NULL)
    shapes = ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
    for shape in shapes:
        shape.sType = vk.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    found(handle, count, shapes)
    half, single = vk.VK_COMPONENT_TYPE_FLOAT16_KHR, vk.VK_COMPONENT_TYPE_FLOAT32_KHR
    return any(
        (s.MSize, s.NSize, s.KSize) == (16, 16, 16)
        and (s.AType, s.BType, s.CType, s.ResultType) == (half, half, single, single)
        and s.scope == vk.VK_SCOPE_SUBGROUP_KHR
        for s in shapes
    )


def choose(adapters: list[Adapter], number: int | None) -> Adapter:
    """The adapter of that number, by default the first.  Raises Unsupported naming what is missing."""
    if not adapters:
        raise Unsupported("vulkan: the loader knows no device; is a driver for it installed?")
    if number is not None and number >= len(adapters):
        listed = "; ".join(f"{a.index}: {a.name}" for a in adapters)
        raise Unsupported(f"vulkan:{number}: there is no such device, only {listed}")
    adapter = adapters[number or 0]
    if adapter.missing:
        raise Unsupported(f"vulkan:{adapter.index}: {adapter.name} lacks {'; '.join(adapter.missing)}")
    return adapter
