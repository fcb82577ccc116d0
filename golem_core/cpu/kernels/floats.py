"""Products of float weights with float32 columns, sixteen rows at a time."""

from __future__ import annotations

from golem_core.cpu.jit import Traced, fma, loop, shuffle
from golem_core.cpu.kernels.tiles import Tile, fetch

UNROLLED = 4
"""Features for each turn of the innermost loop."""


class TileFloat(Tile):
    """The weights as they lie: processors convert them beside multiplying, so nothing is decoded."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        self.rows = [w] if half == 0 else [*self.rows, w]

    def product(self, columns, K, k, blocks, y, y_stride):
        F = self.F
        totals = [self.begin(y + y_stride * c, k) for c in range(len(columns))]

        def add(b: Traced) -> None:
            w = [F.load8(p + b * F.bytes8) for p in self.rows]
            if self.lanes == 16:
                w = [shuffle(*w, range(16))]
            for c, x in enumerate(columns):
                v = self.broadcast(x + (k + b) * 4)
                for rows, total in zip(w, totals[c], strict=True):
                    total.set(fma(rows, v, total))

        whole = blocks & -UNROLLED
        for b in loop(0, whole, UNROLLED):
            for p in self.rows:
                fetch(p + b * F.bytes8, F.bytes8 * UNROLLED)
            for u in range(UNROLLED):
                add(b + u)
        for b in loop(whole, blocks):
            add(b)
        return totals
