"""Embedding texts on a Vulkan device, beside llama.cpp's Vulkan backend: positions a second.

The file has nomic-embed-text-v2-moe's shape and random weights (`benchmarks/_nomic_files.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from golem_nomic.model import NomicConfig, build
from golem_vulkan.device import VulkanDevice

from golem_core import Columns, open_model

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import _nomic_files
from generating import profile

LOADS = {"one text": (1, 53), "64 texts": (64, 53), "8 long texts": (8, 400)}
"""Texts and the tokens of each."""
WIDTH = 4096


def texts(count: int, length: int) -> Columns:
    tokens = np.random.default_rng(1).integers(4, 15_000, count * length)
    return Columns(tokens, np.tile(np.arange(length), count), np.repeat(np.arange(count), length))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--directory", type=Path, required=True, help="where the file is made")
    parser.add_argument("--peer", type=Path, help="where llama.cpp's shared libraries are")
    parser.add_argument("--kind", default="F16", choices=("F16", "Q8_0"))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    path = arguments.directory / f"nomic-{arguments.kind}.gguf"
    if not path.exists():
        _nomic_files.write(path, arguments.kind)
    peer = {}
    if arguments.peer:
        script = Path(__file__).with_name("_llamacpp.py")
        settings = {"libraries": str(arguments.peer), "model": str(path), "texts": LOADS, "rounds": arguments.rounds}
        command = [sys.executable, str(script), json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=200)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        peer = json.loads(lines[-1]) if lines else {}
        if not lines:
            print("llama.cpp:", done.returncode, done.stderr[-600:], flush=True)
    with open_model(path) as file:
        config = NomicConfig.read(file, len(file.metadata["tokenizer.ggml.tokens"]))
        device = VulkanDevice()
        run = device.compile(build(config, file.weights), slots=64, context=512, width=WIDTH)
        for name, (count, length) in LOADS.items():
            columns, best = texts(count, length), 0.0
            for _ in range(arguments.rounds):
                start = time.perf_counter()
                run.run(columns)
                best = max(best, count * length / (time.perf_counter() - start))
            ratio = f", {best / peer[name]:.2f} times llama.cpp's {peer[name]:.0f}" if name in peer else ""
            print(f"nomic {arguments.kind}, {name}: {best:.0f} positions a second{ratio}", flush=True)
        for name in ("one text", "64 texts"):
            rows = profile(run, texts(*LOADS[name]))
            print(f"  {name}: {sum(us for _, _, us in rows):.0f} us on the device, step after step", flush=True)
            for kernel, count, us in rows[:9]:
                print(f"    {kernel:24} {count:5} {us:9.1f} us  {us / count:7.2f} each", flush=True)
        device.close()


if __name__ == "__main__":
    main()
