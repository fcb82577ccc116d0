"""The hooks: the options -stt, -stt-parallel and -stt-weights, the part that they load, its endpoint, and the commands
`golem transcribe` and `golem listen`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_core import LoadProgress, Option, Part, hookimpl

if TYPE_CHECKING:
    import click

    from golem_core import Server
    from golem_kyutai.transcriber import Transcriber


def weights(text: str) -> str:
    """Read how the language model's matrices are kept."""
    if text.strip().lower() not in ("bf16", "q8_0", "q4_0"):
        raise ValueError("expected bf16, q8_0 or q4_0")
    return text.strip().lower()


def streams(text: str) -> int:
    """Read how many streams go together."""
    if not text.strip().isdecimal() or not 1 <= int(text.strip()) <= 256:
        raise ValueError("expected a whole number from 1 to 256")
    return int(text.strip())


@hookimpl
def golem_options() -> Iterable[Option]:
    return [
        Option("stt", "A Kyutai speech-to-text directory, for POST /v1/audio/transcriptions.", example="DIR"),
        Option("stt-parallel", "Sounds transcribed at once.", streams, 1, example="N"),
        Option(
            "stt-weights",
            "How the speech model's matrices are kept: bf16 as in the file, q8_0 or q4_0.",
            weights,
            "q8_0",
            example="TYPE",
        ),
    ]


@hookimpl
def golem_parts() -> Iterable[Part]:
    return [Part("stt", load, paths=("/v1/audio/transcriptions",))]


def load(options: Mapping[str, Any]) -> Transcriber:
    from golem_kyutai.transcriber import Transcriber

    with LoadProgress(f"loading {options['stt']}") as progress:
        return Transcriber.open(options["stt"], options, progress)


@hookimpl
def golem_endpoints(server: Server) -> Iterable[Any]:
    transcriber = server.parts.get("stt")
    if transcriber is None:
        return []
    from golem_kyutai.endpoint import handler

    return [handler(server, transcriber)]


@hookimpl
def golem_commands(cli: click.Group) -> None:
    from golem_kyutai.command import listen, transcribe

    cli.add_command(transcribe())
    cli.add_command(listen())
