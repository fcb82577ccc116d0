"""What a schema costs: tokens a second and time to the first token, with a schema as a ratio to without.

Both sides are golem's engine in this process, on the same model, and take turns in every round.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import _figures
from _quiet import Quiet

from golem_core import LoadedModel, load

PAUSE = 0.05
"""Seconds between measurements, in which the engine's threads go to sleep."""

SHAPES: dict[str, dict[str, Any]] = {
    "fields": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
    "counted": {"title": {"type": "string", "maxLength": 20}, "text": {"type": "string", "maxLength": 100}},
    "chosen": {"mood": {"enum": ["happy", "sad", "neutral"]}, "sure": {"type": "boolean"}, "score": {"type": "number"}},
    "open": {"name": {"type": "string"}},
}
"""The members of the objects that are asked for, by the name of the measurement; "open" may have further ones."""

WAYS: dict[str, dict[str, Any]] = {
    "likeliest": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "top_k": 64, "top_p": 0.95, "min_p": 0.05, "seed": 1},
}

NOTES = (
    "A ratio of 1 is no difference; below 1 the schema costs something. Tokens a second are counted from the first "
    "token to the last. For first tokens it is one over the seconds from the call to the first of them, compiling the "
    "schema included where it is new.",
)


def schema(shape: str, number: int) -> dict[str, Any]:
    """A list of objects too long to end; every number gives a schema that has not been compiled before."""
    members = {f"{name}{number or ''}": each for name, each in SHAPES[shape].items()}
    item = {"type": "object", "properties": members, "required": list(members), "additionalProperties": shape == "open"}
    return {"type": "array", "items": item, "minItems": 1000}


def generate(model: LoadedModel, prompt: list[int], tokens: int, way: str, asked: Any) -> float:
    """Tokens a second."""
    answer = model.generate(prompt, max_tokens=tokens, ignore_eos=True, logprobs=False, json_schema=asked, **WAYS[way])
    for _ in answer:
        pass
    facts = answer.generation
    assert facts.drawn == tokens
    return (facts.drawn - 1) / facts.draw_seconds


def first_token(model: LoadedModel, prompt: list[int], asked: Any) -> float:
    """One over the seconds until the first token is there, the prompt being new."""
    start = time.perf_counter()
    with model.generate(prompt, max_tokens=4, logprobs=False, json_schema=asked, temperature=0.0) as answer:
        next(answer)
        return 1 / (time.perf_counter() - start)


def run(path: Path, options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    quiet = Quiet(options.quiet)
    results = []
    with load(path, context=options.prompt + options.generate + 64, threads=options.threads) as model:
        started = time.perf_counter()
        first_token(model, _ids(model, 8, "table"), {"type": "boolean"})
        table = time.perf_counter() - started
        rates: dict[str, dict[str, list[float]]] = {}
        for number in range(-1, options.rounds):
            for name, act in _measurements(model, options, number).items():
                for side in _figures.in_turn(("with", "without"), number):
                    time.sleep(PAUSE)
                    rate = quiet.measure(partial(act, side == "with"))
                    if number >= 0:  # the round before the first one warms up
                        _figures.progress(f"round {number + 1} {name} {side}: {rate:.2f}")
                        rates.setdefault(name, {}).setdefault(side, []).append(rate)
    for name, sides in rates.items():
        rounds = [ours / other for ours, other in zip(sides["with"], sides["without"], strict=True)]
        facts = {side: round(median(values), 2) for side, values in sides.items()}
        ratios = {"ratio": median(rounds), "lowest": min(rounds), "highest": max(rounds)}
        results.append({"test": name, **facts, **{key: round(value, 3) for key, value in ratios.items()}})
    return {
        "model": path.name,
        "threads": options.threads,
        "rounds": options.rounds,
        "first_schema_seconds": round(table, 2),
        "results": results,
        "disturbed": quiet.disturbed,
        "notes": [
            *NOTES,
            f"The first schema of all took {table:.2f} s, in which the vocabulary's bytes are put in order.",
            *_figures.disturbed(quiet.disturbed),
        ],
    }


def _measurements(model: LoadedModel, options: Any, number: int) -> dict[str, Callable[[bool], float]]:
    """What is measured in a round, as functions of whether there is a schema."""
    acts: dict[str, Callable[[bool], float]] = {}
    prompt = _ids(model, 8, f"{number}")
    for way in WAYS:
        for shape in SHAPES:
            asked = schema(shape, 0)
            acts[f"tg{options.generate} {way}, {shape}"] = lambda held, way=way, asked=asked: generate(
                model, prompt, options.generate, way, asked if held else None
            )
    for known in (True, False):
        name = f"first token, {'known' if known else 'new'} schema"
        asked = schema("fields", 0 if known else number + 2)
        acts[name] = lambda held, name=name, asked=asked: first_token(
            model, _ids(model, options.prompt, f"{number} {name} {held}"), asked if held else None
        )
    return acts


def _ids(model: LoadedModel, length: int, seed: str) -> list[int]:
    """A random prompt, the same for the same seed."""
    source = random.Random(seed)
    size = model.model.vocab_size
    return [source.randrange(min(300, size // 2), min(size, 30000)) for _ in range(length)]


def main() -> None:
    parser = _figures.arguments((__doc__ or "").split("\n")[0], rounds=5)
    parser.add_argument("--prompt", type=_figures.positive, default=128, help="tokens of a prompt (default 128)")
    parser.add_argument("--generate", type=_figures.positive, default=64, help="tokens to generate (default 64)")
    options = parser.parse_args()
    if options.generate < 2:
        parser.error("--generate must be at least 2, since it is counted from the first token to the last")
    report = run(_figures.model_path(options.model), options)
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    _figures.print_table(
        f"{report['model']}, {report['threads']} threads, medians of {report['rounds']} rounds",
        ["test", "with", "without", "ratio", "lowest", "highest"],
        (
            [each["test"], *(f"{each[key]:.2f}" for key in ("with", "without", "ratio", "lowest", "highest"))]
            for each in report["results"]
        ),
        report["notes"],
    )


if __name__ == "__main__":
    main()
