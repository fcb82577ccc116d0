"""Recurrent states on the device: one share for each slot, and a few more for columns that may be taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from golem_core import Columns, Recurrent
from golem_vulkan.gpu import Gpu
from golem_vulkan.memory import Block
from golem_vulkan.pipelines import Pipelines
from golem_vulkan.recording import COMPUTE, TRANSFER, Copy, Recording

NOWHERE = 0xFFFFFFFF
"""In place of a share: the states after this column are not kept."""


@dataclass(eq=False)
class Saved:
    """A copy of a slot's states, in device memory that others get when nobody keeps it."""

    blocks: list[Block] = field(repr=False)
    home: list[list[Block]] = field(repr=False)

    def __del__(self) -> None:
        self.home.append(self.blocks)


class RecurrentStates:
    """The `states` of a graph for `slots` conversations, of which one may run `tentative` columns at a time.

    A slot's states lie in the share that `share_of` names.  Of tentative columns each leaves them in a share of its
    own, the last in the slot's; `keep` exchanges shares.
    """

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        states: list[Recurrent],
        slots: int,
        tentative: int,
        take: Callable[[int], Block],
    ):
        self.gpu, self.pipelines, self.take = gpu, pipelines, take
        self.sizes = {state: 4 * prod(state.shape) for state in states}
        """Bytes of a share of each."""
        spare = shares(slots, tentative) - slots
        self.blocks = {state: take((slots + spare) * size) for state, size in self.sizes.items()}
        self.share_of = list(range(slots))
        self.spare = list(range(slots, slots + spare))
        self.tentative = 0
        """How many tentative columns the last run had."""
        self.unused: list[list[Block]] = []
        """Blocks for copies that nobody keeps."""
        for slot in range(slots):
            self.restore(slot, None)

    def __bool__(self) -> bool:
        return bool(self.blocks)

    @property
    def saved_bytes(self) -> int:
        return sum(self.sizes.values())

    def facts(self, columns: Columns, last: np.ndarray) -> np.ndarray:
        """The share in which the states stand after each column, or `NOWHERE`; `last` are the last columns of runs.

        Raises ValueError for more tentative columns than there are shares.
        """
        n = len(columns)
        self.tentative = n if columns.tentative else 0
        if self and self.tentative > len(self.spare) + 1:
            raise ValueError(f"a pass takes {len(self.spare) + 1} tentative columns, not {n}")
        after = np.full(n, NOWHERE, np.int64)
        if self and self.tentative:
            after[:-1] = self.spare[: n - 1]
        after[last] = [self.share_of[slot] for slot in columns.slot[last].tolist()]
        return after

    def keep(self, slot: int, count: int) -> None:
        """The slot's states stand after the first `count` of the tentative columns that ran last."""
        if not 0 < count <= self.tentative:
            raise ValueError(f"the last run had {self.tentative} tentative columns, not {count}")
        if self and count < self.tentative:
            self.share_of[slot], self.spare[count - 1] = self.spare[count - 1], self.share_of[slot]
        self.tentative = 0

    def save(self, slot: int) -> Saved:
        blocks = self.unused.pop() if self.unused else [self.take(size) for size in self.sizes.values()]
        self.copy(slot, blocks, out=True)
        return Saved(blocks, self.unused)

    def restore(self, slot: int, saved: Saved | None) -> None:
        """Puts the slot's states back to what `save` returned; None: zeros."""
        self.copy(slot, saved.blocks if saved else None, out=False)

    def copy(self, slot: int, blocks: list[Block] | None, *, out: bool) -> None:
        if not self:
            return
        r = Recording(self.gpu, self.pipelines)
        r.begin()
        for i, (state, block) in enumerate(self.blocks.items()):
            size = self.sizes[state]
            own = self.share_of[slot] * size
            if blocks is None:
                r.fill(block, own, size)
            else:
                r.copy([Copy(block, blocks[i], size, own) if out else Copy(blocks[i], block, size, 0, own)])
        r.barrier(TRANSFER, COMPUTE | TRANSFER)
        self.gpu.run(r.end())
        r.close()


def shares(slots: int, tentative: int) -> int:
    """Of each state: one for each slot, and one for every tentative column but the last."""
    return slots + max(0, tentative - 1)
