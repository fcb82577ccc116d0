"""The hooks: the option -laya, the part that it loads, its endpoint, and the command `golem decide`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_core import LoadProgress, Option, Part, hookimpl

if TYPE_CHECKING:
    import click

    from golem_core import Refusal, Server
    from golem_laya.decider import Decider


PATH = "/v1/systemone"


def envelope(refusal: Refusal) -> Mapping[str, Any]:
    """What every refusal looks like on this path, also where no checkpoint is loaded."""
    return {"detail": refusal.message}


@hookimpl
def golem_options() -> Iterable[Option]:
    return [Option("laya", "A Laya checkpoint's directory, for POST /v1/systemone.", example="DIR")]


@hookimpl
def golem_parts() -> Iterable[Part]:
    return [Part("laya", load, paths=(PATH,))]


def load(options: Mapping[str, Any]) -> Decider:
    from golem_laya.decider import Decider

    with LoadProgress(f"loading {options['laya']}") as progress:
        return Decider.open(options["laya"], options, progress)


@hookimpl
def golem_endpoints(server: Server) -> Iterable[Any]:
    server.envelopes[PATH] = envelope
    decider = server.parts.get("laya")
    if decider is None:
        return []
    from golem_laya.endpoint import handler

    return [handler(server, decider)]


@hookimpl
def golem_commands(cli: click.Group) -> None:
    from golem_laya.command import decide

    cli.add_command(decide())
