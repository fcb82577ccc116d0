"""`golem decide`: the questions of a request, answered once on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from golem_core import GolemError, LoadProgress


@click.command("decide")
@click.option(
    "model",
    *("-laya", "--laya", "-model", "--model"),
    metavar="DIR",
    envvar="GOLEM_LAYA",
    required=True,
    help="The checkpoint's directory.  [GOLEM_LAYA]",
)
@click.option(
    "device",
    "-device",
    "--device",
    metavar="NAME",
    envvar="GOLEM_DEVICE",
    default="cpu",
    help="The device that runs the model.  [GOLEM_DEVICE, default cpu]",
)
@click.option(
    "threads",
    "-threads",
    "--threads",
    type=click.IntRange(1),
    metavar="N",
    envvar="GOLEM_THREADS",
    help="Threads of the device; by default it decides.  [GOLEM_THREADS]",
)
@click.argument("request", metavar="FILE")
def decide(model: str, device: str, threads: int | None, request: str) -> None:
    """Answer the questions of the request in FILE ("-": standard input), and print the answer as JSON.

    The request is what POST /v1/systemone takes: an object with "state" and "questions".
    """
    from litestar.exceptions import HTTPException

    from golem_laya.decider import Decider
    from golem_laya.endpoint import answer, read

    try:
        data = sys.stdin.buffer.read() if request == "-" else Path(request).read_bytes()
        state, questions = read(data)
    except OSError as error:
        raise GolemError(f"{request}: cannot be read: {error.strerror or error}") from None
    except HTTPException as error:
        raise GolemError(f"{request}: {error.detail}") from None
    options: dict[str, Any] = {"device": device, "threads": threads}
    with LoadProgress(f"loading {model}") as progress:
        decider = Decider.open(model, options, progress)
    try:
        found = answer(decider, decider.decide(state, questions))
    finally:
        decider.close()
    click.echo(json.dumps(found, ensure_ascii=False, indent=2))
