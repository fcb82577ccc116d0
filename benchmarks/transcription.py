"""Speech to text against moshi in PyTorch: 1, 2 and 4 streams at once, in the shape of the 1B model.

The weights are random and the same on both sides; what they say means nothing, but every frame costs what it costs.
golem runs in this process, PyTorch in others, once in bfloat16 and once in float32, and they take turns in every round.
Reading sound files and HTTP are in neither side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import _figures
import _kyutai_files
import numpy as np
from _quiet import Quiet
from golem_kyutai.checkpoint import FRAME_RATE
from golem_kyutai.group import AHEAD
from golem_kyutai.stream import AFTER
from golem_kyutai.transcriber import Transcriber

NOTES = (
    "Seconds of sound a second, of all streams together.",
    "moshi computes in the type named, with its codec in float32; golem has its matrices in the type named.",
    f"The codec encodes {AHEAD} frames at once on both sides.",
)

WARM = 20
"""Frames of each stream before the first round, more than the silence behind a sound."""


@dataclass
class Side:
    """One way to listen: from how many streams and frames of each to the seconds that they took."""

    name: str
    hear: Callable[[int, int], float]


def golem(folder: Path, weights: str, most: int, threads: int) -> tuple[Side, Transcriber]:
    options = {"device": "cpu", "threads": threads, "stt-parallel": most, "stt-weights": weights}
    transcriber = Transcriber.open(folder, options)
    after = transcriber.checkpoint.config.delay + AFTER
    dice = np.random.default_rng(0)

    def one(samples: np.ndarray) -> None:
        with transcriber.listening([samples]) as stream:
            for _ in stream:
                pass

    def hear(streams: int, frames: int) -> float:
        """The silence behind the sound is part of the frames."""
        samples = round(frames * transcriber.group.frame - after * transcriber.rate)
        sounds = [dice.standard_normal(samples, np.float32) * np.float32(0.1) for _ in range(streams)]
        start = time.perf_counter()
        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(one, sounds))
        return time.perf_counter() - start

    return Side(f"golem {weights}", hear), transcriber


def pytorch(process: subprocess.Popen[str], dtype: str) -> Side:
    assert process.stdin is not None and process.stdout is not None
    given, said = process.stdin, process.stdout

    def hear(streams: int, frames: int) -> float:
        given.write(json.dumps([streams, frames]) + "\n")
        given.flush()
        return float(said.readline())

    return Side(f"moshi {dtype}", hear)


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure, and return the record that is printed."""
    quiet, script = Quiet(options.quiet), str(Path(__file__).with_name("_transcription_peer.py"))
    frames = round(options.seconds * FRAME_RATE)
    series: dict[tuple[int, str], list[float]] = {}
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for dtype in options.dtypes.split(","):
            command = [options.peer_python, "-P", script, str(folder), str(options.threads), dtype, str(AHEAD)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            assert process.stdin is not None
            stack.callback(process.stdin.close)
            processes.append(process)
        ours, transcriber = golem(folder, options.weights, max(options.streams), options.threads)
        stack.callback(transcriber.close)
        sides = [ours]
        for process, dtype in zip(processes, options.dtypes.split(","), strict=True):
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"{options.peer_python} does not run moshi")
            sides.append(pytorch(process, dtype))
        pids = [process.pid for process in processes]
        for number in range(-1, options.rounds):
            for streams in options.streams:
                for side in _figures.in_turn(sides, number):
                    count = frames if number >= 0 else WARM
                    seconds = quiet.measure(lambda: side.hear(streams, count), lambda: pids)  # noqa: B023
                    _figures.progress(f"{side.name}, {streams} streams: {count * streams / FRAME_RATE / seconds:.2f}")
                    if number >= 0:
                        series.setdefault((streams, side.name), []).append(seconds)
    return record(options, frames, [side.name for side in sides], series, quiet)


def record(
    options: argparse.Namespace,
    frames: int,
    names: Sequence[str],
    series: dict[tuple[int, str], list[float]],
    quiet: Quiet,
) -> dict[str, Any]:
    results = []
    for streams in options.streams:
        heard = streams * frames / FRAME_RATE
        rates = {name: round(heard / median(series[streams, name]), 3) for name in names}
        best = min(names[1:], key=lambda name: median(series[streams, name]))
        pairs = zip(series[streams, names[0]], series[streams, best], strict=True)
        rounds = [theirs / ours for ours, theirs in pairs]
        results.append({
            "streams": streams, **rates, "best": best, "ratio": round(rates[names[0]] / rates[best], 3),
            "lowest": round(min(rounds), 3), "highest": round(max(rounds), 3),
        })  # fmt: skip
    notes = [*NOTES, *_figures.disturbed(quiet.disturbed)]
    return {
        "seconds": options.seconds, "threads": options.threads, "rounds": options.rounds, "sides": list(names),
        "results": results, "notes": notes,
    }  # fmt: skip


def main() -> None:
    parser = _figures.arguments((__doc__ or "").split("\n")[0], rounds=3)
    parser.add_argument("--streams", type=_figures.counts, default=[1, 2, 4], help="streams at once (default 1,2,4)")
    parser.add_argument("--seconds", type=float, default=20.0, help="sound of each stream (default 20)")
    parser.add_argument("--weights", default="q8_0", choices=("bf16", "q8_0", "q4_0"), help="golem's (default q8_0)")
    parser.add_argument("--dtypes", default="bf16,f32", help="moshi's (default bf16,f32)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the files are or will be, and stay")
    options = parser.parse_args()
    if options.peer_python is None:
        parser.error("--peer-python names a Python with torch, safetensors and moshi")
    folder = options.keep or Path(mkdtemp(prefix="kyutai-")) / "stt-1b-random"
    try:
        if not folder.exists():
            _kyutai_files.write(folder)
        report = run(folder, options)
    finally:
        if options.keep is None:
            shutil.rmtree(folder.parent)
    if options.json:
        _figures.print_json(report)
        return
    _figures.print_table(
        f"{options.seconds:g} s of sound a stream, {options.threads} threads, medians of {options.rounds} rounds",
        ["streams", *report["sides"], "ratio to the best", "lowest", "highest"],
        (
            [str(each["streams"]), *(f"{each[name]:.2f}" for name in report["sides"])]
            + [f"{each[key]:.2f}" for key in ("ratio", "lowest", "highest")]
            for each in report["results"]
        ),
        report["notes"],
    )


if __name__ == "__main__":
    main()
