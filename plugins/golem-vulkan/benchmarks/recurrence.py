"""The parts of a gated delta net that go through the columns of a conversation in order: microseconds of one block on
the device that is here, column after column and as a pass does it.

The dimensions are those of Qwen3.8-27B.  Every dispatch waits for the one before it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from golem_vulkan.device import VulkanDevice
from golem_vulkan.gpu import Timer
from golem_vulkan.lowering import recurrence

from golem_core import Columns, Graph, Recurrent, Value, Weight

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import _random_model

SHAPE = _random_model.SHAPES["qwen35-27b-cut"].delta
BLOCKS, ROUNDS, TOKENS = 4, 10, 64
WARM = 0.3
"""Seconds of work before anything is measured, so that the clock is up."""
PARTS = {"convolution": ("causal_conv1d",), "delta rule": ("delta_net", "delta_factors", "delta_chunks")}


def weight(rng: np.random.Generator, name: str, *shape: int) -> Weight:
    return Weight(name, "F32", shape, rng.standard_normal(shape, np.float32).view(np.uint8).reshape(-1))


def block(g: Graph, rng: np.random.Generator, x: Value) -> Value:
    """The convolution, and the delta rule over its results."""
    d = SHAPE
    assert d is not None
    keys = d.key_heads * d.dim
    window, taps = Recurrent((d.taps - 1, d.features)), weight(rng, "taps", d.features, d.taps)
    mixed, _ = g.causal_conv1d(x, taps, window)
    q, k = (g.l2_norm(g.slice(mixed, i * keys, (i + 1) * keys).heads(d.key_heads), eps=1e-6) for i in range(2))
    v = g.slice(mixed, 2 * keys, d.features).heads(d.heads)
    gates = g.embed(weight(rng, "gates", TOKENS, d.heads))
    state = Recurrent((d.heads, d.dim, d.dim))
    y, _ = g.delta_net(q, k, v, g.scale(g.softplus(gates), by=-0.3), g.sigmoid(gates), state, scale=d.dim**-0.5)
    return y


def measure(device: VulkanDevice, columns: int) -> dict[str, float]:
    """Microseconds of each kernel in one block, the least of some rounds."""
    assert SHAPE is not None
    g, rng = Graph(), np.random.default_rng(1)
    x = g.embed(weight(rng, "table", TOKENS, SHAPE.features))
    for i in range(BLOCKS):
        g.output(f"y{i}", g.take(block(g, rng, x)))
    run = device.compile(g, width=columns, context=1024)
    run.run(Columns(np.arange(columns) % TOKENS, np.arange(columns), np.zeros(columns), [columns - 1]))
    steps = run.plans[columns].steps
    timer, best = Timer(device.gpu, len(steps) + 1), defaultdict(lambda: np.inf)
    commands = run.record(columns, timer)
    start = time.perf_counter()
    while time.perf_counter() - start < WARM:
        device.gpu.run(commands)
    for _ in range(ROUNDS):
        device.gpu.run(commands)
        spent: dict[str, float] = defaultdict(float)
        for step, nanoseconds in zip(steps, np.diff(timer.read()), strict=True):
            spent[step.kernel] += nanoseconds / 1e3 / BLOCKS
        best |= {kernel: min(each, best[kernel]) for kernel, each in spent.items()}
    timer.close()
    run.close()
    return dict(best)


@contextmanager
def one_by_one() -> Iterator[None]:
    """Plans that take each column after the one before it."""
    was = recurrence.MOST_STEPS, recurrence.MOST_PARTS
    recurrence.MOST_STEPS, recurrence.MOST_PARTS = 1 << 30, 1
    yield
    recurrence.MOST_STEPS, recurrence.MOST_PARTS = was


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--columns", nargs="*", type=int, default=[64, 128, 512])
    columns = parser.parse_args().columns
    device = VulkanDevice()
    print(device.adapter.summary)
    for n in columns:
        with one_by_one():
            before = measure(device, n)
        after = measure(device, n)
        for name, kernels in PARTS.items():
            a, b = (sum(spent.get(kernel, 0.0) for kernel in kernels) for spent in (before, after))
            each = ", ".join(f"{kernel} {after[kernel]:.1f}" for kernel in kernels if kernel in after)
            print(f"{n} columns, {name}: {a:.1f} us one by one, {b:.1f} us now ({each}), {a / b:.2f} x", flush=True)
    device.close()


if __name__ == "__main__":
    main()
