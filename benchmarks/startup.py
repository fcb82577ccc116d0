"""Starting a server and its memory, against llama.cpp's server with the same file, threads and context.

golem is started with an empty cache of kernels, as on the first start of a machine, and then with the cache that
this left.  The file is in the system's memory already, for both sides, and Python's modules are compiled, as an
installer leaves them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import _figures
import _servers
from _quiet import Quiet

CONTEXT = 4096

NOTES = (
    "Ready is from the start of the process to the first healthy answer, answered to the first token of an answer "
    "after that. Peak is what was resident at most until then, now what is resident after it; both count the pages "
    "of the file that are mapped. Starting Python and importing either package is part of it.",
    _figures.PEER_NOTE,
)


def start(launch: Callable[[], _servers.Server]) -> dict[str, Any]:
    """One start: seconds until ready and until the first token, and bytes of memory then."""
    with launch() as server:
        if server.name == "golem":
            path, body = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}
        else:
            path, body = "/v1/completions", {"prompt": "Hello"}
        server.post(path, {**body, "max_tokens": 1, "temperature": 0.0})
        return {
            "ready": server.ready_seconds,
            "answered": time.perf_counter() - server.started,
            "peak": server.memory("VmHWM"),
            "now": server.memory("VmRSS"),
        }


def run(path: Path, options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    python = _servers.peer_python(options.peer_python)
    size = {"slots": 1, "context": CONTEXT, "threads": options.threads}
    quiet = Quiet(options.quiet)
    starts: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        peer = partial(_servers.peer, python, path, **size)
        start(peer)  # reads the file and the libraries into the system's memory
        start(partial(_servers.golem, path, **size))  # and has Python compile its modules
        for number in range(options.rounds):
            cache = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            golem = partial(_servers.golem, path, **size, cache=cache)
            sides = [("golem, first start", golem), ("golem", golem), ("llama.cpp", peer)]
            order = sides if number % 2 == 0 else [sides[2], *sides[:2]]  # the first start fills the cache
            for name, launch in order:
                # A first start can't be repeated with the cache that it has filled, so it is not watched.
                first = name == "golem, first start"
                seen = start(launch) if first else quiet.measure(partial(start, launch))
                _figures.progress(f"round {number + 1}, {name}: {seen['ready']:.2f} s")
                starts.setdefault(name, []).append(seen)
    results = [{"start": name, **_medians(starts[name])} for name in ("golem, first start", "golem", "llama.cpp")]
    return {
        "model": path.name,
        "file_bytes": path.stat().st_size,
        "context": CONTEXT,
        "threads": options.threads,
        "rounds": options.rounds,
        "results": results,
        "disturbed": quiet.disturbed,
        "notes": [*NOTES, *_figures.disturbed(quiet.disturbed)],
    }


def _medians(starts: list[dict[str, Any]]) -> dict[str, Any]:
    def middle(key: str) -> float | None:
        values = [each[key] for each in starts if each[key] is not None]
        return median(values) if values else None

    return {
        "ready_seconds": middle("ready"),
        "ready_rounds": [round(each["ready"], 3) for each in starts],
        "answered_seconds": middle("answered"),
        "peak_bytes": middle("peak"),
        "resident_bytes": middle("now"),
    }


def show(report: dict[str, Any]) -> None:
    rows = [
        [
            each["start"],
            f"{each['ready_seconds']:.2f} s",
            f"{each['answered_seconds']:.2f} s",
            _figures.mebibytes(each["peak_bytes"]),
            "-" if each["peak_bytes"] is None else f"{each['peak_bytes'] / report['file_bytes']:.2f}",
            _figures.mebibytes(each["resident_bytes"]),
        ]
        for each in report["results"]
    ]
    title = f"{report['model']} ({_figures.mebibytes(report['file_bytes'])}), {report['threads']} threads, context of"
    _figures.print_table(
        f"{title} {report['context']}, medians of {report['rounds']} rounds",
        ["start", "ready", "answered", "peak", "of the file", "now"],
        rows,
        report["notes"],
    )


def markdown(report: dict[str, Any]) -> str:
    """A table's row: seconds until ready and peak memory of each start."""
    peak = lambda each: "" if each["peak_bytes"] is None else f", {_figures.mebibytes(each['peak_bytes'])}"
    cells = [f"{each['start']}: {each['ready_seconds']:.2f} s{peak(each)}" for each in report["results"]]
    return f"| {report['model'].removesuffix('.gguf')} | {' | '.join(cells)} |"


def main() -> None:
    options = _figures.arguments((__doc__ or "").split("\n")[0], rounds=3, markdown=True).parse_args()
    report = run(_figures.model_path(options.model), options)
    if options.json:
        _figures.print_json(report)
    elif options.markdown:
        print(markdown(report))
    else:
        show(report)


if __name__ == "__main__":
    main()
