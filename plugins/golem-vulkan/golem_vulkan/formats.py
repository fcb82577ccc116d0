"""How each type of weight lies in device memory: units of 32 entries, split into planes (`shaders/formats.glsl`)."""

from __future__ import annotations

from dataclasses import dataclass

from golem_core import Unsupported, Weight

UNIT = 32
"""Entries of a row that kernels read at once; rows are filled up to whole units."""
ALIGNMENT = 256
"""Bytes; planes begin at multiples of it."""


@dataclass(frozen=True)
class Layout:
    """Bytes of one unit in the planes of low bits, high bits and scales, and of one entry of the plane of scales of
    `group` units each."""

    name: str
    q: int
    h: int = 0
    s: int = 0
    d: int = 0
    group: int = 1
    floats: bool = False
    """Holds numbers rather than quants: products read their inputs in float32."""

    def planes(self, units: int) -> tuple[int, int, int, int]:
        """Bytes from the start of a weight of so many units to its planes h, s and d, and to its end."""
        ends, end = [], 0
        for size, count in ((self.q, units), (self.h, units), (self.s, units), (self.d, -(-units // self.group))):
            end += -(-size * count // ALIGNMENT) * ALIGNMENT
            ends.append(end)
        return ends[0], ends[1], ends[2], ends[3]


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("F32", 128, floats=True),
        Layout("F16", 64, floats=True),
        Layout("BF16", 64, floats=True),
        Layout("F8_E4M3", 32, floats=True),
        Layout("Q4_0", 16, s=2),
        Layout("Q4_1", 16, s=4),
        Layout("Q5_0", 16, h=4, s=2),
        Layout("Q5_1", 16, h=4, s=4),
        Layout("Q8_0", 32, s=2),
        Layout("IQ4_NL", 16, s=2),
        Layout("Q2_K", 8, s=2, d=4, group=8),
        Layout("Q3_K", 8, h=4, s=2, d=2, group=8),
        Layout("Q4_K", 16, s=2, d=4, group=8),
        Layout("Q5_K", 16, h=4, s=2, d=4, group=8),
        Layout("Q6_K", 16, h=8, s=2, d=2, group=8),
        Layout("IQ4_XS", 16, s=2, d=2, group=8),
        Layout("PQ2_0", 8, d=2, group=4),
    )
}
FILE_TYPES = {name: layout for name, layout in LAYOUTS.items()} | {"PTQ1_0": LAYOUTS["PQ2_0"]}
"""Type in a file -> the layout that it is repacked into; the digits of PTQ1_0 become pairs of bits."""


def layout_of(weight: Weight) -> Layout:
    """Raises Unsupported naming the weight where its type has no layout."""
    if weight.type not in FILE_TYPES:
        raise Unsupported(f"{weight.name}: vulkan has no kernels for weights of type {weight.type}")
    return FILE_TYPES[weight.type]


def row_units(weight: Weight) -> int:
    return -(-weight.width // UNIT)


def units(weight: Weight) -> int:
    return weight.rows * row_units(weight)


def device_bytes(weight: Weight) -> int:
    """Bytes of a weight in device memory."""
    return layout_of(weight).planes(units(weight))[3]
