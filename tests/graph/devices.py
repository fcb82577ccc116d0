"""The devices that tests of graphs run on."""

from __future__ import annotations

from golem_core import DeviceType, Unsupported, plugins
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.library import Library
from golem_core.cpu.target import Target

OPENERS = {
    "cpu": lambda: CpuDevice(threads=2, kv="f32"),
    "cpu-one-thread": lambda: CpuDevice(threads=1, kv="f32"),
    "cpu-half-kv": lambda: CpuDevice(threads=2, kv="f16"),
}
for _path in Target.host().paths[1:]:  # the host takes the first
    OPENERS[f"cpu-{_path}"] = lambda path=_path: CpuDevice(
        threads=2, kv="f16", library=Library(Target.host().on_path(path))
    )

IN_BYTES = {"cpu": lambda: CpuDevice(threads=2, kv="q8_0")}
"""What keeps keys and values in 8 bits."""


def installed() -> list[str]:
    """The core's device in its variants, and every other device that is here."""
    names = list(OPENERS)
    for _, kind in plugins.installed().ask("golem_devices", DeviceType):
        if kind.name == "cpu":
            continue
        try:
            kind.probe()
        except Unsupported:
            continue
        OPENERS[kind.name] = lambda kind=kind: kind.open({"vulkan-validate": True})
        IN_BYTES[kind.name] = lambda kind=kind: kind.open({"vulkan-validate": True, "kv": "q8_0"})
        names.append(kind.name)
    return names
