"""Orders of a mixture: which columns each expert's product takes, found in the pass itself.

The layout of an order: the number of entries, then at `ENTRIES` an entry for each expert that anyone chose, then a
cursor for each expert that there is, then the pairs (column, choice), those of an expert together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golem_core.cpu.jit import Traced, Var, arguments, load, loop, store, value, when
from golem_core.cpu.library import kernel

ENTRIES = 64
"""Where the entries begin."""
ENTRY, PAIR = 16, 8
"""Bytes of an entry (expert, its first pair, number of its pairs) and of a pair, numbers in i32."""


def head_bytes(experts: Any) -> Any:
    """Bytes of an order before its pairs."""
    return ENTRIES + experts * (ENTRY + 4)


def read32(address: Traced) -> Traced:
    return load("i32", address).to("i64")


def write32(address: Traced, number: Traced) -> None:
    store(address, number.to("i32"))


def read_entry(order: Traced, i: Traced) -> tuple[Traced, Traced, Traced]:
    """(expert, its first pair, number of its pairs)."""
    expert, first, count = (read32(order + ENTRIES + i * ENTRY + 4 * j) for j in range(3))
    return expert, first, count


def read_pair(order: Traced, experts: Traced, i: Traced) -> tuple[Traced, Traced]:
    """(column, which of its choices)."""
    at = order + head_bytes(experts) + i * PAIR
    return read32(at), read32(at + 4)


@kernel("expert_order")
def expert_order(a: Traced, thread: Traced, threads: Traced) -> None:
    """Sorts the pairs (column, choice) by expert, columns in their order, and lists the experts that have any."""
    ids, ids_stride, order, experts, chosen, count = arguments(a, 6)
    cursors, pairs = order + ENTRIES + experts * ENTRY, order + head_bytes(experts)

    def each(body: Callable[[Traced, Traced, Traced], None]) -> None:
        for c in loop(load("i64", count)):
            for k in loop(chosen):
                expert = load("f32", ids + c * ids_stride + k * 4).to("i64")
                body(cursors + expert * 4, c, k)

    def count_one(cursor: Traced, c: Traced, k: Traced) -> None:
        write32(cursor, read32(cursor) + 1)

    def place(cursor: Traced, c: Traced, k: Traced) -> None:
        at = read32(cursor)
        write32(cursor, at + 1)
        write32(pairs + at * PAIR, c)
        write32(pairs + at * PAIR + 4, k)

    with when(thread.equals(0)):
        for e in loop(experts):
            write32(cursors + e * 4, value(0))
        each(count_one)
        used, first = Var(value(0)), Var(value(0))
        for e in loop(experts):
            n = read32(cursors + e * 4)
            with when(n > 0):
                for i, number in enumerate((e, first, n)):
                    write32(order + ENTRIES + used * ENTRY + 4 * i, number)
                write32(cursors + e * 4, first)
                used += 1
                first += n
        each(place)
        store(order, used.get())
