"""The bytes of a plan's arena: which are free, and which steps touch the same."""

from __future__ import annotations

from bisect import bisect_left

from golem_core.graph.plan import Operand, State


class Stretches:
    """Hands out stretches of an arena and takes them back; neighbours that are free are one stretch again."""

    def __init__(self):
        self.free: list[tuple[int, int]] = []
        """Begin and end of what is free below `top`, in order."""
        self.top = 0

    def take(self, size: int, *, fresh: bool = False) -> int:
        """Where `size` bytes begin: in the smallest free stretch that holds them, else at the top.

        `fresh`: bytes that nobody was given before.
        """
        if size == 0:
            return 0
        fits = [(end - start, start, i) for i, (start, end) in enumerate(self.free) if end - start >= size]
        if fits and not fresh:
            _, start, i = min(fits)
            end = self.free[i][1]
            self.free[i : i + 1] = [(start + size, end)] if start + size < end else []
            return start
        start = self.top
        if self.free and self.free[-1][1] == self.top and not fresh:
            start, _ = self.free.pop()
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Takes back what `take` handed out."""
        if size == 0:
            return
        end, i = start + size, bisect_left(self.free, (start, start))
        if i < len(self.free) and self.free[i][0] == end:
            end = self.free.pop(i)[1]
        if i and self.free[i - 1][1] == start:
            i -= 1
            start = self.free.pop(i)[0]
        self.free.insert(i, (start, end))


class Touched:
    """The memory that some steps read, or that they write."""

    def __init__(self):
        self.things: set[int | str] = set()
        """States by their identities, outputs by their names."""
        self.stretches: set[tuple[int, int]] = set()
        """Begin and end in the arena."""

    def add(self, a: Operand | State) -> None:
        if isinstance(a, State):
            self.things.add(id(a.state))
        elif a.buffer.output is not None:
            self.things.add(a.buffer.output)
        else:
            self.stretches.add((a.buffer.offset, a.buffer.offset + a.buffer.size))

    def __contains__(self, a: Operand | State) -> bool:
        if isinstance(a, State):
            return id(a.state) in self.things
        if a.buffer.output is not None:
            return a.buffer.output in self.things
        start, end = a.buffer.offset, a.buffer.offset + a.buffer.size
        return any(first < end and start < last for first, last in self.stretches)
