"""How threads run a compiled pass: a table of (kernel, argument block, barrier?) that they go through together.

Between passes the threads spin for a while inside `worker`, so that the next pass finds them awake.
"""

from __future__ import annotations

from golem_core.cpu.jit import (
    Traced,
    Var,
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
