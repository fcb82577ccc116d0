"""What a lowering is for: the device's traits, and the size of the passes to be planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

THREADS = 128
"""Of a workgroup, where nothing else is better."""


@dataclass(frozen=True)
class Target:
    """`subgroup` threads step together, a workgroup has at most `most_threads`; `context` positions are the most that
    a conversation has."""

    subgroup: int
    most_threads: int
    matrices: bool
    """Wide products go to cooperative matrices."""
    processor: bool
    """The device is a processor that plays one: kernels that are quickly compiled serve it best."""
    context: int
    capacity: Mapping[str, int]
    """Most rows of each row set in the passes to be planned."""
    fragments: bool = False
    """Subgroups hold matrices as `shaders/fragments.glsl` has them; then passes of many columns have room for whole
    sixteens of all rows."""
    kv: str = "f16"
    """How rings keep keys and values: "f16" or "q8_0"."""
    slab: int = 64 << 20
    """Most bytes of a weight's rows that are widened to float16 at once."""


def groups_of(n: int, each: int) -> int:
    return -(-n // each)


def power_of_two(n: int) -> int:
    """The least that is at least n."""
    return 1 << max(0, n - 1).bit_length()
