"""What each instruction path of this processor is worth: products of quantized weights on one thread.

    python benchmarks/paths.py [--types Q4_0,Q4_K] [--columns 1,4,128] [--path NAME ...]

The paths take turns, so that what else the machine does falls on all of them; the figures are the best of the rounds,
in billions of multiplications a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np

from golem_core import Columns, Graph, Weight
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.library import Library
from golem_core.cpu.passes import CpuPass
from golem_core.cpu.target import Target
from golem_core.files import TYPES

ROWS, WIDTH = 1024, 1024


def product(kind: str) -> Graph:
    """One product with weights of random bytes (scales of usual size), small enough for the processor's caches."""
    rng, size, stored = np.random.default_rng(0), ROWS * WIDTH, TYPES[kind]
    data = rng.integers(32, 64, size // stored.block * stored.nbytes, np.uint8)
    table = rng.standard_normal((64, WIDTH)).astype(np.float32).reshape(-1).view(np.uint8)
    graph = Graph()
    x = graph.embed(Weight("table", "F32", (64, WIDTH), table))
    graph.output("y", graph.linear(x, Weight("w", kind, (ROWS, WIDTH), data)))
    return graph


def devices(paths: dict[str, Target]) -> dict[str, CpuDevice]:
    return {name: CpuDevice(threads=1, library=Library(target)) for name, target in paths.items()}


def measure(devices: dict[str, CpuDevice], kind: str, columns: int, rounds: int) -> dict[str, float]:
    """Path -> seconds of a pass, the best of the rounds."""
    graph, best = product(kind), dict.fromkeys(devices, float("inf"))
    passes: dict[str, CpuPass] = {name: d.compile(graph, scored=1, width=columns) for name, d in devices.items()}
    step = Columns(np.arange(columns) % 64, np.arange(columns), np.zeros(columns, int), [0])
    for _ in range(rounds):
        for name, compiled in passes.items():
            start = time.thread_time()
            compiled.run(step)
            best[name] = min(best[name], time.thread_time() - start)
    return best


def report(paths: dict[str, Target], kinds: list[str], columns: list[int], rounds: int = 50) -> Iterator[str]:
    yield "type columns " + " ".join(paths)
    found = devices(paths)
    for kind in kinds:
        for n in columns:
            seconds = measure(found, kind, n, rounds)
            yield f"{kind} {n} " + " ".join(f"{ROWS * WIDTH * n / seconds[name] / 1e9:.0f}" for name in paths)


def main() -> None:
    host = Target.host()
    parser = argparse.ArgumentParser(description="Time the instruction paths of this processor.")
    parser.add_argument("--types", default="Q4_0,Q8_0,Q4_K,Q6_K", help="weight types, with commas between")
    parser.add_argument("--columns", default="1,4,8,128", help="numbers of columns, with commas between")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--path", action="append", choices=host.paths, help="a path to time; by default all")
    options = parser.parse_args()
    paths = {name: host.on_path(name) for name in options.path or host.paths}
    columns = [int(n) for n in options.columns.split(",")]
    for line in report(paths, options.types.split(","), columns, options.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
