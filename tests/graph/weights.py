"""Random weights of every storage type, and the means to hold a device to the reference."""

from __future__ import annotations

import numpy as np

from golem_core import Weight
from golem_core.files import TYPES

HALVES = {
    "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,),
    "PTQ1_0": (26,),
}  # fmt: skip
"""Where the float16 scales of a block stand, if not at its start only."""


def random_weight(rng: np.random.Generator, name: str, type_: str, *shape: int, scale: float = 1.0) -> Weight:
    """Entries of about unit size times `scale`; quants are random bytes."""
    if type_ in ("F32", "F16", "BF16"):
        x = (rng.standard_normal(shape) * scale).astype(np.float32)
        raw = {
            "F32": lambda: x,
            "F16": lambda: x.astype(np.float16),
            "BF16": lambda: (x.view(np.uint32) >> 16).astype(np.uint16),
        }[type_]()
        return Weight(name, type_, shape, np.frombuffer(raw.tobytes(), np.uint8))
    if type_ == "F8_E4M3":  # every code that is a number, the smallest and the largest among them
        codes = np.array([code for code in range(256) if code & 127 != 127], np.uint8)
        return Weight(name, type_, shape, rng.choice(codes, int(np.prod(shape)))).scaled(scale / 128)
    kind = TYPES[type_]
    blocks = rng.integers(0, 256, (int(np.prod(shape)) // kind.block, kind.nbytes), dtype=np.uint8)
    for at in HALVES.get(type_, (0,)):
        d = rng.uniform(0.5, 1, len(blocks)) * rng.choice([-1, 1], len(blocks)) * scale / 64
        blocks[:, at : at + 2] = d.astype(np.float16)[:, None].view(np.uint8)
    return Weight(name, type_, shape, blocks.reshape(-1))
