"""Embedding texts over HTTP: positions a second of golem and of llama.cpp, on files with random weights.

The files have the shape of nomic-embed-text-v2-moe (475 million weights, 12 blocks, 8 experts) and are written to a
folder in the user's cache, from where they are removed at the end unless --keep says otherwise.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _figures
import _nomic_files
import _servers
from _quiet import Quiet

KINDS = ("F16", "Q8_0")
TEXTS, POSITIONS, LONG, CLIENTS = 64, 53, 400, 8
BATCH = 2048
"""Positions of llama.cpp's passes."""

NOTES = (
    "Both servers are asked for base64 on /v1/embeddings, with new random texts in every round, which both cut into "
    "the same tokens. A client's whole time counts.",
    _figures.PEER_NOTE,
)


@dataclass(frozen=True)
class Load:
    """Requests that are sent by so many clients at a time."""

    name: str
    requests: Callable[[random.Random], list[list[str]]]
    clients: int


def text(source: random.Random, positions: int) -> str:
    """A text of so many tokens, the two around it included."""
    return " ".join(source.choices(WORDS, k=positions - 2))


def lengths(source: random.Random) -> list[int]:
    return [source.randrange(POSITIONS - 20, POSITIONS + 21) for _ in range(TEXTS)]


WORDS = _nomic_files.words()
LOADS = (
    Load(f"{TEXTS} texts in one request", lambda source: [[text(source, n) for n in lengths(source)]], 1),
    Load(f"one text of {LONG} positions", lambda source: [[text(source, LONG)]], 1),
    Load(
        f"{TEXTS} requests of one text, {CLIENTS} at a time",
        lambda source: [[text(source, n)] for n in lengths(source)],
        CLIENTS,
    ),
)


def ask(server: _servers.Server, requests: list[list[str]], clients: int) -> float:
    """Positions a second over all requests."""
    waiting, positions = list(reversed(requests)), []

    def work(_: int) -> None:
        while waiting:
            try:
                texts = waiting.pop()
            except IndexError:  # another client took it
                return
            answer = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64", "model": "any"})
            if len(answer["data"]) != len(texts):
                raise SystemExit(f"{server.name} gave {len(answer['data'])} vectors for {len(texts)} texts")
            expected = sum(each.count(" ") + 3 for each in texts)
            if answer["usage"]["prompt_tokens"] != expected:
                raise SystemExit(f"{server.name} read {answer['usage']['prompt_tokens']} tokens of {expected}")
            positions.append(expected)

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    return sum(positions) / (time.perf_counter() - start)


def run(options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    python = _servers.peer_python(options.peer_python)
    quiet = Quiet(options.quiet)
    results: list[dict[str, Any]] = []
    for kind in options.kinds:
        path = options.folder / f"nomic-random-{kind}.gguf"
        if not path.exists():
            _figures.progress(f"writing {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            partial_path = path.with_suffix(".part")
            _nomic_files.write(partial_path, kind)
            partial_path.rename(path)
        try:
            results += measure(path, kind, python, quiet, options)
        finally:
            if not options.keep:
                path.unlink()
    return {
        "threads": options.threads,
        "rounds": options.rounds,
        "flash": options.flash,
        "results": results,
        "disturbed": quiet.disturbed,
        "notes": [*NOTES, *_figures.disturbed(quiet.disturbed)],
    }


def measure(path: Path, kind: str, python: str, quiet: Quiet, options: Any) -> list[dict[str, Any]]:
    """The figures of every load with one file."""
    rates: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        ours = stack.enter_context(_servers.golem_embedder(path, threads=options.threads))
        settings = {"slots": CLIENTS, "context": 512, "threads": options.threads, "flash": options.flash}
        theirs = stack.enter_context(_servers.peer(python, path, batch=BATCH, **settings))
        sides = (ours, theirs)
        for side in sides:
            ask(side, [[text(random.Random("warm-up"), POSITIONS)]], 1)
        for number in range(options.rounds):
            for load in LOADS:
                requests = load.requests(random.Random(f"{number} {load.name}"))
                for side in _figures.in_turn(sides, number):
                    act = partial(ask, side, requests, load.clients)
                    rate = quiet.measure(act, lambda: [each.process for each in sides])
                    _figures.progress(f"{kind}, round {number + 1}, {load.name}, {side.name}: {rate:.0f}")
                    rates.setdefault((load.name, side.name), []).append(rate)
        memory = {"golem_peak_bytes": ours.memory(), "llama.cpp_peak_bytes": theirs.memory()}
    return [
        {"kind": kind, "load": load.name}
        | _figures.compared(rates[load.name, ours.name], rates[load.name, theirs.name])
        | memory
        for load in LOADS
    ]


def show(report: dict[str, Any]) -> None:
    columns = ["load", "golem", "llama.cpp", "ratio", "lowest", "highest", "memory, golem", "llama.cpp"]
    for kind in dict.fromkeys(each["kind"] for each in report["results"]):
        rows = [
            [
                each["load"],
                f"{each['golem']:.0f}",
                f"{each['llama.cpp']:.0f}",
                *(f"{each[key]:.2f}" for key in ("ratio", "lowest", "highest")),
                *(_figures.mebibytes(each[f"{side}_peak_bytes"]) for side in ("golem", "llama.cpp")),
            ]
            for each in report["results"]
            if each["kind"] == kind
        ]
        title = f"{kind}, {report['threads']} threads, positions a second, medians of {report['rounds']} rounds"
        _figures.print_table(title, columns, rows, report["notes"])


def main() -> None:
    options = _figures.of_made_files((__doc__ or "").split("\n")[0], KINDS, KINDS)
    report = run(options)
    if options.json:
        _figures.print_json(report)
    else:
        show(report)


if __name__ == "__main__":
    main()
