"""`golem bench`: how fast a model's compiled pass runs, without sampling and without a server.

Reading a prompt, generating after it, and generating for several conversations in one pass are each repeated and
given as the median with the slowest and the fastest repetition.  The result is a table, or JSON.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from golem_core import plugins
from golem_core.errors import GolemError, Unsupported
from golem_core.options import natural, positive

if TYPE_CHECKING:
    from golem_core.files import ModelFile
    from golem_core.graph import Columns, Pass

__all__ = ["OPTIONS", "Figure", "Workload", "bench", "measure", "tests"]

WARM_UP_STEPS = 8
"""Passes of one column a conversation that are run before generation is timed."""


@dataclass(frozen=True)
class Workload:
    """One thing to measure, after `depth` positions that are already held.

    With `prompt` tokens: reading them in one conversation.  With `generated` tokens: that many passes, each of one
    column for every one of `batch` conversations.
    """

    prompt: int = 0
    generated: int = 0
    batch: int = 1
    depth: int = 0

    @property
    def name(self) -> str:
        """As it stands in the table: "pp512", "tg64", "tg64 b4", "tg64 @ d1024"."""
        name = f"pp{self.prompt}" if self.prompt else f"tg{self.generated}"
        return name + (f" b{self.batch}" if self.batch > 1 else "") + (f" @ d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        """Tokens that one repetition feeds."""
        return self.prompt or self.generated * self.batch

    @property
    def positions(self) -> int:
        """Positions that one conversation must hold."""
        return self.depth + (self.prompt or self.generated)


@dataclass(frozen=True)
class Figure:
    """The seconds that each repetition of a test took."""

    test: Workload
    seconds: tuple[float, ...]

    @property
    def rates(self) -> list[float]:
        """Tokens a second of each repetition."""
        return [self.test.tokens / each for each in self.seconds]

    def record(self) -> dict[str, Any]:
        """The figure for JSON; rates are tokens a second, over all conversations together."""
        test = self.test
        return {
            "test": test.name,
            "prompt": test.prompt,
            "generated": test.generated,
            "batch": test.batch,
            "depth": test.depth,
            "tokens_per_second": round(median(self.rates), 3),
            "slowest": round(min(self.rates), 3),
            "fastest": round(max(self.rates), 3),
            "seconds": list(self.seconds),
        }


def tests(prompts: Sequence[int], generated: int, batches: Sequence[int], depth: int) -> list[Workload]:
    """What the command line asks for; a length of 0 leaves its tests out.  Raises GolemError if nothing is left."""
    reading = [Workload(prompt=length, depth=depth) for length in prompts if length]
    drawing = [Workload(generated=generated, batch=batch, depth=depth) for batch in batches if generated]
    if not reading and not drawing:
        raise GolemError("there is nothing to measure: -p and -n are both 0")
    return list(dict.fromkeys(reading + drawing))


# ---------------------------------------------------------------- running passes


def measure(compiled: Pass, test: Workload, vocabulary: int, repetitions: int) -> Figure:
    """Time a test on a pass that holds `test.batch` conversations of `test.positions`.

    Every repetition feeds the same random tokens to the same positions; one that is not counted comes first.
    """
    import numpy as np

    tokens = np.random.default_rng(0).integers(0, vocabulary, (test.batch, test.positions))
    for slot in range(test.batch):
        for columns in _reading(tokens[slot], slot, 0, test.depth, compiled.width):
            compiled.run(columns)
    if test.prompt:
        passes = list(_reading(tokens[0], 0, test.depth, test.positions, compiled.width))
        warm_up = passes
    else:
        passes = list(_drawing(tokens, test.depth, compiled.width))
        warm_up = passes[:WARM_UP_STEPS]
    for columns in warm_up:
        compiled.run(columns)
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        for columns in passes:
            compiled.run(columns)
        seconds.append(time.perf_counter() - start)
    return Figure(test, tuple(seconds))


def _reading(tokens: Any, slot: int, start: int, end: int, width: int) -> Iterator[Columns]:
    """Passes that feed positions `start` to `end` of one conversation, as wide as they may be.

    The last column of the last pass is scored, as for a prompt that is to be answered.
    """
    import numpy as np

    from golem_core.graph import Columns

    for first in range(start, end, width):
        position = np.arange(first, min(first + width, end))
        scored = [len(position) - 1] if position[-1] == end - 1 else []
        yield Columns(tokens[position], position, np.full(len(position), slot), np.array(scored, np.int64))


def _drawing(tokens: Any, start: int, width: int) -> Iterator[Columns]:
    """Passes of one scored column for each conversation, position after position."""
    import numpy as np

    from golem_core.graph import Columns

    batch, end = tokens.shape
    if batch > width:
        raise GolemError(f"-b {batch}: a pass of this device takes {width} columns")
    slots = np.arange(batch)
    for position in range(start, end):
        yield Columns(tokens[:, position], np.full(batch, position), slots, slots)


# ---------------------------------------------------------------- the command


class _Counts(click.ParamType):
    """Whole numbers with commas between them, or one of them; `least` is the smallest allowed."""

    name = "counts"

    def __init__(self, least: int, *, several: bool):
        self.read, self.several = natural if least == 0 else positive, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = value.removeprefix("=")  # "-n=5", which is read as -n with the value "=5"
        try:
            return tuple(self.read(each) for each in text.split(",")) if self.several else self.read(text)
        except ValueError as error:
            named = param.opts[0] if param else "a count"
            raise click.UsageError(f"{named} {value!r}: {error}") from None


def _option(name: str, letter: str, default: str | None, least: int, text: str, *, several: bool = False) -> Any:
    names = [name, *(dict.fromkeys(f"{dashes}{each}" for each in (letter, name) for dashes in ("-", "--")))]
    return click.Option(
        names,
        default=default,
        show_default=default is not None,
        metavar="N,N" if several else "N",
        type=_Counts(least, several=several),
        help=text,
    )


OPTIONS = [
    _option("prompt", "p", "512,128", 0, "Prompt lengths to read; 0 leaves this out.", several=True),
    _option("generate", "n", "64", 0, "Tokens to generate; 0 leaves this out."),
    _option("batch", "b", "1,4,8", 1, "Conversations that generate in one pass.", several=True),
    _option("depth", "d", "0", 0, "Positions held before each test."),
    _option("repetitions", "r", "5", 1, "Repetitions of each test."),
    click.Option(["short_threads", "-t", "--t"], metavar="N", type=_Counts(1, several=False), help="Same as -threads."),
    click.Option(["as_json", "-json", "--json"], is_flag=True, help="Write JSON instead of a table."),
]
"""The options of `golem bench` besides those that it shares with the other commands."""


def bench(options: Mapping[str, Any]) -> None:
    """Measure what `options` ask for and print it.  Raises GolemError for a model or device that can't be used."""
    wanted = tests(options["prompt"], options["generate"], options["batch"], options["depth"])
    path = Path(options["model"]) if options["model"] is not None else _default_model()
    report = run(path, wanted, options)
    if options["as_json"]:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        show(report)


def _default_model() -> Path:
    from golem_core.server.loading import default_model

    label, path = default_model()
    click.echo(f"no -model: measuring {label}; name another with -model FILE or GOLEM_MODEL", err=True)
    return path


def run(path: Path, wanted: Sequence[Workload], options: Mapping[str, Any]) -> dict[str, Any]:
    """Open the model on the device that `options` name, measure, and return the record that is printed."""
    from rich.console import Console

    from golem_core.engine.roles import ChatModel
    from golem_core.files import open_model

    kind = plugins.device(options["device"])
    own = {option.name for option in OPTIONS}
    settings = {name: value for name, value in options.items() if name not in own}
    settings["threads"] = options["short_threads"] or options["threads"]
    start = time.perf_counter()
    with open_model(path) as file:
        model = plugins.architecture(file.architecture).open(file)
        if not isinstance(model, ChatModel):
            raise Unsupported(f"{path} does not hold a conversation model")
        if beyond := [test.name for test in wanted if 0 < model.context_train < test.positions]:
            said = f"beyond the {model.context_train} positions that the model was trained on"
            click.echo(f"{', '.join(beyond)}: {said}", err=True)
        device = kind.opened(settings)
        try:
            slots = max(test.batch for test in wanted)
            compiled = device.compile(model.build(), slots=slots, context=max(test.positions for test in wanted))
            report = {
                "golem": plugins.version(),
                "model": path.name,
                "architecture": file.architecture,
                **_size(file),
                "device": device.name,
                "processor": kind.probed(),
                "threads": getattr(device, "threads", settings["threads"]),
                "width": compiled.width,
                "load_seconds": round(time.perf_counter() - start, 3),
                "repetitions": options["repetitions"],
                "results": [],
            }
            with Console(stderr=True).status("") as status:
                for test in wanted:
                    status.update(test.name)
                    figure = measure(compiled, test, model.vocab_size, options["repetitions"])
                    report["results"].append(figure.record())
        finally:
            device.close()
    return report


def _size(file: ModelFile) -> dict[str, Any]:
    """Parameters, bytes, and the bytes of each weight type, the commonest first."""
    kinds: Counter[str] = Counter()
    parameters = 0
    for name in file.weights:
        weight = file.weights[name]
        kinds[weight.type] += weight.nbytes
        parameters += prod(weight.shape)
    return {"parameters": parameters, "bytes": kinds.total(), "weights": dict(kinds.most_common())}


def show(report: Mapping[str, Any]) -> None:
    """Print a report as a heading and a table."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    kinds = ", ".join(f"{kind} {part / report['bytes']:.0%}" for kind, part in list(report["weights"].items())[:3])
    size = f"{report['parameters'] / 1e6:.1f} M parameters in {report['bytes'] / 2**20:.1f} MiB"
    threads = "" if report["threads"] is None else f", {report['threads']} thread{'s' * (report['threads'] > 1)}"
    console.print(f"{report['model']}: {size} ({kinds})", style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(f"on {report['device']} ({report['processor']}){threads}", markup=False, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("test")
    for column in ("tokens/s", "slowest", "fastest", "ms a pass"):
        table.add_column(column, justify="right")
    for result in report["results"]:
        passes = result["generated"] or -(-result["prompt"] // report["width"])
        milliseconds = median(result["seconds"]) / passes * 1e3
        rates = (f"{result[key]:.1f}" for key in ("tokens_per_second", "slowest", "fastest"))
        table.add_row(result["test"], *rates, f"{milliseconds:.2f}")
    console.print(table)
