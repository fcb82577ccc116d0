"""Which shapes of workgroups serve products best on the device that is here: microseconds of one dispatch.

Every dispatch waits for the one before it and reads a weight that no cache holds any more.
"""

from __future__ import annotations

import argparse
import itertools
from statistics import median

import numpy as np
from golem_vulkan.device import VulkanDevice
from golem_vulkan.gpu import Timer
from golem_vulkan.lowering import matrices, products
from golem_vulkan.lowering.matrices import Tile

from golem_core import Columns, Graph, Weight

NARROW = [
    (2048, 768),
    (1024, 2560),
    (4096, 2560),
    (9728, 2560),
    (2560, 9728),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
]
WIDE = [(1024, 2560), (4096, 2560), (9728, 2560), (2560, 9728), (14336, 4096), (4096, 14336)]
CONFIGS = [c for c in itertools.product((64, 128, 256), (8, 16, 32), (1, 2, 4)) if c[1] != 8 or c[2] == 1]
TILES = [
    Tile(128, 128, 64, 64), Tile(128, 128, 64, 32), Tile(128, 128, 32, 64), Tile(128, 64, 64, 32),
    Tile(128, 64, 32, 32), Tile(64, 128, 32, 64), Tile(64, 64, 32, 32), Tile(64, 128, 32, 32), Tile(256, 64, 64, 32),
    Tile(128, 256, 64, 64),
]  # fmt: skip
FEW = [(768, 768), (2304, 768), (3072, 768), (768, 3072), (4096, 4096), (14336, 4096), (4096, 14336)]
FEW_TILES = [
    Tile(64, 64, 32, 32), Tile(64, 64, 32, 32, 3), Tile(64, 64, 64, 16, 2), Tile(64, 32, 32, 32, 4),
    Tile(64, 32, 64, 16, 2), Tile(64, 32, 64, 16, 4), Tile(64, 16, 64, 16, 5), Tile(64, 16, 32, 16, 4),
    Tile(32, 64, 32, 16, 4), Tile(32, 32, 32, 32, 6), Tile(32, 32, 32, 16, 4), Tile(32, 32, 32, 16, 6),
    Tile(32, 16, 32, 16, 4), Tile(32, 16, 32, 16, 8),
]  # fmt: skip
FEW_COLUMNS = ((20, 32), (53, 128))
"""Columns of a pass, and how many it has room for."""


def weights(kind: str, outputs: int, inputs: int) -> list[Weight]:
    """As many as no cache holds."""
    size = outputs * Weight("w", kind, (outputs, inputs), np.zeros(0, np.uint8)).row_nbytes
    data = np.frombuffer(np.random.default_rng(1).bytes(size), np.uint8)
    count = max(4, min(40, (160 << 20) // size))
    return [Weight(f"w{i}", kind, (outputs, inputs), data) for i in range(count)]


def inputs_of(width: int) -> Weight:
    return Weight("inputs", "F32", (8, width), np.random.default_rng(2).random(8 * width, np.float32).view(np.uint8))


def microseconds(
    device: VulkanDevice, table: Weight, made: list[Weight], columns: int, width: int | None = None
) -> float:
    """Of a product of so many columns in a pass that has room for `width`."""
    width = width or columns
    g = Graph()
    x = g.embed(table)
    for i, w in enumerate(made):
        g.output(f"{i}", g.linear(x, w))
    run = device.compile(g, width=width, context=1024)
    run.run(Columns(np.arange(columns) % 8, np.arange(columns), np.zeros(columns)))
    steps = run.plans[width].steps
    timer = Timer(device.gpu, len(steps) + 1)
    commands = run.record(width, timer)
    spent = []
    for _ in range(3):
        device.gpu.run(commands)
        each = np.diff(timer.read())
        spent.append(median(t for t, s in zip(each, steps, strict=True) if s.kernel.startswith(("matvec", "gemm"))))
    timer.close()
    run.close()
    return min(spent) / 1e3


def tune_few(device: VulkanDevice, kind: str, largest: int) -> None:
    tile_for = matrices.tile_for
    for outputs, inputs in FEW:
        if outputs * inputs > largest:
            continue
        made, table = weights(kind, outputs, inputs)[:16], inputs_of(inputs)
        for columns, width in FEW_COLUMNS:
            times = {"now": microseconds(device, table, made, columns, width)}
            for tile in FEW_TILES:
                matrices.tile_for = lambda c, r, a=tile: a
                times["/".join(map(str, tile))] = microseconds(device, table, made, columns, width)
            matrices.tile_for = tile_for
            told = " ".join(f"{name} {times[name]:.2f}" for name in sorted(times, key=lambda name: times[name]))
            rate = made[0].nbytes / min(times.values()) / 1e3
            print(f"{kind} {outputs}x{inputs} x{columns} of {width}: {told} | {rate:.0f} GB/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--types", nargs="*", default=["Q4_0", "Q4_K"])
    parser.add_argument("--few", action="store_true", help="only products of a few columns on cooperative matrices")
    parser.add_argument("--largest", type=int, default=1 << 26, help="entries of a matrix at most")
    arguments = parser.parse_args()
    device = VulkanDevice()
    print(device.adapter.summary)
    shape, tile_for = products.shape, matrices.tile_for
    for kind in arguments.types:
        if device.matrices:
            tune_few(device, kind, arguments.largest)
        if arguments.few:
            continue
        for outputs, inputs in NARROW:
            made = weights(kind, outputs, inputs)
            table = inputs_of(inputs)
            for columns in (1, 4):
                times = {"now": microseconds(device, table, made, columns)}
                for threads, lanes, rows in CONFIGS:
                    products.shape = lambda t, b, c, a=(threads, lanes, rows): ((*a, c), a[0] // a[1] * a[2])
                    times[f"{threads}/{lanes}/{rows}"] = microseconds(device, table, made, columns)
                products.shape = shape
                best = sorted(times, key=lambda name: times[name])[:4]
                rate = made[0].nbytes / times[best[0]] / 1e3
                told = " ".join(f"{name} {times[name]:.2f}" for name in best)
                print(
                    f"{kind} {outputs}x{inputs} x{columns}: now {times['now']:.2f} | {told} | {rate:.0f} GB/s",
                    flush=True,
                )
        if not device.matrices:
            continue
        for outputs, inputs in WIDE:
            made = weights(kind, outputs, inputs)[:8]
            table = inputs_of(inputs)
            times = {"now": microseconds(device, table, made, 512)}
            for tile in TILES:
                matrices.tile_for = lambda c, r, a=tile: a
                times["/".join(map(str, tile))] = microseconds(device, table, made, 512)
            matrices.tile_for = tile_for
            best = sorted(times, key=lambda name: times[name])[:4]
            rate = f"{2e-6 * 512 * outputs * inputs / times[best[0]]:.0f} TFLOP/s"
            told = " ".join(f"{name} {times[name]:.1f}" for name in best)
            print(f"{kind} {outputs}x{inputs} x512: now {times['now']:.1f} | {told} | {rate}", flush=True)
    device.close()


if __name__ == "__main__":
    main()
