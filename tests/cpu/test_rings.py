"""Where the keys and values of conversations lie."""

from __future__ import annotations

from itertools import pairwise

import pytest

from golem_core import KVRing
from golem_core.cpu.rings import RingMemory, bytes_needed, chunk_of, ring_length


@pytest.mark.parametrize("kv", ["f16", "f32", "q8_0"])
@pytest.mark.parametrize(("slots", "context"), [(1, 4096), (3, 576), (2, 48)])
def test_no_two_blocks_lie_at_one_place(kv: str, slots: int, context: int):
    rings = [KVRing(2, 32), KVRing(1, 64), KVRing(1, 64, window=32)]
    memory = RingMemory(rings, slots, context, 16, kv)
    seen: dict[int, tuple[object, ...]] = {}
    for ring in rings:
        facts = {
            name: memory.fact(ring, name) for name in ("keys", "values", "length", "slot_bytes", "chunk", "chunk_bytes")
        }
        assert facts["length"] == memory.lengths[ring] and facts["length"] % (1 << facts["chunk"]) == 0
        size = {"f16": ring.dim * 32 + 64, "f32": ring.dim * 64, "q8_0": ring.dim * 17}[kv]
        for half in ("keys", "values"):
            for slot in range(slots):
                for head in range(ring.heads):
                    for block in range(facts["length"] // 16):
                        chunk, within = divmod(block * 16, 1 << facts["chunk"])
                        at = facts[half] + slot * facts["slot_bytes"] + chunk * facts["chunk_bytes"]
                        at += ((head << facts["chunk"] - 4) + within // 16) * size
                        assert at not in seen, f"{seen[at]} lies there too"
                        seen[at] = (ring, half, slot, head, block, size)
    places = sorted(seen)
    assert all(b - a >= seen[a][-1] for a, b in pairwise(places))
    assert sum(each[-1] for each in seen.values()) == slots * bytes_needed(rings, context, 16, kv)


@pytest.mark.parametrize(
    ("context", "length", "chunk"),
    [
        (4096, 4096, 256),
        (5000, 5120, 256),
        (1100, 1152, 128),
        (576, 576, 64),
        (300, 320, 64),
        (48, 48, 16),
        (2, 16, 16),
    ],
)
def test_a_ring_is_made_of_whole_chunks_and_little_longer_than_asked(context: int, length: int, chunk: int):
    assert ring_length(KVRing(1, 64), context, 16) == length
    assert chunk_of(length) == chunk


def test_no_context_is_rounded_up_by_more_than_an_eighth_or_a_block():
    for context in range(2, 9000, 7):
        length = ring_length(KVRing(1, 64), context, 16)
        assert context <= length <= max(context * 9 // 8, context + 15) and length % 16 == 0
        assert chunk_of(length) >= min(256, context // 16)
