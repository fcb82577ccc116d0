"""Products and attention of a few thousand columns on the Vulkan device that is here: checked against numpy at a few
columns, and timed, beside PyTorch's in bfloat16 where that is installed.

The clocks are warmed first; a time is the best of several, each over `EACH` products that may overlap, and what makes
their input.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from generating import profile
from golem_vulkan.device import VulkanDevice
from golem_vulkan.passes import VulkanPass

from golem_core import Columns, Graph, Weight

SHAPES = [(16384, 6144), (6144, 16384), (6144, 6144), (1536, 6144)]
"""Rows of a matrix and entries of each."""
HEADS = [(48, 12, 128, 3132), (1, 1, 384, 12288)]
"""Query heads, key heads, components of each, columns."""
EACH, ROUNDS, WARM = 4, 5, 0.15
SAMPLE, TOKENS = 4, 64


def weight(kind: str, rows: int, width: int) -> Weight:
    dice = np.random.default_rng(1)
    if kind == "BF16":
        values = dice.standard_normal(rows * width, np.float32).view(np.uint32) >> 16
        return Weight("w", kind, (rows, width), values.astype(np.uint16).view(np.uint8))
    row = Weight("w", kind, (rows, width), np.zeros(0, np.uint8)).row_nbytes
    data = dice.integers(0, 256, rows * row, np.uint8)
    if kind == "F8_E4M3":
        data[data & 0x7F == 0x7F] = 3
        return Weight("w", kind, (rows, width), data).scaled(0.02)
    blocks = data.reshape(rows * width // (256 if kind == "Q4_K" else 32), -1)
    blocks[:, [1, 3] if kind == "Q4_K" else [1]] = 0x1C  # a block's scales, float16
    return Weight("w", kind, (rows, width), data)


def seconds(run: VulkanPass, columns: Columns) -> float:
    """Of one go on the device, without what goes home."""
    run.run(columns)
    commands = run.runs[next(b for b in run.plans if b >= len(columns))]
    until, best = time.perf_counter() + WARM, float("inf")
    while time.perf_counter() < until:
        run.device.gpu.run(commands)
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run.device.gpu.run(commands)
        best = min(best, time.perf_counter() - start)
    return best


def given(columns: int, **inputs: np.ndarray) -> Columns:
    return Columns(np.zeros(columns), np.arange(columns), np.zeros(columns), inputs=inputs)


def product(device: VulkanDevice, kind: str, rows: int, width: int, columns: int) -> float:
    w, x = weight(kind, rows, width), np.random.default_rng(2).standard_normal((TOKENS, width), np.float32)
    pass_ = Columns(np.arange(columns) % TOKENS, np.arange(columns), np.zeros(columns))
    g = Graph()
    value = g.embed(Weight("x", "F32", x.shape, x.reshape(-1).view(np.uint8)))
    for i in range(EACH):
        g.output(f"y{i}", g.linear(value, w))
    run = device.compile(g, width=columns, context=columns)
    got = run.run(pass_)
    chosen = np.linspace(0, columns - 1, SAMPLE).astype(int)
    want = x[chosen % TOKENS] @ w.dequantize().T
    error = max(float(np.abs(got[f"y{i}"][chosen] - want).max() / np.abs(want).max()) for i in range(EACH))
    best = seconds(run, pass_) / EACH
    run.close()
    print(
        f"{kind} {rows}x{width} x{columns}: {1e6 * best:.0f} us, {2e-12 * rows * width * columns / best:.0f} TFLOP/s, "
        f"error {error:.1e}",
        flush=True,
    )
    return best


def attention(device: VulkanDevice, heads: int, kv: int, dim: int, columns: int) -> float:
    dice = np.random.default_rng(3)
    q, k, v = (dice.standard_normal((columns, n, dim), np.float32) for n in (heads, kv, kv))
    g = Graph()
    inputs = [g.input(name, (n, dim)) for name, n in (("q", heads), ("k", kv), ("v", kv))]
    g.output("y", g.attend_columns(*inputs, scale=dim**-0.5))
    run = device.compile(g, width=columns, context=columns)
    pass_ = given(columns, q=q, k=k, v=v)
    got, error = run.run(pass_)["y"].reshape(q.shape).copy(), 0.0
    for c in np.linspace(0, columns - 1, SAMPLE).astype(int):
        for h in (0, heads - 1):
            scores = k[:, h * kv // heads] @ q[c, h] * dim**-0.5
            shares = np.exp(scores - scores.max())
            want = shares @ v[:, h * kv // heads] / shares.sum()
            error = max(error, float(np.abs(got[c, h] - want).max() / np.abs(want).max()))
    seconds(run, pass_)
    rows = profile(run, pass_)
    spent = sum(us for kernel, _, us in rows if kernel.startswith("attend")) / 1e6
    run.close()
    told = ", ".join(f"{kernel} {us:.0f} us" for kernel, _, us in rows)
    rate = 4e-12 * heads * columns**2 * dim / spent
    print(f"attention {heads}/{kv}x{dim} x{columns}: {rate:.0f} TFLOP/s, error {error:.1e}; {told}", flush=True)
    return spent


def pytorch() -> None:
    try:
        import torch  # pyright: ignore[reportMissingImports]
        import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("no PyTorch")
        return
    kinds: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}

    def microseconds(act: Callable[[], Any]) -> float:
        until = time.perf_counter() + WARM
        while time.perf_counter() < until:
            act()
            torch.cuda.synchronize()
        best = float("inf")
        for _ in range(ROUNDS):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            for _ in range(EACH):
                act()
            marks[1].record()
            torch.cuda.synchronize()
            best = min(best, marks[0].elapsed_time(marks[1]) * 1e3 / EACH)
        return best

    for rows, width in SHAPES:
        for columns in (3132, 512):
            x, w = torch.randn(columns, width, **kinds), torch.randn(rows, width, **kinds)
            us = microseconds(lambda x=x, w=w: x @ w.T)
            print(f"PyTorch {rows}x{width} x{columns}: {us:.0f} us, {2e-6 * rows * width * columns / us:.0f} TFLOP/s")
    for heads, kv, dim, columns in HEADS:
        q, k, v = (torch.randn(1, n, columns, dim, **kinds) for n in (heads, kv, kv))
        us = microseconds(lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
        print(f"PyTorch {heads}/{kv}x{dim} x{columns}: {us:.0f} us, {4e-6 * heads * columns**2 * dim / us:.0f} TFLOP/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--types", nargs="*", default=["F8_E4M3", "BF16", "Q4_0", "Q4_K"])
    parser.add_argument("--columns", nargs="*", type=int, default=[3132, 512])
    parser.add_argument("--small", action="store_true", help="small shapes, to try the benchmark itself")
    arguments = parser.parse_args()
    shapes, heads = ([(272, 256)], [(4, 2, 32, 70)]) if arguments.small else (SHAPES, HEADS)
    device = VulkanDevice()
    print(device.adapter.summary, "- fragments" if device.fragments else "- no fragments")
    for kind in arguments.types:
        for columns in arguments.columns:
            for rows, width in shapes if kind == arguments.types[0] else shapes[:1]:
                product(device, kind, rows, width, columns)
    for each in heads:
        attention(device, *each)
    device.close()
    if not arguments.small:
        pytorch()


if __name__ == "__main__":
    main()
