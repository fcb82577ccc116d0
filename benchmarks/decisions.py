"""Typed decisions against PyTorch: 1, 4 and 32 questions of a request, in the shapes of the published checkpoints.

The weights are random and the same on both sides; the sequences have the same lengths.  golem runs in this process,
PyTorch in another, and they take turns in every round.  Making the sequences and HTTP are in neither side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import _figures
import numpy as np
from _quiet import Quiet
from golem_laya.checkpoint import Checkpoint, Config, every_so_many
from golem_laya.decider import Asked, Decider
from golem_laya.questions import Question
from golem_laya.sequences import Fed

from golem_core import open_device

SHAPES = {
    "english": Config(50368, 1024, 28, 16, 2624, 1e-5, every_so_many(28, 3), 64, 160_000.0, 10_000.0, 2),
    "multilingual": Config(256000, 768, 22, 12, 1152, 1e-5, every_so_many(22, 3), 64, 160_000.0, 160_000.0, 2),
}
"""The large English encoder and the base multilingual one."""

REQUESTS = {1: [82], 4: [82, 81, 81, 81], 32: [82, 81, 81, 81] * 8}
"""Lengths of the sequences of a request with so many questions."""

NOTES = ("Seconds of one request. PyTorch computes in float32; golem keeps the weights in their 16 bits.",)


def write(folder: Path, cfg: Config) -> None:
    """A checkpoint of random weights with a tokenizer of 256 bytes, as the published ones are laid out."""
    (folder / "encoder").mkdir(parents=True)
    (folder / "tokenizer").mkdir()
    random, at, header, chunks = np.random.default_rng(1), 0, {}, []
    for spec in cfg.tensors():
        inputs = spec.shape[-1] if len(spec.shape) > 1 else 0
        noise = random.standard_normal(spec.shape, np.float32)
        values = (
            noise / np.sqrt(inputs) if inputs else noise * 0.02 + ("norm" in spec.name or "r.0.weight" in spec.name)
        )
        chunks.append(values.astype(np.float16).tobytes())
        offsets = [at, at + len(chunks[-1])]
        header[spec.name] = {"dtype": "F16", "shape": list(spec.shape), "data_offsets": offsets}
        at = offsets[1]
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.writelines([len(text).to_bytes(8, "little"), text, *chunks])
    rotation = lambda base: {"rope_type": "default", "rope_theta": base}
    encoder = {
        "hidden_size": cfg.width,
        "num_hidden_layers": cfg.layers,
        "num_attention_heads": cfg.heads,
        "intermediate_size": cfg.ffn,
        "vocab_size": cfg.vocabulary,
        "layer_types": ["full_attention" if whole else "sliding_attention" for whole in cfg.whole],
        "local_attention": 2 * cfg.window,
        "rope_parameters": {
            "full_attention": rotation(cfg.global_base),
            "sliding_attention": rotation(cfg.local_base),
        },
        "pad_token_id": 0,
    }
    (folder / "encoder" / "config.json").write_text(json.dumps(encoder))
    settings = {"head_layers": cfg.head_layers, "max_len": 1024, "head_max_len": 256, "temperature": [1.0, 1.0, 1.0]}
    (folder / "rl_agent_config.json").write_text(json.dumps(settings))
    _tokenizer(folder / "tokenizer")


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


@dataclass
class Side:
    """One way to answer: from the lengths of a request's sequences to the seconds that it took."""

    name: str
    answer: Callable[[Sequence[int]], float]


def golem(decider: Decider) -> Side:
    question = Question("q", "choice", "", (), (), {})

    def answer(lengths: Sequence[int]) -> float:
        random = np.random.default_rng(len(lengths))
        asked = [Asked(question, Fed(random.integers(10, 250, each).tolist(), [8, 14, 20])) for each in lengths]
        start = time.perf_counter()
        for _ in decider.passes(asked):
            pass
        return time.perf_counter() - start

    return Side("golem", answer)


def pytorch(process: subprocess.Popen[str]) -> Side:
    assert process.stdin is not None and process.stdout is not None
    given, said = process.stdin, process.stdout

    def answer(lengths: Sequence[int]) -> float:
        given.write(json.dumps(list(lengths)) + "\n")
        given.flush()
        return float(said.readline())

    return Side("PyTorch", answer)


def run(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one shape, and return the record that is printed."""
    command = [
        options.peer_python,
        "-P",  # the modules beside the script are not for the peer
        str(Path(__file__).with_name("_decisions_peer.py")),
        str(folder),
        str(options.threads),
    ]
    quiet = Quiet(options.quiet)
    decider = Decider(Checkpoint.open(folder), open_device({"device": "cpu", "threads": options.threads}))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"{options.peer_python} does not run PyTorch and transformers")
        sides, series = [golem(decider), pytorch(process)], {}
        for number in range(-1, options.rounds):
            for questions in options.questions:
                lengths = REQUESTS[questions]
                for side in _figures.in_turn(sides, number):
                    seconds = quiet.measure(lambda: side.answer(lengths), lambda: [process])  # noqa: B023
                    if number >= 0:
                        series.setdefault((questions, side.name), []).append(seconds)
        process.stdin.close()
    decider.close()
    results = []
    for questions in options.questions:
        lengths = REQUESTS[questions]
        ours, theirs = series[questions, "golem"], series[questions, "PyTorch"]
        rounds = [other / mine for mine, other in zip(ours, theirs, strict=True)]
        results.append({
            "questions": questions,
            "positions": sum(lengths),
            "golem": round(median(ours), 4),
            "PyTorch": round(median(theirs), 4),
            "ratio": round(median(theirs) / median(ours), 3),
            "lowest": round(min(rounds), 3),
            "highest": round(max(rounds), 3),
        })  # fmt: skip
    return {"shape": name, "threads": options.threads, "rounds": options.rounds, "results": results, "notes": NOTES}


def main() -> None:
    parser = _figures.arguments((__doc__ or "").split("\n")[0], rounds=5)
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"default {','.join(SHAPES)}")
    parser.add_argument(
        "--questions", type=_figures.counts, default=list(REQUESTS), help="of a request: 1, 4 or 32 (default all)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the checkpoints are or will be, and stay")
    options = parser.parse_args()
    if options.peer_python is None:
        parser.error("--peer-python names a Python with torch, transformers and safetensors")
    if not set(options.questions) <= REQUESTS.keys():
        parser.error(f"--questions takes {', '.join(map(str, REQUESTS))}")
    for name in options.shapes.split(","):
        folder = options.keep or Path(mkdtemp(prefix="laya-"))
        try:
            if not (folder / name).exists():
                write(folder / name, SHAPES[name])
            report = run(name, folder / name, options)
        finally:
            if options.keep is None:
                shutil.rmtree(folder)
        if options.json:
            _figures.print_json(report)
            continue
        _figures.print_table(
            f"{name} shape, {options.threads} threads, medians of {options.rounds} rounds",
            ["questions", "positions", "golem", "PyTorch", "ratio", "lowest", "highest"],
            (
                [
                    str(each["questions"]),
                    str(each["positions"]),
                    f"{each['golem']:.3f} s",
                    f"{each['PyTorch']:.3f} s",
                    f"{each['ratio']:.2f}",
                    f"{each['lowest']:.2f}",
                    f"{each['highest']:.2f}",
                ]
                for each in report["results"]
            ),
            report["notes"],
        )


if __name__ == "__main__":
    main()
