"""Products of float weights with float32 columns, sixteen rows at a time."""

from __future__ import annotations

from golem_core.cpu.jit import Traced, fma, loop, select, shuffle, store, value
from golem_core.cpu.kernels.tiles import AHEAD, Tile, fetch

FEW = 4
"""Columns up to which a product waits for memory, and asks for weights ahead."""
UNROLLED, UNROLLED_FEW = 8, 4
"""Features for each turn of the innermost loop."""


class TileFloat(Tile):
    """The weights as they lie: processors convert them beside multiplying, so nothing is decoded."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        self.rows = [w] if half == 0 else [*self.rows, w]

    def feature(self, b: Traced) -> list[Traced]:
        """The numbers of 16 rows."""
        w = [self.F.load8(p + b * self.F.bytes8) for p in self.rows]
        return [shuffle(*w, range(16))] if self.lanes == 16 else w

    def fetch(self, b: Traced, features: int, at: Traced, K: Traced) -> None:
        """Asks for weights ahead of b, the feature `at` of K.  The second eight rows lie behind the first, so that what
        follows the end of either is behind the other."""
        row8, bytes8 = K * self.F.bytes8, self.F.bytes8
        ahead = select(at * bytes8 + AHEAD < row8, value(AHEAD), row8 + AHEAD)
        for p in self.rows:
            fetch(p + b * bytes8, bytes8 * features, ahead)

    def product(self, columns, K, k, blocks, y, y_stride, begun: Traced | None = None):
        """`begun`: how many features the sums at `y` are of; by default those before `k`."""
        totals = [self.begin(y + y_stride * c, k if begun is None else begun) for c in range(len(columns))]

        def add(b: Traced) -> None:
            w = self.feature(b)
            for c, x in enumerate(columns):
                v = self.broadcast(x + (k + b) * 4)
                for rows, total in zip(w, totals[c], strict=True):
                    total.set(fma(rows, v, total))

        few = len(columns) <= FEW
        unrolled = UNROLLED_FEW if few else UNROLLED
        whole = blocks & -unrolled
        for b in loop(0, whole, unrolled):
            if few:
                self.fetch(b, unrolled, k + b, K)
            for u in range(unrolled):
                add(b + u)
        for b in loop(whole, blocks):
            add(b)
        return totals


class TileDecoded(TileFloat):
    """Weights decoded to float32 once for all columns: `data` has 16 rows of each feature."""

    def decode(self, w: Traced, half: int, blocks: Traced) -> None:
        for b in loop(blocks):
            store(self.data + b * 64 + 32 * half, self.F.load8(w + b * self.F.bytes8))

    def feature(self, b: Traced) -> list[Traced]:
        return self.vectors("f32", self.data + b * 64)

    def fetch(self, b: Traced, features: int, at: Traced, K: Traced) -> None:
        """Nothing: the tile is near."""
