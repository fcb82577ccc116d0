"""`golem decide`: the questions of a request, answered once on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from golem_core import GolemError, LoadProgress, option_command

HELP = """Answer the questions of the request in FILE ("-": standard input), and print the answer as JSON.

The request is what POST /v1/systemone takes: an object with "state" and "questions"."""


def decide() -> click.Command:
    """The command."""
    model = click.Option(
        ["model", "-laya", "--laya", "-model", "--model"],
        metavar="DIR",
        envvar="GOLEM_LAYA",
        required=True,
        help="The checkpoint's directory.  [GOLEM_LAYA]",
    )
    return option_command("decide", HELP, run, [model, click.Argument(["request"], metavar="FILE")])


def run(options: Mapping[str, Any]) -> None:
    """Answer the request that the options name.  Raises GolemError."""
    model, request = options["model"], options["request"]
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
    with LoadProgress(f"loading {model}") as progress:
        decider = Decider.open(model, options, progress)
    try:
        found = answer(decider, decider.decide(state, questions))
    finally:
        decider.close()
    click.echo(json.dumps(found, ensure_ascii=False, indent=2))
