"""Which kernels a pass of the CPU spends its time in: each kind's steps run alone, beside the whole pass.

golem alone.  The parts need not add up: run by themselves they find other things in the caches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _figures
import numpy as np

from golem_core import ChatModel, Columns, Planner, open_model, plugins
from golem_core.cpu.device import CpuDevice
from golem_core.cpu.lowering import CpuLowering


def kind(kernel: str) -> str:
    """A kernel's name without the types and sizes that it is made for."""
    words = [word for word in kernel.split("_") if not any(letter.isdigit() for letter in word)]
    return "_".join(word for word in words if word.islower())


def best(rounds: int, act: Callable[[], object]) -> float:
    """The least seconds that it takes."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)


def run(path: Path, options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    n = options.columns
    with open_model(path) as file:
        model = plugins.architecture(file.architecture).open(file)
        if not isinstance(model, ChatModel):
            raise SystemExit(f"{path} holds no conversation model")
        graph, device = model.build(), CpuDevice(threads=options.threads)
        compiled = device.compile(graph, context=max(16, n), width=n)
        plan = Planner(graph, CpuLowering(device.kv).table(), compiled.capacity).plan()
        dice = np.random.default_rng(0)
        columns = Columns(dice.integers(0, model.vocab_size, n), np.arange(n), np.zeros(n), np.array([n - 1]))
        whole = best(options.rounds, lambda: compiled.run(columns))
        groups: dict[str, list[int]] = {}
        for number, step in enumerate(plan.steps):
            groups.setdefault(kind(step.kernel), []).append(number)
        results = []
        for name, numbers in groups.items():
            program = compiled.programs[0][numbers].copy()
            program[-1, 2] = 1

            def part(program: np.ndarray = program) -> None:
                device.team.run(program)

            seconds = best(options.rounds, part)
            results.append({"kernel": name, "steps": len(numbers), "ms": seconds * 1e3, "share": seconds / whole})
        device.close()
    results.sort(key=lambda each: -each["ms"])
    return {"model": path.name, "columns": n, "threads": options.threads, "ms": whole * 1e3, "results": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, help="GGUF file; by default the installed model package")
    parser.add_argument("--columns", type=_figures.positive, default=128, help="columns of the pass (default 128)")
    parser.add_argument("--threads", type=_figures.positive, default=2, help="default 2")
    parser.add_argument("--rounds", type=_figures.positive, default=5, help="rounds to measure (default 5)")
    parser.add_argument("--json", action="store_true", help="write JSON instead of tables")
    options = parser.parse_args()
    report = run(_figures.model_path(options.model), options)
    if options.json:
        _figures.print_json(report)
        return
    _figures.print_table(
        f"{report['model']}, {report['columns']} columns in {report['ms']:.1f} ms with {report['threads']} threads",
        ["kernel", "steps", "ms", "share"],
        (
            [each["kernel"], str(each["steps"]), f"{each['ms']:.2f}", f"{each['share']:.1%}"]
            for each in report["results"]
        ),
    )


if __name__ == "__main__":
    main()
