"""The largest entries of rows, found where the rows have just been written."""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    both,
    claim,
    const,
    hmax,
    imax,
    load,
    loop,
    repeat_while,
    select,
    store,
    vmax,
    when,
    when_else,
)
from golem_core.cpu.library import kernel

BLOCK = 64
"""Entries that are looked at together: only of a block with a large enough one, each is compared."""
FINITE = 3.4028234e38
"""The largest number of float32."""


def insert(values: Traced, ids: Traced, count: Traced, x: Traced, entry: Traced) -> None:
    """Puts x into `count` descending values in place of the last, behind those that equal it."""
    at = Var(count - 1)
    repeat_while(
        lambda: both(at > 0, load("f32", values + imax(at - 1, 0) * 4) < x),
        lambda: move(values, ids, at),
    )
    store(values + at * 4, x)
    store(ids + at * 4, entry.to("i32"))


def move(values: Traced, ids: Traced, at: Var) -> None:
    store(values + at * 4, load("f32", values + at * 4 - 4))
    store(ids + at * 4, load("i32", ids + at * 4 - 4))
    at.set(at - 1)


@kernel("list_largest")
def list_largest(a: Traced, thread: Traced, threads: Traced) -> None:
    """Of each row of n numbers for which `wanted` isn't 0: its `wanted` largest in `values` and `ids`, descending,
    equal ones in the order in which they stand.

    Entries `without` are overwritten with minus infinity.  Where a row has a NaN or infinity its number in `odd`,
    float32, isn't 0, and the list says nothing.  `room`: 4 * BLOCK bytes for each thread.
    """
    x, stride, n, wanted, without, left_out, values, ids, list_stride, odd, room, count, counter = arguments(a, 13)
    room = room + thread * (4 * BLOCK)
    for r in claim(counter, load("i64", count), threads):
        row, most = x + r * stride, load("i64", wanted + r * 8)
        own, names = values + r * list_stride, ids + r * list_stride
        with when(most > 0):
            for i in loop(left_out):
                store(row + load("i64", without + i * 8) * 4, const("f32", float("-inf")))
            for i in loop(most):
                store(own + i * 4, const("f32", float("-inf")))
                store(names + i * 4, const("i32", 0))
            store(odd + r * 4, list_row(row, n, most, own, names, room))


def list_row(x: Traced, n: Traced, most: Traced, values: Traced, ids: Traced, room: Traced) -> Traced:
    """Lists the row at x; what `odd` has of it."""
    whole = n // BLOCK
    for i in loop(BLOCK):  # what is beyond the last whole block, filled up
        at = whole * BLOCK + i
        with when_else(at < n) as (inside, outside):
            with inside:
                store(room + i * 4, load("f32", x + at * 4))
            with outside:
                store(room + i * 4, const("f32", float("-inf")))
    least, odd = Var(const("f32", float("-inf"))), Var(const("f32x8", 0))
    for b in loop((n + BLOCK - 1) // BLOCK):
        block = select(b < whole, x + b * (4 * BLOCK), room)
        numbers = [load("f32x8", block + 4 * i) for i in range(0, BLOCK, 8)]
        top, strange = numbers[0], odd.get()
        for each in numbers[1:]:
            top = vmax(top, each)
        for each in numbers:
            strange = select(each <= FINITE, strange, const("f32x8", 1))
        odd.set(strange)
        with when(hmax(top) > least):
            for i in loop(BLOCK):
                number = load("f32", block + i * 4)
                with when(number > least):
                    insert(values, ids, most, number, b * BLOCK + i)
                    least.set(load("f32", values + most * 4 - 4))
    return hmax(odd.get())
