"""Products of ternary matrices with one column: how near they come to the memory's speed.

Eight matrices in the size of a 27B model's feed-forward, more than the caches hold, as PQ2_0, as PTQ1_0 and to compare
as Q4_0.  The ceiling is what the same threads read when they do nothing but add up words.  golem alone: llama.cpp does
not read these types.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import _figures
import numpy as np

from golem_core import Columns, Graph, Weight, open_device

ROWS, WIDTH, MATRICES = 17408, 5120, 8
TYPES = {"PQ2_0": (128, 34, 0), "PTQ1_0": (128, 28, 26), "Q4_0": (32, 18, 0)}
"""Weights of a block, its bytes, and where its float16 scale stands."""
WEIGHTS = 26.9e9
"""Of the model whose tokens a second are told: as many as its products read for a token."""
CEILING_BYTES = 512 << 20


def matrix(kind: str, number: int) -> Weight:
    block, nbytes, scale = TYPES[kind]
    dice = np.random.default_rng(number)
    data = dice.integers(0, 243, (ROWS * WIDTH // block, nbytes), dtype=np.uint8)
    data[:, scale : scale + 2] = np.array([0.01], np.float16).view(np.uint8)
    return Weight(f"{kind} {number}", kind, (ROWS, WIDTH), data.reshape(-1))


class Products:
    """A pass of nothing but the products of one type."""

    def __init__(self, kind: str, device: Any):
        graph = Graph()
        x = graph.input("x", (WIDTH,))
        weights = [matrix(kind, number) for number in range(MATRICES)]
        for number, weight in enumerate(weights):
            graph.output(f"y{number}", graph.linear(x, weight))
        self.nbytes = sum(weight.nbytes for weight in weights)
        self.compiled = device.compile(graph, context=16)
        row = np.random.default_rng(0).standard_normal((1, WIDTH)).astype(np.float32)
        self.columns = Columns(np.array([0]), np.array([0]), np.array([0]), np.array([0]), {"x": row})

    def seconds(self) -> float:
        start = time.perf_counter()
        self.compiled.run(self.columns)
        return time.perf_counter() - start


class Ceiling:
    """Reading memory and adding up its words."""

    def __init__(self, threads: int):
        self.parts = np.array_split(np.ones(CEILING_BYTES // 8, np.int64), threads)
        self.pool = ThreadPoolExecutor(threads)

    def seconds(self) -> float:
        start = time.perf_counter()
        list(self.pool.map(np.sum, self.parts))
        return time.perf_counter() - start


def run(options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed: the best of all rounds, in which all take turns."""
    device = open_device({"device": "cpu", "threads": options.threads})
    sides = {kind: Products(kind, device) for kind in TYPES}
    ceiling = Ceiling(options.threads)
    best = dict.fromkeys((*sides, "ceiling"), float("inf"))
    for _ in range(options.rounds):
        for name in best:
            side = ceiling if name == "ceiling" else sides[name]
            best[name] = min(best[name], side.seconds())
    device.close()
    most = CEILING_BYTES / best["ceiling"]
    results = []
    for kind, side in sides.items():
        rate = side.nbytes / best[kind]
        whole = WEIGHTS * side.nbytes / (ROWS * WIDTH * MATRICES)
        results.append({
            "type": kind, "bytes": side.nbytes, "gigabytes_per_second": round(rate / 1e9, 2),
            "of_ceiling": round(rate / most, 3), "tokens_per_second": round(rate / whole, 2),
            "ceiling_tokens_per_second": round(most / whole, 2),
        })  # fmt: skip
    return {"threads": options.threads, "rounds": options.rounds, "ceiling": round(most / 1e9, 2), "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=_figures.positive, default=2, help="default 2")
    parser.add_argument("--rounds", type=_figures.positive, default=20, help="rounds to measure (default 20)")
    parser.add_argument("--json", action="store_true", help="write JSON instead of tables")
    options = parser.parse_args()
    report = run(options)
    if options.json:
        _figures.print_json(report)
        return
    _figures.print_table(
        f"{report['threads']} threads, best of {report['rounds']} rounds; memory is read at {report['ceiling']} GB/s",
        ["type", "GB/s", "of the ceiling", "tokens/s of 27B", "at the ceiling"],
        (
            [
                each["type"],
                f"{each['gigabytes_per_second']:.1f}",
                f"{each['of_ceiling']:.0%}",
                f"{each['tokens_per_second']:.2f}",
                f"{each['ceiling_tokens_per_second']:.2f}",
            ]
            for each in report["results"]
        ),
        ["Tokens a second are those of the products of a model of 26.9 billion weights, at the file's bytes a weight."],
    )


if __name__ == "__main__":
    main()
