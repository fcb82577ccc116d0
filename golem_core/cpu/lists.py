"""Lists of the largest entries of a pass's rows, so that whole rows need not be looked at by whoever draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.cpu.kernels.largest import BLOCK

MOST = 128
"""Entries of a list, at most."""


class Lists:
    """What a pass lists of `rows`, float32 (n, entries) rows in memory of one buffer, at most `most` of each.

    `arguments` are those of the kernel.
    """

    def __init__(self, rows: np.ndarray, most: int, without: Sequence[int], threads: int, count: int):
        self.rows, self.most, self.length = rows, most, 0
        n, entries = rows.shape
        self.wanted = np.zeros(n, np.int64)
        self.without = np.array(without, np.int64)
        self.values, self.ids = np.zeros((n, most), np.float32), np.zeros((n, most), np.int32)
        self.odd = np.zeros(n, np.float32)
        self.room = np.zeros(threads * BLOCK, np.float32)
        self.counter = np.zeros(8, np.int64)
        self.arguments = (
            rows.ctypes.data, rows.strides[0], entries, self.wanted.ctypes.data, self.without.ctypes.data,
            len(self.without), self.values.ctypes.data, self.ids.ctypes.data, self.values.strides[0],
            self.odd.ctypes.data, self.room.ctypes.data, count, self.counter.ctypes.data,
        )  # fmt: skip

    def want(self, wanted: np.ndarray) -> None:
        """Before a run: how many of each row are wanted, 0 where none.  Lists are all as long as the longest."""
        self.length = int(wanted.max())
        self.wanted[: len(wanted)] = np.where(wanted, self.length, 0)

    def read(self, picked: np.ndarray) -> dict[str, np.ndarray]:
        """The lists that the last run left of the rows `picked`."""
        for row in picked[self.odd[picked] > 0]:
            self.list_odd(row)
        return {"list_ids": self.ids[picked, : self.length], "list_values": self.values[picked, : self.length]}

    def list_odd(self, number: int) -> None:
        """Lists a row that has a NaN or infinity."""
        row = self.rows[number]
        order = np.lexsort((-row, ~np.isnan(row)))[: self.length]
        self.ids[number, : self.length], self.values[number, : self.length] = order, row[order]
