"""Where the keys and values of a pass lie.

Rings of one length share a piece of memory.  It goes slot by slot; a slot's share goes from one stretch of positions,
a `chunk`, to the next; and a chunk holds, ring by ring, the cells of all heads at these positions, keys before values.
So a conversation takes up memory as it grows, on large pages, whatever the context that is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from golem_core.cpu.kernels.cells import block_bytes
from golem_core.cpu.memory import zeroed
from golem_core.graph.value import KVRing

CHUNK = 256
"""Most positions of a chunk: long enough for the processor to read ahead in a head's cells."""
SPARE = 512
"""Positions that a ring keeps beyond its window: a conversation can go back that far without being read again."""


class RingMemory:
    """The memory of `rings`, of `slots` conversations of `context` positions, in cells of the kind `kv`.

    `width` is the most columns of a pass.
    """

    def __init__(self, rings: Iterable[KVRing], slots: int, context: int, width: int, kv: str):
        self.lengths = {ring: ring_length(ring, context, width) for ring in rings}
        """Positions that each holds."""
        self._facts: dict[KVRing, dict[str, int]] = {}
        self._kept: list[np.ndarray] = []
        for length in dict.fromkeys(self.lengths.values()):
            alike = [ring for ring, each in self.lengths.items() if each == length]
            chunk = chunk_of(length)
            halves = [half_bytes(ring, chunk, kv) for ring in alike]
            chunk_bytes = 2 * sum(halves)
            slot_bytes = length // chunk * chunk_bytes
            room = zeroed(slots * slot_bytes)
            self._kept.append(room)
            at = room.ctypes.data
            common = {
                "length": length, "slot_bytes": slot_bytes, "chunk": chunk.bit_length() - 1, "chunk_bytes": chunk_bytes,
            }  # fmt: skip
            for ring, half in zip(alike, halves, strict=True):
                self._facts[ring] = {"keys": at, "values": at + half, **common}
                at += 2 * half

    def fact(self, ring: KVRing, name: str) -> int:
        """What kernels ask of a ring: the addresses of its "keys" and "values", its "length" in positions, the
        "slot_bytes" from one slot to the next, the binary logarithm of a "chunk", and the "chunk_bytes" from one to
        the next."""
        return self._facts[ring][name]


def bytes_needed(rings: Iterable[KVRing], context: int, width: int, kv: str) -> int:
    """Bytes of one slot's keys and values."""
    return sum(2 * half_bytes(ring, ring_length(ring, context, width), kv) for ring in rings)


def half_bytes(ring: KVRing, positions: int, kv: str) -> int:
    """Bytes of the keys, or values, of so many positions."""
    return ring.heads * (positions // 16) * block_bytes(kv, ring.dim)


def chunk_of(length: int) -> int:
    """Positions of a chunk: the largest power of two up to `CHUNK` that divides the ring."""
    return min(CHUNK, length & -length)


def ring_length(ring: KVRing, context: int, width: int) -> int:
    """Positions that a ring holds: all, or the window and one pass more, at least `SPARE`; and up to an eighth more, so
    that chunks of many positions divide it, or in any case blocks of 16."""
    wanted = context if ring.window is None else min(context, ring.window + max(width, SPARE))
    unit = max(16, min(CHUNK, 1 << max(0, wanted // 8).bit_length() >> 1))
    return -(-wanted // unit) * unit
