"""Answering several clients at once, against llama.cpp's server with the same file, threads and slots.

Every client sends one request with a prompt of its own and reads the stream.  Both servers are given the same prompt
tokens, take turns in every round, and reuse whatever their slots still hold.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import _figures
import _servers
from _quiet import Quiet

from golem_core import ChatModel, ChatTemplate, open_model

WORDS = (
    "apple barn cloud dune ember field glass hill ink jar kite lamp mill net oak pond quilt road salt tree "
    "urn vine wall yarn zinc arch bell cave drum echo fern gate hook iron jump knot leaf moon nest"
)

NOTES = (
    "Tokens a second of all answers together, from the first request to the last token, prompts included. The first "
    "token is counted from the sending of the request. The prompt's tokens are the same for both; golem is sent the "
    "messages and writes them down with its chat template, llama.cpp is sent the tokens. Ready is from the start of "
    "the process to the first healthy answer; the memory is what was resident at most.",
    _figures.PEER_NOTE,
)


@dataclass(frozen=True)
class Prompt:
    """One request: the message, and the tokens that the chat template makes of it."""

    message: str
    tokens: list[int]


@dataclass
class Stream:
    """What a client saw: times in seconds of `time.perf_counter`, and tokens as the server counts them."""

    sent: float = 0.0
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0


class Prompts:
    """Messages of about `length` tokens, new ones for every round and client."""

    def __init__(self, path: Path, length: int):
        from golem_core import plugins

        self._file = open_model(path)
        self._length = length
        model = plugins.architecture(self._file.architecture).open(self._file)
        if not isinstance(model, ChatModel):
            raise SystemExit(f"{path} does not hold a conversation model")
        self._tokenizer = model.tokenizer
        self._template = model.template or self._fallback(model)

    def _fallback(self, model: ChatModel) -> ChatTemplate:
        if model.fallback_template is None:
            raise SystemExit(f"{model.name} has no chat template")
        named = [
            "" if each is None else self._tokenizer.token_text(each)
            for each in (self._tokenizer.bos, self._tokenizer.eos)
        ]
        return ChatTemplate(model.fallback_template, bos_token=named[0], eos_token=named[1])

    def make(self, seed: str) -> Prompt:
        source = random.Random(seed)
        message = f"{source.randrange(1000, 10000)}: write a very long story, with many details, about"
        while len(self._tokenizer.encode(message)) < self._length:
            message += " " + source.choice(WORDS.split())
        text = self._template.render([{"role": "user", "content": message}], enable_thinking=False)
        return Prompt(message, self._tokenizer.encode(text, parse_special=True))

    def close(self) -> None:
        self._file.close()


CUTS = {"top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""What a draw leaves out, on both sides, where the temperature isn't 0."""


def ask(server: _servers.Server, prompt: Prompt, asked: dict[str, Any], stream: Stream) -> None:
    """Send one request, with the fields `asked`, and read its answer to the end."""
    body: dict[str, Any] = {
        **asked,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if server.name == "golem":
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt.message}]
    else:
        path, body["prompt"] = "/v1/completions", prompt.tokens
    stream.sent = time.perf_counter()
    for event in server.stream(path, body):
        if stream.first is None and any(_texts(event)):
            stream.first = time.perf_counter()
        if usage := event.get("usage"):
            stream.tokens = usage["completion_tokens"]
            if usage["prompt_tokens"] != len(prompt.tokens):
                raise SystemExit(
                    f"{server.name} read {usage['prompt_tokens']} tokens of a prompt of {len(prompt.tokens)}"
                )
    stream.ended = time.perf_counter()


def _texts(event: dict[str, Any]) -> Iterator[str]:
    for choice in event.get("choices", []):
        yield choice.get("text") or choice.get("delta", {}).get("content") or ""


def together(server: _servers.Server, prompts: list[Prompt], asked: dict[str, Any]) -> list[Stream]:
    """One client for each prompt, all at the same time."""
    streams = [Stream() for _ in prompts]
    clients = [
        threading.Thread(target=ask, args=(server, prompt, asked, stream), daemon=True)
        for prompt, stream in zip(prompts, streams, strict=True)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if not all(stream.tokens for stream in streams):
        raise SystemExit(f"{server.name}: a client was given no answer")
    return streams


def rate(streams: list[Stream]) -> float:
    """Tokens a second of all streams together."""
    return sum(each.tokens for each in streams) / (max(s.ended for s in streams) - min(s.sent for s in streams))


def run(path: Path, options: Any) -> dict[str, Any]:
    """Measure and return the record that is printed."""
    python = _servers.peer_python(options.peer_python)
    slots = max(options.slots, *options.clients)
    size = {"slots": slots, "context": options.length * 2 + options.tokens + 128, "threads": options.threads}
    quiet = Quiet(options.quiet)
    asked = {"max_tokens": options.tokens, "temperature": options.temperature}
    asked |= CUTS if options.temperature else {}
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        prompts = Prompts(path, options.length)
        stack.callback(prompts.close)
        ours = stack.enter_context(_servers.golem(path, **size))
        theirs = stack.enter_context(_servers.peer(python, path, flash=options.flash, **size))
        sides = (ours, theirs)
        for side in sides:
            together(side, [prompts.make("warm-up")], {"max_tokens": 8, "temperature": 0.0})
        streams: dict[tuple[int, str], list[list[Stream]]] = {}
        for number in range(options.rounds):
            for clients in options.clients:
                given = [prompts.make(f"{number} {clients} {client}") for client in range(clients)]
                for side in _figures.in_turn(sides, number):
                    act = partial(together, side, given, asked)
                    seen = quiet.measure(act, lambda: [each.process for each in sides])
                    _figures.progress(f"round {number + 1}, {clients} clients, {side.name}: {rate(seen):.1f}")
                    streams.setdefault((clients, side.name), []).append(seen)
        for clients in options.clients:
            mine, other = streams[clients, ours.name], streams[clients, theirs.name]
            compared = _figures.compared([rate(each) for each in mine], [rate(each) for each in other])
            results.append(
                {
                    "clients": clients,
                    **compared,
                    "golem_first_token_seconds": _first(mine),
                    "llama.cpp_first_token_seconds": _first(other),
                    "golem_tokens": _tokens(mine),
                    "llama.cpp_tokens": _tokens(other),
                }
            )
        servers = {
            name: {"ready_seconds": round(side.ready_seconds, 3), "peak_bytes": side.memory()}
            for name, side in zip(("golem", "llama.cpp"), sides, strict=True)
        }
    return {
        "model": path.name,
        "file_bytes": path.stat().st_size,
        "threads": options.threads,
        "slots": slots,
        "tokens": options.tokens,
        "temperature": options.temperature,
        "rounds": options.rounds,
        "flash": options.flash,
        "results": results,
        "servers": servers,
        "disturbed": quiet.disturbed,
        "notes": [*NOTES, *_figures.disturbed(quiet.disturbed)],
    }


def _first(rounds: list[list[Stream]]) -> float:
    return round(median(each.first - each.sent for streams in rounds for each in streams if each.first), 4)


def _tokens(rounds: list[list[Stream]]) -> float:
    """The mean length of an answer."""
    lengths = [each.tokens for streams in rounds for each in streams]
    return round(sum(lengths) / len(lengths), 1)


def show(report: dict[str, Any]) -> None:
    milliseconds = lambda seconds: f"{seconds * 1e3:.0f} ms"
    columns = ["clients", "golem", "llama.cpp", "ratio", "lowest", "highest"]
    columns += ["first token, golem", "llama.cpp", "answer, golem", "llama.cpp"]
    rows = [
        [
            str(each["clients"]),
            f"{each['golem']:.1f}",
            f"{each['llama.cpp']:.1f}",
            *(f"{each[key]:.2f}" for key in ("ratio", "lowest", "highest")),
            *(milliseconds(each[f"{side}_first_token_seconds"]) for side in ("golem", "llama.cpp")),
            *(f"{each[f'{side}_tokens']:.0f}" for side in ("golem", "llama.cpp")),
        ]
        for each in report["results"]
    ]
    title = f"{report['model']}, {report['threads']} threads, {report['slots']} slots, answers of {report['tokens']}"
    _figures.print_table(f"{title} tokens, medians of {report['rounds']} rounds", columns, rows)
    rows = [
        [name, f"{each['ready_seconds']:.2f} s", _figures.mebibytes(each["peak_bytes"])]
        for name, each in report["servers"].items()
    ]
    title = f"starting and memory; the file has {_figures.mebibytes(report['file_bytes'])}"
    _figures.print_table(title, ["server", "ready", "memory"], rows, report["notes"])


def markdown(report: dict[str, Any]) -> str:
    """A table's row: ratios for each number of clients, and the time to the first token with the most of them."""
    last = report["results"][-1]
    first = " against ".join(f"{last[f'{side}_first_token_seconds']:.2f} s" for side in ("golem", "llama.cpp"))
    cells = [f"{each['clients']}: {each['ratio']:.2f}" for each in report["results"]]
    return f"| {report['model'].removesuffix('.gguf')} | {' | '.join(cells)} | {first} |"


def main() -> None:
    parser = _figures.arguments((__doc__ or "").split("\n")[0], rounds=3, markdown=True)
    parser.add_argument("--clients", type=_figures.counts, default=[1, 2, 4, 8], help="default 1,2,4,8")
    parser.add_argument("--slots", type=_figures.positive, default=8, help="slots of each server (default 8)")
    parser.add_argument("--tokens", type=_figures.positive, default=64, help="tokens of an answer (default 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="of draws (default 0: the likeliest token)")
    parser.add_argument("--length", type=_figures.positive, default=32, help="tokens of a message (default 32)")
    parser.add_argument("--flash", choices=("on", "off", "auto"), default="auto", help="llama.cpp's flash attention")
    options = parser.parse_args()
    if not options.clients:
        parser.error("--clients is empty, so there is nothing to measure")
    report = run(_figures.model_path(options.model), options)
    if options.json:
        _figures.print_json(report)
    elif options.markdown:
        print(markdown(report))
    else:
        show(report)


if __name__ == "__main__":
    main()
