"""The largest numbers of the rows of an output, found on the device, so that whole rows need not come home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core import Operand
from golem_vulkan.recording import COMPUTE, HOST
from golem_vulkan.steps import Launch, push_constants
from golem_vulkan.target import groups_of
from golem_vulkan.weights import Address

if TYPE_CHECKING:
    from golem_vulkan.passes import VulkanPass

MOST = 128
"""Entries of a row that the kernels list."""
COUNTS = (1, 32, 64, MOST)
"""Lengths of lists that have command buffers of their own."""
PEAKS = 4096
"""Of a row, at most: what the threads of one workgroup keep."""
PEAK_THREADS, THREADS = 64, 512
"""Of a workgroup, the second at most."""
HEAD = 16
"""Bytes before the values of a list: the logarithm of the row's total, and room that keeps the rest aligned."""


class Lists:
    """Lists of at most `most` entries of the rows of the output `name`, without the entries `without`."""

    def __init__(self, owner: VulkanPass, name: str, most: int, without: Sequence[int]):
        self.owner, self.name, self.most = owner, name, most
        self.entries = owner.graph.outputs[name].size
        rows = owner.capacity["scored"]
        fours = groups_of(self.entries, 4)
        self.groups = groups_of(min(PEAKS, fours), PEAK_THREADS)
        self.stride = -(-(HEAD + 8 * most) // 64) * 64
        take = owner.memory["device"].take
        self.peaks = take(4 * self.groups * PEAK_THREADS * rows)
        self.totals = take(8 * self.groups * rows)
        self.results = owner.memory["download"].take(self.stride * rows)
        self.without = 0
        if len(without):
            mask = np.zeros(-(-fours // 8) * 32, np.uint8)
            mask[list(without)] = 1
            words = np.packbits(mask, bitorder="little")
            self.without = owner.device.weights.constant(words).address
        self.runs: dict[tuple[int, int], Any] = {}

    def count(self, wanted: int) -> int:
        """How long lists are made when so many entries are wanted."""
        return next(n for n in (*(n for n in COUNTS if n < self.most), self.most) if n >= wanted)

    def commands(self, width: int, count: int) -> Any:
        """The command buffer that follows a pass of a bucket and leaves lists of so many entries."""
        if (width, count) not in self.runs:
            self.runs[width, count] = self.record(self.owner.plans[width].outputs[self.name], width, count)
        return self.runs[width, count]

    def record(self, place: Operand, width: int, count: int) -> Any:
        owner = self.owner
        block, start = owner.block(place)
        x, rows = block.address + start + place.start, min(width, owner.capacity["scored"])
        threads, scored = self.groups * PEAK_THREADS, owner.header["scored"].address
        first = (x, self.peaks.address, self.totals.address, self.without, scored)
        second = (x, self.peaks.address, self.totals.address, self.without, self.results.address, scored)
        r = owner.recording()
        whole = int(place.start % 16 == 0)
        launch = Launch((PEAK_THREADS, 0, whole), (self.groups, rows, 1))
        r.dispatch("list_peaks", launch, fields(first, self.entries, threads, place.stride))
        r.barrier()
        numbers = self.entries, threads, self.groups, count, place.stride, self.stride
        size = min(THREADS, owner.device.adapter.most_threads)
        r.dispatch("list", Launch((size, PEAKS // size, whole), (rows, 1, 1)), fields(second, *numbers))
        r.barrier(COMPUTE, HOST)
        return r.end()

    def read(self, count: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The lists that the last run left of `rows`."""
        assert self.results.bytes is not None
        table = self.results.bytes[: self.stride * (int(rows.max(initial=-1)) + 1)].reshape(-1, self.stride)[rows]
        values, ids = table[:, HEAD : HEAD + 4 * count], table[:, HEAD + 4 * count : HEAD + 8 * count]
        return {
            "list_ids": np.ascontiguousarray(ids).view(np.int32),
            "list_values": np.ascontiguousarray(values).view(np.float32),
            "log_total": np.ascontiguousarray(table[:, :4]).view(np.float32)[:, 0],
        }


def fields(addresses: Sequence[int], *numbers: int) -> bytes:
    return push_constants([*map(Address, addresses), *numbers], lambda a: a.value)
