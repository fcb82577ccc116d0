"""Reading a picture and a recording over HTTP: golem and llama.cpp, on files with random weights.

The projector has the shape of Gemma 4 E2B's, the language model its width and next to nothing else.  Files are written
to a folder in the user's cache, from where they are removed at the end unless --keep says otherwise.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import _figures
import _gemma_files
import _servers
import numpy as np
from _quiet import Quiet

KINDS = ("BF16", "F16", "Q8_0")
WIDTH, HEIGHT, SECONDS, RATE = 640, 426, 10, 16_000
CONTEXT = 2048

NOTES = (
    "A client's whole time, decoding and fitting included, less that of a text of as many positions; every picture and "
    "recording is new, so that none is cached.",
    _figures.PEER_NOTE,
)


@dataclass(frozen=True)
class Load:
    """Something to read: its bytes in round n, the positions that it becomes, and what is counted for a rate."""

    name: str
    unit: str
    amount: float
    positions: int
    made: Callable[[int], bytes]
    part: Callable[[str], dict[str, Any]]


def picture(number: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG", compress_level=1)
    return out.getvalue()


def recording(number: int) -> bytes:
    import soundfile

    out = io.BytesIO()
    noise = np.random.default_rng(number).normal(0, 0.1, SECONDS * RATE).astype(np.float32)
    soundfile.write(out, noise, RATE, format="WAV")
    return out.getvalue()


def seen(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def heard(data: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


LOADS = (
    Load(f"a picture of {WIDTH} × {HEIGHT}", "pictures a minute", 60, 117, picture, seen),
    Load(f"a recording of {SECONDS} seconds", "seconds a second", SECONDS, 25 * SECONDS, recording, heard),
)


def text(count: int, number: int) -> str:
    """A text of `count` tokens."""
    return "".join(np.random.default_rng([count, number]).choice(list("abcdefghijklmnopqr"), count))


def ask_golem(server: _servers.Server, load: Load, data: bytes | None, number: int) -> float:
    """Seconds until the first token after a medium, or after a text as long where there is none."""
    content: Any = text(load.positions, number)
    if data is not None:
        content = [load.part(base64.b64encode(data).decode())]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "temperature": 0}
    return timed(server, "/v1/chat/completions", body, lambda told: told["usage"]["prompt_tokens"], load)


def ask_peer(marker: str, server: _servers.Server, load: Load, data: bytes | None, number: int) -> float:
    prompt: Any = text(load.positions, number)
    if data is not None:
        prompt = {"prompt_string": marker, "multimodal_data": [base64.b64encode(data).decode()]}
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": False}
    return timed(server, "/completion", body, lambda told: told["tokens_evaluated"], load)


def timed(
    server: _servers.Server, path: str, body: Mapping[str, Any], count: Callable[[Any], int], load: Load
) -> float:
    start = time.perf_counter()
    told = server.post(path, body)
    seconds = time.perf_counter() - start
    if not load.positions <= count(told) <= load.positions + 40:
        raise SystemExit(f"{server.name} read {count(told)} positions, not about {load.positions}")
    return seconds


def run(options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    python = _servers.peer_python(options.peer_python)
    quiet = Quiet(options.quiet)
    results: list[dict[str, Any]] = []
    options.folder.mkdir(parents=True, exist_ok=True)
    files = [options.folder / "gemma4-e2b-width.gguf"]
    try:
        written(files[0], _gemma_files.write_model)
        for kind in options.kinds:
            files.append(options.folder / f"mmproj-e2b-random-{kind}.gguf")
            written(files[-1], partial(_gemma_files.write_projector, kind=kind))
            results += measure(files[0], files[-1], kind, python, quiet, options)
            if not options.keep:
                files.pop().unlink()
    finally:
        for path in [] if options.keep else files:
            path.unlink(missing_ok=True)
    return {
        "threads": options.threads,
        "rounds": options.rounds,
        "flash": options.flash,
        "results": results,
        "disturbed": quiet.disturbed,
        "notes": [*NOTES, *_figures.disturbed(quiet.disturbed)],
    }


def written(path: Path, write: Callable[[Path], None]) -> None:
    if not path.exists():
        _figures.progress(f"writing {path}")
        part = path.with_suffix(".part")
        write(part)
        part.rename(path)


def measure(model: Path, projector: Path, kind: str, python: str, quiet: Quiet, options: Any) -> list[dict[str, Any]]:
    """The figures of both loads with one file."""
    rates: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        settings: dict[str, Any] = {"slots": 1, "context": CONTEXT, "threads": options.threads, "projector": projector}
        ours = stack.enter_context(_servers.golem(model, **settings))
        theirs = stack.enter_context(_servers.peer(python, model, flash=options.flash, **settings))
        asks = {ours.name: ask_golem, theirs.name: partial(ask_peer, theirs.get("/props")["media_marker"])}
        sides = (ours, theirs)

        def read(side: _servers.Server, load: Load, number: int) -> float:
            """The seconds that a medium takes more than text."""
            ask, data = asks[side.name], load.made(number)
            more = quiet.measure(partial(ask, side, load, data, number), lambda: [each.process for each in sides])
            less = quiet.measure(partial(ask, side, load, None, number), lambda: [each.process for each in sides])
            return more - less

        for side in sides:
            for load in LOADS:
                read(side, load, 1 << 20)
        for number in range(options.rounds):
            for load in LOADS:
                for side in _figures.in_turn(sides, number):
                    seconds = read(side, load, number)
                    _figures.progress(f"{kind}, round {number + 1}, {load.name}, {side.name}: {seconds:.2f} s")
                    rates.setdefault((load.name, side.name), []).append(load.amount / seconds)
        memory = {"golem_peak_bytes": ours.memory(), "llama.cpp_peak_bytes": theirs.memory()}
    return [
        {"kind": kind, "load": load.name, "unit": load.unit}
        | _figures.compared(rates[load.name, ours.name], rates[load.name, theirs.name])
        | memory
        for load in LOADS
    ]


def show(report: dict[str, Any]) -> None:
    columns = ["load", "unit", "golem", "llama.cpp", "ratio", "lowest", "highest", "memory, golem", "llama.cpp"]
    for kind in dict.fromkeys(each["kind"] for each in report["results"]):
        rows = [
            [
                each["load"],
                each["unit"],
                *(f"{each[key]:.2f}" for key in ("golem", "llama.cpp", "ratio", "lowest", "highest")),
                *(_figures.mebibytes(each[f"{side}_peak_bytes"]) for side in ("golem", "llama.cpp")),
            ]
            for each in report["results"]
            if each["kind"] == kind
        ]
        title = f"{kind}, {report['threads']} threads, medians of {report['rounds']} rounds"
        _figures.print_table(title, columns, rows, report["notes"])


def main() -> None:
    options = _figures.of_made_files((__doc__ or "").split("\n")[0], KINDS, KINDS[:2])
    report = run(options)
    if options.json:
        _figures.print_json(report)
    else:
        show(report)


if __name__ == "__main__":
    main()
