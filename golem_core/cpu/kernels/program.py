"""How threads run a compiled pass: a table of (kernel, argument block, barrier?) that they go through together.

Between passes the threads spin for a while inside `worker`, so that the next pass finds them awake.
"""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
    arguments,
    atomic_add,
    atomic_load,
    both,
    call_address,
    const,
    load,
    loop,
    repeat_while,
    store,
    when,
    when_else,
)
from golem_core.cpu.library import kernel
from golem_core.cpu.target import pause, sleep_briefly, yield_processor

ROW_BYTES = 24
PROGRAM, LENGTH = 64, 72
"""Where the control block holds the address of the program and its number of rows; its first word counts passes."""
PATIENCE = 2048
"""Spins at a barrier before the processor is offered to others: more threads than processors must not deadlock."""
EXHAUSTED = 16 * PATIENCE
"""Spins after which a waiting thread sleeps between looks: the one it waits for may need this very processor."""


def barrier(counter: Traced, threads: Traced) -> None:
    arrived = atomic_add(counter, 1)
    goal = (arrived // threads + 1) * threads
    spins = Var(const("i64", 0))

    def wait() -> None:
        pause()
        spins.set(spins + 1)
        with when((spins & (PATIENCE - 1)).equals(0)), when_else(spins < EXHAUSTED) as (patient, exhausted):
            with patient:
                yield_processor()
            with exhausted:
                sleep_briefly()

    repeat_while(lambda: atomic_load(counter) < goal, wait)


def go_through(program: Traced, rows: Traced, thread: Traced, threads: Traced, counter: Traced) -> None:
    for i in loop(rows):
        row = program + i * ROW_BYTES
        call_address(load("i64", row), load("i64", row + 8), thread, threads)
        with when((load("i64", row + 16) * (threads - 1)).differs(0)):
            barrier(counter, threads)


@kernel("run_program", arity=5)
def run_program(program: Traced, rows: Traced, thread: Traced, threads: Traced, counter: Traced) -> None:
    go_through(program, rows, thread, threads, counter)


@kernel("worker", arity=6, returns="i64")
def worker(control: Traced, seen: Traced, thread: Traced, threads: Traced, counter: Traced, spins: Traced) -> Traced:
    """Takes part in every pass launched; returns how many it saw when none came for `spins` spins."""
    passes = Var(seen)

    def launched() -> Traced:
        waited = Var(const("i64", 0))

        def wait() -> None:
            pause()
            waited.set(waited + 1)

        repeat_while(lambda: both(atomic_load(control).equals(passes), waited < spins), wait)
        return atomic_load(control).differs(passes)

    def take_part() -> None:
        passes.set(passes + 1)
        go_through(load("i64", control + PROGRAM), load("i64", control + LENGTH), thread, threads, counter)

    repeat_while(launched, take_part)
    return passes.get()


@kernel("launch", arity=3)
def launch(control: Traced, program: Traced, rows: Traced) -> None:
    store(control + PROGRAM, program)
    store(control + LENGTH, rows)
    atomic_add(control, 1)


@kernel("take_turns")
def take_turns(a: Traced, thread: Traced, threads: Traced) -> None:
    """Goes through a table like a program's in which two rows are a piece of work, each piece done by one thread alone:
    whoever is free takes the next, so that nobody waits for a thread that the system has set aside.

    `counter` is zero before.
    """
    table, pieces, counter = arguments(a, 3)
    piece = Var(atomic_add(counter, 1))

    def work() -> None:
        for half in range(2):
            row = table + piece * (2 * ROW_BYTES) + half * ROW_BYTES
            call_address(load("i64", row), load("i64", row + 8), const("i64", 0), const("i64", 1))
        piece.set(atomic_add(counter, 1))

    repeat_while(lambda: piece < pieces, work)


@kernel("release_pages")
def release_pages(a: Traced, thread: Traced, threads: Traced) -> None:
    """Calls the system's madvise(address, size, advice), at an address of its own, unless `size` is 0."""
    madvise, address, size, advice = arguments(a, 4)
    with when(size > 0):
        call_address(madvise, address, size, advice)
