"""What the benchmarks share: their arguments, rounds in which the sides take turns, and what is printed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")

PEER_NOTE = (
    "llama.cpp runs from the package xllamacpp, whose build is reported to be 5 to 15 % slower than one that is "
    "made for the machine."
)


def arguments(description: str, rounds: int, *, markdown: bool = False) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has, and --markdown for one that writes rows of tables."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, help="GGUF file; by default the installed model package")
    parser.add_argument("--threads", type=positive, default=2, help="threads of each side (default 2)")
    parser.add_argument("--rounds", type=positive, default=rounds, help=f"rounds to measure (default {rounds})")
    parser.add_argument("--peer-python", metavar="FILE", help="a Python that has xllamacpp; one is made if needed")
    parser.add_argument(
        "--quiet",
        type=positive,
        metavar="SECONDS",
        help="wait for moments in which nothing else runs, up to so long in all (Linux)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON instead of tables")
    if markdown:
        parser.add_argument("--markdown", action="store_true", help="write rows of a Markdown table instead")
    return parser


def of_made_files(description: str, kinds: Sequence[str], usual: Sequence[str]) -> argparse.Namespace:
    """The options of a benchmark that makes its files, each in some of `kinds` of weights, `usual` ones by default."""
    parser = arguments(description, rounds=3)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "golem" / "benchmarks"
    parser.add_argument("--folder", type=Path, default=cache, help=f"where the files are written (default {cache})")
    parser.add_argument("--keep", action="store_true", help="leave the files there for the next run")
    parser.add_argument(
        "--kinds",
        type=lambda given: given.split(","),
        default=list(usual),
        help=f"some of {','.join(kinds)} (default {','.join(usual)})",
    )
    parser.add_argument("--flash", choices=("on", "off", "auto"), default="auto", help="llama.cpp's flash attention")
    options = parser.parse_args()
    if options.model is not None:
        parser.error("--model: the files are made here, with random weights")
    if not set(options.kinds) <= set(kinds):
        parser.error(f"--kinds: expected some of {', '.join(kinds)}")
    return options


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return int(text)


def counts(text: str) -> list[int]:
    """Whole numbers of at least 1 with commas between them; "" is none."""
    return [positive(each) for each in text.split(",") if text]


def model_path(given: Path | None) -> Path:
    """The file to measure with; ends the program when there is none."""
    from golem_core.errors import GolemError
    from golem_core.server.loading import default_model

    try:
        path = given if given is not None else default_model()[1]
    except GolemError as error:
        raise SystemExit(str(error)) from None
    if not path.exists():
        raise SystemExit(f"{path}: there is no such file")
    return path


def in_turn(sides: Sequence[T], round: int) -> Iterator[T]:
    """The sides in an order that is turned around from one round to the next."""
    return iter(sides) if round % 2 == 0 else reversed(sides)


def disturbed(count: int) -> list[str]:
    """A note for measurements during which others used the machine."""
    return [f"{count} measurements were disturbed by other programs."] if count else []


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def compared(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Two series of rates measured in the same rounds, more being better.

    `ratio` is the median of ours over the median of theirs; `lowest` and `highest` are those of single rounds.
    """
    rounds = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {
        "golem": round(median(ours), 2),
        "llama.cpp": round(median(theirs), 2),
        "ratio": round(median(ours) / median(theirs), 3),
        "lowest": round(min(rounds), 3),
        "highest": round(max(rounds), 3),
        "golem_rounds": [round(each, 2) for each in ours],
        "llama.cpp_rounds": [round(each, 2) for each in theirs],
    }


def print_json(record: dict[str, Any]) -> None:
    print(json.dumps(record, indent=2, ensure_ascii=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """A table whose first column is text and whose others are figures, with notes under it."""
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=140)
    console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print()


def mebibytes(count: float | None) -> str:
    """Bytes as they stand in a table; "-" where they are not known."""
    return "-" if count is None else f"{count / 2**20:.0f} MiB"
