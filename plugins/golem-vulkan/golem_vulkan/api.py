"""The Vulkan bindings, imported when they are first needed, and what every use of them shares.

Set-up goes through the wrappers of the package `vulkan`; what runs in every pass calls its cffi library directly,
which costs a fifth.  Structures made here must be kept alive by whoever passes them on.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from golem_core import GolemError, Unsupported


@cache
def bindings() -> Any:
    """The package `vulkan`.  Raises Unsupported where there is no Vulkan loader."""
    try:
        import vulkan
    except OSError:
        raise Unsupported("vulkan: there is no Vulkan loader; Debian's package is libvulkan1") from None
    return vulkan


def struct(name: str, kind: int, **fields: Any) -> Any:
    """An owned structure with its sType and fields set."""
    made = bindings().ffi.new(f"{name}*")
    made.sType = kind
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def chain(*structs: Any) -> tuple[Any, ...]:
    """Links structures by pNext; the first one heads the chain, and all must be kept."""
    for one, following in pairwise(structs):
        one.pNext = bindings().ffi.cast("void*", following)
    return structs


def check(code: int, doing: str) -> None:
    """Raises GolemError for what a raw call returned, if that is a failure."""
    if code == 0:
        return
    vk = bindings()
    lost = "; the device was lost, as after a reset" if code == vk.VK_ERROR_DEVICE_LOST else ""
    raise GolemError(f"vulkan: {doing} failed with code {code}{lost}")
