"""The hooks: the device type `vulkan`, and its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from golem_core import DeviceType, Option, Unsupported, hookimpl

COMMANDS = ("*",)


def probe() -> str:
    from golem_vulkan.adapters import Instance, choose

    instance = Instance()
    try:
        adapters = instance.adapters()
        choose(adapters, None)
        return "\n".join(f"{a.index}: {a.summary}" for a in adapters)
    finally:
        instance.close()


def open_device(options: Mapping[str, Any]) -> Any:
    from golem_vulkan.device import VulkanDevice
    from golem_vulkan.notices import say_once

    opened = VulkanDevice(
        number_of(str(options.get("device") or "vulkan")),
        kv=options.get("kv") or "f16",
        host_experts=bool(options.get("host-experts")),
        validate=bool(options.get("vulkan-validate")),
    )
    if opened.adapter.kind == "processor":
        name = f"vulkan:{opened.adapter.index}: {opened.adapter.name}"
        say_once(f"{name} is software and slower than -device cpu")
    return opened


def number_of(device: str) -> int | None:
    """The N of "vulkan:N".  Raises Unsupported for what is no number."""
    _, colon, number = device.partition(":")
    if colon and not number.isdecimal():
        raise Unsupported(f"device {device!r}: after the colon stands the number of a device, as `golem devices` lists")
    return int(number) if colon else None


@hookimpl
def golem_options() -> Iterable[Option]:
    return [
        Option("vulkan", "Run on a Vulkan device: the same as -device vulkan.", bool, False, commands=COMMANDS),
        Option("host-experts", "Leave experts' weights in the host's memory.", bool, False, commands=COMMANDS),
        Option("vulkan-validate", "Let the validation layer watch.", bool, False, commands=COMMANDS),
    ]


@hookimpl
def golem_devices() -> Iterable[DeviceType]:
    return [DeviceType("vulkan", probe, open_device)]
