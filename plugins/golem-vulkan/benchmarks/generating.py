"""Generating and reading prompts on a Vulkan device, beside llama.cpp's Vulkan backend, with the same files.

Files have random weights in the dimensions of real models (`benchmarks/_random_model.py`), or are real ones of any
family whose package is installed.  llama.cpp is driven through its C API by `_llamacpp.py`, in a process of its own;
`--peer` names the directory of its shared libraries, such as that in npm's @node-llama-cpp/linux-x64-vulkan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from golem_llama.model import LlamaConfig
from golem_llama.model import build as build_llama
from golem_qwen.qwen3 import Qwen3Config
from golem_qwen.qwen3 import build as build_qwen3
from golem_qwen.qwen35 import Qwen35Config
from golem_qwen.qwen35 import build as build_qwen35
from golem_vulkan.device import KV, VulkanDevice
from golem_vulkan.gpu import Timer
from golem_vulkan.passes import VulkanPass

from golem_core import (
    Columns,
    Graph,
    Keys,
    ModelFile,
    SamplerChain,
    SamplerContext,
    SamplerStage,
    SamplingParams,
    Shortlist,
    open_model,
    plugins,
)

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import _random_model

PROMPT, GENERATED, ROUNDS = 512, 64, 5
LISTED = 64
GREEDY, TOP_K = SamplingParams(temperature=0), SamplingParams(top_k=LISTED, top_p=0.95, min_p=0.05, seed=1)
WAYS: dict[str, tuple[SamplingParams | None, int]] = {
    "generating": (None, 0),
    "greedy from rows": (GREEDY, 0),
    "greedy": (GREEDY, 1),
    "top-k from rows": (TOP_K, 0),
    "top-k": (TOP_K, LISTED),
}
"""How tokens are drawn, if they are, and how many of the largest logits come home for it, 0 for all."""
RANDOM = _random_model.Shape
SHAPES = {
    "300m": RANDOM(768, 18, 4, 1, 256, 2048, 262144),
    "4b": _random_model.SHAPES["qwen3-4b"],
    "8b": RANDOM(4096, 32, 32, 8, 128, 14336, 128256),
    "26b-a4b": RANDOM(2816, 30, 16, 8, 256, 704, 262144, experts=128, experts_used=8),
    # eight of the 64 blocks of Qwen3.8-27B, every other one a delta net
    "27b-cut": replace(_random_model.SHAPES["qwen35-27b-cut"], blocks=8),
}


def model_file(directory: Path, shape: str, mix: str, donor: Path) -> Path:
    path = directory / f"{shape}-{mix}.gguf"
    if not path.exists():
        _random_model.write(path, SHAPES[shape], mix, donor)
    return path


def columns(tokens: np.ndarray, first: list[int], each: int) -> Columns:
    """A pass of `each` columns for each slot, from the positions `first`; the last of each slot is scored."""
    slots = len(first)
    position = np.concatenate([np.arange(f, f + each) for f in first])
    return Columns(
        tokens[: slots * each], position, np.repeat(np.arange(slots), each), np.arange(slots) * each + each - 1
    )


def graph_of(file: ModelFile) -> Graph:
    """Of a family whose package is installed; those that random weights are made for need not be."""
    vocabulary = len(file.metadata["tokenizer.ggml.tokens"])
    match file.architecture:
        case "llama":
            return build_llama(LlamaConfig.read(file, vocabulary), file.weights)
        case "qwen3":
            return build_qwen3(Qwen3Config.read(file, vocabulary), file.weights)
        case "qwen35":
            return build_qwen35(Qwen35Config.read(file, vocabulary), file.weights)
    return plugins.architecture(file.architecture).open(file).build()


def read_bytes(file: ModelFile) -> int:
    """Bytes of weights that a token reads."""
    keys, total = Keys(file), 0
    experts, experts_used = keys.count("expert_count", 1, low=0), keys.count("expert_used_count", 1, low=0)
    for name in file.weights:
        w = file.weights[name]
        if name == "token_embd.weight" and file.weights.get("output") is not None:
            continue
        used = experts_used / experts if len(w.shape) == 3 else 1
        total += int(w.nbytes * used)
    return total


def measure(run: VulkanPass, slots: int, tokens: np.ndarray, rounds: int) -> dict[str, float]:
    """Tokens a second, the best of so many rounds: of a prompt, and of answers behind a prompt, for which all logits
    come home, or are drawn from, or only the largest."""
    best: dict[str, float] = defaultdict(float)
    stages = plugins.sampler_stages()
    run.prepare_lists(LISTED, [])
    for _ in range(rounds):
        start = time.perf_counter()
        run.run(columns(tokens, [0], PROMPT))
        best["prompt"] = max(best["prompt"], PROMPT / (time.perf_counter() - start))
        for count, (how, (params, listed)) in itertools.product({1, slots}, WAYS.items()):
            lists = [listed] * count if listed else None
            start = time.perf_counter()
            for i in range(GENERATED):
                found = run.run(columns(tokens[i:], [PROMPT + i] * count, 1), lists=lists)
                if params is not None:
                    draw(stages, params, found, count)
            rate = count * GENERATED / (time.perf_counter() - start)
            name = how if count == 1 else f"{how} x{count}"
            best[name] = max(best[name], rate)
    return dict(best)


def draw(stages: list[SamplerStage], params: SamplingParams, found: dict[str, np.ndarray], count: int) -> None:
    """A token of each conversation, as the engine draws it."""
    vocabulary = found["logits"].shape[1]
    for i in range(count):
        chain = SamplerChain.build(stages, params, SamplerContext(vocabulary))
        if len(found["logits"]):
            chain.draw(found["logits"][i].copy())
        else:
            listed = found["list_ids"][i], found["list_values"][i], float(found["log_total"][i])
            chain.draw(Shortlist(*listed).first(chain.most or 1))


def profile(run: VulkanPass, pass_: Columns) -> list[tuple[str, int, float]]:
    """Kernel, dispatches, microseconds in all; every dispatch waits for the one before it."""
    run.run(pass_)
    width = next(b for b in run.plans if b >= len(pass_))
    steps = run.plans[width].steps
    timer = Timer(run.device.gpu, len(steps) + 1)
    commands = run.record(width, timer)
    for _ in range(3):
        run.device.gpu.run(commands)
    spent: dict[str, list[float]] = defaultdict(list)
    for step, nanoseconds in zip(steps, np.diff(timer.read()), strict=True):
        spent[step.kernel].append(nanoseconds / 1e3)
    timer.close()
    return sorted(((k, len(v), sum(v)) for k, v in spent.items()), key=lambda row: -row[2])


def ours(path: Path, slots: int, rounds: int, profiled: bool, kv: str) -> dict[str, Any]:
    with open_model(path) as file:
        device, graph = VulkanDevice(kv=kv), graph_of(file)
        start = time.perf_counter()
        run = device.compile(graph, slots=slots, context=1024, width=PROMPT)
        result: dict[str, Any] = {"load": time.perf_counter() - start}
        tokens = np.random.default_rng(1).integers(0, len(file.metadata["tokenizer.ggml.tokens"]), 2 * PROMPT)
        result |= measure(run, slots, tokens, rounds)
        result["GB/s"] = read_bytes(file) * result["generating"] / 1e9
        if profiled:
            for name, pass_ in (("generating", columns(tokens, [PROMPT], 1)), ("prompt", columns(tokens, [0], PROMPT))):
                rows = profile(run, pass_)
                total = sum(us for _, _, us in rows)
                print(f"  {name}: {total:.0f} us on the device, {len(run.plans)} widths", flush=True)
                for kernel, count, us in rows[:9]:
                    print(f"    {kernel:24} {count:5} {us:9.1f} us  {us / count:7.2f} each", flush=True)
        device.close()
    return result


def theirs(path: Path, slots: int, rounds: int, peer: Path) -> dict[str, float]:
    script = Path(__file__).with_name("_llamacpp.py")
    settings = {"libraries": str(peer), "model": str(path), "slots": slots, "rounds": rounds, "prompt": PROMPT}
    command = [sys.executable, str(script), json.dumps(settings | {"generated": GENERATED})]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print("  llama.cpp:", done.returncode, done.stderr[-600:], flush=True)
        return {}
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "models",
        nargs="+",
        metavar="SHAPE:MIX",
        help=f"{', '.join(SHAPES)}; {', '.join(_random_model.MIXES)}; or a GGUF file, which stays where it is",
    )
    parser.add_argument("--directory", type=Path, help="where the files are made")
    parser.add_argument("--donor", type=Path, help="a GGUF file of the architecture llama with a tokenizer")
    parser.add_argument("--peer", type=Path, help="where llama.cpp's shared libraries are")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kv", default="f16", choices=KV, help="how keys and values are kept")
    parser.add_argument("--profile", action="store_true", help="also tell where the device's time goes")
    parser.add_argument("--remove", action="store_true", help="remove each file after its turn")
    arguments = parser.parse_args()
    for name in arguments.models:
        real = name.endswith(".gguf")
        if not real and not (arguments.directory and arguments.donor):
            parser.error(f"{name} needs --directory and --donor")
        shape, _, mix = name.partition(":")
        path = Path(name) if real else model_file(arguments.directory, shape, mix, arguments.donor)
        print(f"{name}: {path.stat().st_size / 1e9:.2f} GB", flush=True)
        mine = ours(path, arguments.slots, arguments.rounds, arguments.profile, arguments.kv)
        print("  golem", {k: round(v, 1) for k, v in mine.items()}, flush=True)
        if arguments.peer:
            peer = theirs(path, arguments.slots, arguments.rounds, arguments.peer)
            print("  llama.cpp", {k: round(v, 1) for k, v in peer.items()}, flush=True)
            print(
                "  ratio", {k: round(mine[k] / v, 2) for k, v in peer.items() if k in mine and k != "load"}, flush=True
            )
        if arguments.remove and not real:
            path.unlink()


if __name__ == "__main__":
    main()
