"""The CPU as a device: compiles any graph of the vocabulary into a program that a team of threads runs.

One program serves every number of columns up to the pass's width: kernels read the counts when they run.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from golem_core.cpu import team as teams
from golem_core.cpu.arguments import Constant, Matrix, Table, Vector
from golem_core.cpu.assembly import Assembly
from golem_core.cpu.convolution_lowering import weight_format
from golem_core.cpu.formats import Format
from golem_core.cpu.kernels import (  # noqa: F401  (register)
    attention,
    cells,
    convolution,
    elementwise,
    experts,
    hadamard,
    largest,
    moves,
    orders,
    pictures,
    products,
    program,
    quantize,
    recurrence,
    rotation,
)
from golem_core.cpu.lowering import CpuLowering
from golem_core.cpu.memory import together, usable
from golem_core.cpu.passes import CpuPass, spare
from golem_core.cpu.rings import bytes_needed
from golem_core.errors import GolemError, Unsupported
from golem_core.files import mapped_pages, refuse_nan
from golem_core.files.weights import Weight
from golem_core.graph.graph import Graph
from golem_core.graph.planner import Plan, Planner, Step
from golem_core.graph.value import ALL, RUNS, SCORED

REPACK_BYTES = 2 << 20
"""Bytes of a weight that are repacked before the file's pages under them are released."""
AT_ONCE = 64 << 20
"""Bytes of weights that are repacked by one program, at least: between programs, other threads of Python may hold
things up."""
WIDTH = 128
"""Most columns of a pass unless the caller asks for another number.

Prompts are read fastest at about this width: a fifth faster than 8 or 512 columns at once.  Narrower passes decode the
weights for too few columns, and of wider ones the activations leave the nearest caches."""


class CpuDevice:
    """`threads` (default: physical cores) threads; KV rings of "f16", "f32" or "q8_0".

    Several models share the threads.
    """

    name = "cpu"

    def __init__(self, *, threads: int | None = None, kv: str = "f16", library: Any = None):
        if kv not in cells.KINDS:
            raise Unsupported(f"kv {kv!r}: the CPU keeps keys and values as {' or '.join(cells.KINDS)}")
        most = max(16, 4 * (os.cpu_count() or 1))
        if threads is not None and not 1 <= threads <= most:
            raise GolemError(f"-threads {threads}: this machine's {os.cpu_count()} processors can use 1 to {most}")
        self.threads, self.kv = threads or teams.physical_cores(), kv
        self.team = teams.shared_team(self.threads) if library is None else teams.Team(library, self.threads)
        self.library = self.team.library
        self.matrices: dict[Weight, np.ndarray] = {}
        self.vectors: dict[Weight, np.ndarray] = {}

    def compile(
        self,
        graph: Graph,
        *,
        slots: int = 1,
        context: int = 4096,
        width: int = WIDTH,
        scored: int | None = None,
        tentative: int = 0,
        fuse: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> CpuPass:
        """Takes over the weights of `graph` (repacked once, however many graphs read them) and makes its states.

        `context` is positions per slot, `width` the most columns of a pass, `scored` (default: one per
        slot) the most of them that are scored, `tentative` the most of a run that may be taken back.  `progress(done,
        total)` counts bytes of weights.  Raises Unsupported naming the op or weight that there are no kernels for,
        GolemError if the states are larger than the memory.
        """
        width = min(width, -(-context // 16) * 16 * slots)
        self.check_states(graph, slots, context, width, spare(tentative))
        capacity = {ALL: width, SCORED: min(width, scored or slots), RUNS: min(width, slots)}
        plan = Planner(graph, CpuLowering(self.kv).table(), capacity, fuse=fuse).plan()
        self.take_weights(plan, progress)
        return CpuPass(self, graph, plan, slots, context, capacity, spare(tentative))

    def check_states(self, graph: Graph, slots: int, context: int, width: int, spare: int = 0) -> None:
        """Raises GolemError where the states of `slots` conversations, and `spare` more copies of the recurrent ones,
        are larger than the memory there is."""
        needed = bytes_needed(graph.rings, context, width, self.kv)
        recurrent = sum(4 * prod(state.shape) for state in graph.recurrent)
        needed = slots * (needed + recurrent) + spare * recurrent
        there = usable()
        if there is not None and needed > there:
            raise GolemError(
                f"{slots} × {context} positions (-context) need {needed / 1e9:.1f} GB for keys, values and "
                f"states, and there are {there / 1e9:.1f} GB of memory; start with a smaller -context"
            )

    def round_input(self, weight: Weight, x: np.ndarray) -> np.ndarray:
        """Activations x (..., width) as a product with `weight` reads them: in 8-bit blocks for quantized weights."""
        return quantize.rounded(weight_format(weight).form, x)

    def free_memory(self) -> int | None:
        """Bytes of memory that this process may have, in use or not; None where the system doesn't tell."""
        return usable()

    def close(self) -> None:
        """Lets go of the weights; passes compiled before keep theirs."""
        self.matrices, self.vectors = {}, {}

    # ------------------------------------------------------------ weights

    def take_weights(self, plan: Plan, progress: Callable[[int, int], None] | None) -> None:
        args = [a for step in plan.steps for a in step.args]
        for w in {a.weight for a in args if isinstance(a, Vector)} - self.vectors.keys():
            refuse_nan(w)
            self.vectors[w] = np.ascontiguousarray(w.dequantize().reshape(-1), np.float32)
        for w in {a.weight for a in args if isinstance(a, Table)}:
            refuse_nan(w)
        new = [w for w in dict.fromkeys(a.weight for a in args if isinstance(a, Matrix)) if w not in self.matrices]
        self.library.load({f"repack_{w.type}" for w in new} | {s.kernel for s in plan.steps})
        total, done, waiting = sum(w.nbytes for w in new), 0, 0
        steps: list[Step] = []
        rooms = together([repacked_bytes(w) for w in new])
        for w, room in zip(new, rooms, strict=True):
            data = w.data
            self.repack(w, data, room, steps)
            self.matrices[w] = room
            waiting += w.nbytes
            in_memory = not mapped_pages(data)[1]  # a copy that was made for this goes at once
            if waiting >= AT_ONCE or in_memory or w is new[-1]:
                self.take_turns(steps)
                done, waiting, steps = done + waiting, 0, []
                if progress:
                    progress(done, total)

    def repack(self, w: Weight, data: np.ndarray, room: np.ndarray, steps: list[Step]) -> None:
        """Adds to `steps` what fills `room` (zeros, `repacked_bytes`) with a weight, eight rows interleaved; two steps
        are a piece of work."""
        form, height, padded = repacked_shape(w)
        row8 = w.width // form.block * form.bytes8
        at_once = max(1, REPACK_BYTES // (8 * w.row_nbytes)) * 8
        for matrix in range(w.rows // height):
            target = room[matrix * padded // 8 * row8 :]
            for first in range(0, height, at_once):  # in pieces, so that the file's pages can be let go of behind
                start, count = matrix * height + first, min(at_once, height - first)
                source = data[start * w.row_nbytes : (start + count) * w.row_nbytes]
                refuse_nan(w, source)
                rows = Constant(source), Constant(target[first // 8 * row8 :]), count, w.width
                steps.append(Step(f"repack_{w.type}", rows))
                address, size = mapped_pages(source)
                release = (madvise(), address, size, mmap.MADV_DONTNEED) if size else (0, 0, 0, 0)
                steps.append(Step("release_pages", release))

    def take_turns(self, steps: list[Step]) -> None:
        """Has the team go through pieces of work of two steps each."""
        assembly = Assembly(self, {})  # holds what the programs point to
        table = Constant(assembly.program(steps))
        turns = Step("take_turns", (table, len(steps) // 2, Constant(np.zeros(1, np.int64))), barrier=True)
        self.team.run(assembly.program([turns]))


def repacked_shape(w: Weight) -> tuple[type[Format], int, int]:
    """The format of a repacked weight, the rows of each of its matrices, and those filled up with zeros to 16."""
    height = w.shape[-2] if len(w.shape) > 2 and w.shape[-2] % 16 else w.rows
    return weight_format(w), height, -(-height // 16) * 16


def repacked_bytes(w: Weight) -> int:
    form, height, padded = repacked_shape(w)
    return w.rows // height * padded // 8 * (w.width // form.block * form.bytes8)


@cache
def madvise() -> int:
    """Where this process has the system's function of that name."""
    return ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value or 0
