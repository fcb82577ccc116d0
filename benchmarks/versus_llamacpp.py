"""Reading prompts and generating, against llama.cpp on the same file with the same threads.

Both sides take turns in every round, so that whatever else the machine does falls on both.  golem runs its engine in
this process; llama.cpp runs its server in another and reports its own timings.  It runs with flash attention and
without, and each figure is compared with whichever was faster.  How fast this machine reads memory is measured
between, and generating is also given as the share of that which reading the weights once for a token makes.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import _figures
import _servers
from _memory import read_rate, weights_bytes
from _quiet import Quiet

from golem_core import LoadedModel, load

SHORT = 8
"""Tokens of the prompt after which generation is measured."""

PAUSE = 0.05
"""Seconds between measurements, in which the other side's threads go to sleep."""

NOTES = (
    "Tokens a second of all conversations together. Reading ends with the first token drawn; generating is counted "
    "from the first token to the last. Both engines keep the time themselves, without HTTP, and both sides include "
    "drawing the likeliest token and making text of it.",
    _figures.PEER_NOTE,
)


FLASH = {"both": ("on", "off"), "on": ("on",), "off": ("off",), "auto": ("auto",)}
"""Settings of llama.cpp's flash attention that each choice of --flash runs."""


class Side(Protocol):
    """One engine."""

    name: str

    def read(self, prompt: list[int]) -> float:
        """Tokens a second at which a prompt is read that the engine holds nothing of."""
        ...

    def generate(self, prompts: list[list[int]], tokens: int) -> float:
        """Tokens a second at which answers of so many tokens are generated together, after short prompts."""
        ...


class Golem:
    """golem's engine in this process."""

    name = "golem"

    def __init__(self, model: LoadedModel):
        self.model = model

    def _answers(self, prompts: list[list[int]], tokens: int) -> list[Any]:
        settings: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "logprobs": False}
        answers = [self.model.generate(prompt, max_tokens=tokens, **settings) for prompt in prompts]
        for answer in answers:
            for _ in answer:
                pass
        return [answer.generation for answer in answers]

    def read(self, prompt: list[int]) -> float:
        (facts,) = self._answers([prompt], 1)
        assert facts.fed == len(prompt)
        return facts.fed / (facts.prompt_seconds + facts.draw_seconds)

    def generate(self, prompts: list[list[int]], tokens: int) -> float:
        return sum((facts.drawn - 1) / facts.draw_seconds for facts in self._answers(prompts, tokens))


class Peer:
    """llama.cpp's server."""

    def __init__(self, name: str, server: _servers.Server):
        self.name, self.server = name, server

    def _timings(self, prompts: list[list[int]], tokens: int) -> list[dict[str, Any]]:
        greedy = {"temperature": 0.0, "samplers": ["top_k"], "top_k": 1}
        body = {"prompt": prompts, "n_predict": tokens, "ignore_eos": True, "cache_prompt": False, **greedy}
        answers = self.server.post("/completion", body)
        return [each["timings"] for each in (answers if isinstance(answers, list) else [answers])]

    def read(self, prompt: list[int]) -> float:
        (facts,) = self._timings([prompt], 1)
        assert facts["prompt_n"] == len(prompt)
        return facts["prompt_n"] / facts["prompt_ms"] * 1e3

    def generate(self, prompts: list[list[int]], tokens: int) -> float:
        timings = self._timings(prompts, tokens)
        assert len(timings) == len(prompts) and all(facts["predicted_n"] == tokens for facts in timings)
        return sum((facts["predicted_n"] - 1) / facts["predicted_ms"] * 1e3 for facts in timings)


BRIEF = 32
"""Most tokens of a prompt in the round that warms up."""


def measure(side: Side, kind: str, size: int, tokens: int, ids: list[list[int]]) -> float:
    time.sleep(PAUSE)
    return side.read(ids[0][:size]) if kind == "pp" else side.generate([each[:SHORT] for each in ids[:size]], tokens)


def run(path: Path, options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    figures = [(f"pp{size}", "pp", size) for size in options.prompts]
    figures += [(f"tg{options.generate}" + (f" b{size}" if size > 1 else ""), "tg", size) for size in options.batches]
    slots = max(options.batches, default=1)
    context = max([*options.prompts, SHORT + options.generate]) + 64
    python = _servers.peer_python(options.peer_python)
    quiet = Quiet(options.quiet)
    with ExitStack() as stack:
        model = stack.enter_context(load(path, slots=slots, context=slots * context, threads=options.threads))
        token_bytes = weights_bytes(model.model.file)
        sides: list[Side] = [Golem(model)]
        for flash in FLASH[options.flash]:
            server = _servers.peer(python, path, slots=slots, context=context, threads=options.threads, flash=flash)
            sides.append(Peer(flash, stack.enter_context(server)))
        processes = [side.server.process for side in sides if isinstance(side, Peer)]
        series: dict[tuple[str, str], list[float]] = {}
        rates: list[float] = []
        for number in range(-1, options.rounds):
            rates.append(quiet.measure(partial(read_rate, options.threads), lambda: processes))
            for name, kind, size in figures:
                ids = _ids(model.model.vocab_size, context, slots, f"{number} {name}")
                if number < 0 and kind == "pp":
                    size = min(size, BRIEF)
                tokens = options.generate if number >= 0 else 2
                act = partial(measure, kind=kind, size=size, tokens=tokens, ids=ids)
                for side in _figures.in_turn(sides, number):
                    if number < 0:
                        act(side)  # to warm up
                        continue
                    rate = quiet.measure(partial(act, side), lambda: processes)
                    _figures.progress(f"round {number + 1} {name} {side.name}: {rate:.1f}")
                    series.setdefault((name, side.name), []).append(rate)
    results = []
    for name, _, _ in figures:
        flash = max(FLASH[options.flash], key=lambda each: median(series[name, each]))
        both = {f"flash_{each}": round(median(series[name, each]), 2) for each in FLASH[options.flash]}
        compared = _figures.compared(series[name, "golem"], series[name, flash])
        results.append({"test": name, "flash": flash, **compared, **both})
        if name == f"tg{options.generate}":
            results[-1]["of_read_rate"] = round(compared["golem"] * token_bytes / max(rates), 3)
    return {
        "model": path.name,
        "threads": options.threads,
        "rounds": options.rounds,
        "read_bytes_per_second": round(max(rates)),
        "token_bytes": token_bytes,
        "results": results,
        "disturbed": quiet.disturbed,
        "notes": [*NOTES, *_figures.disturbed(quiet.disturbed)],
    }


def _ids(vocabulary: int, length: int, number: int, seed: str) -> list[list[int]]:
    """Random prompts; those of a round are new to every side."""
    source = random.Random(seed)
    low, high = min(300, vocabulary // 2), min(vocabulary, 30000)
    return [[source.randrange(low, high) for _ in range(length)] for _ in range(number)]


def main() -> None:
    parser = _figures.arguments((__doc__ or "").split("\n")[0], rounds=5, markdown=True)
    parser.add_argument("--prompts", type=_figures.counts, default=[512, 128, 32], help="default 512,128,32")
    parser.add_argument("--generate", type=_figures.positive, default=64, help="tokens to generate (default 64)")
    parser.add_argument("--batches", type=_figures.counts, default=[1, 4, 8], help="default 1,4,8")
    parser.add_argument("--flash", choices=FLASH, default="both", help="llama.cpp's flash attention (default both)")
    options = parser.parse_args()
    if not options.prompts and not options.batches:
        parser.error("--prompts and --batches are both empty, so there is nothing to measure")
    if options.generate < 2:
        parser.error("--generate must be at least 2, since it is counted from the first token to the last")
    report = run(_figures.model_path(options.model), options)
    if options.json:
        _figures.print_json(report)
        return
    if options.markdown:
        print(markdown(report))
        return
    _figures.print_table(
        f"{report['model']}, {report['threads']} threads, medians of {report['rounds']} rounds",
        ["test", "golem", "llama.cpp", "flash", "ratio", "lowest", "highest"],
        (
            [
                each["test"],
                f"{each['golem']:.1f}",
                f"{each['llama.cpp']:.1f}",
                each["flash"],
                f"{each['ratio']:.2f}",
                f"{each['lowest']:.2f}",
                f"{each['highest']:.2f}",
            ]
            for each in report["results"]
        ),
        [*shares(report), *report["notes"]],
    )


def shares(report: dict[str, Any]) -> list[str]:
    """What generating has of the rate at which the machine reads memory."""
    rate = report["read_bytes_per_second"] / 1e9
    return [
        f"{each['test']}: {each['of_read_rate']:.0%} of the {rate:.1f} GB/s at which {report['threads']} threads read."
        for each in report["results"]
        if "of_read_rate" in each
    ]


def markdown(report: dict[str, Any]) -> str:
    """A table's row: ratios with the lowest and highest of single rounds, and golem's tokens a second."""
    cells = [
        f"{each['test']}: **{each['ratio']:.2f}** ({each['lowest']:.2f}–{each['highest']:.2f}), {each['golem']:.0f}"
        + (f", {each['of_read_rate']:.0%} of reading" if "of_read_rate" in each else "")
        for each in report["results"]
    ]
    return f"| {report['model'].removesuffix('.gguf')} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
