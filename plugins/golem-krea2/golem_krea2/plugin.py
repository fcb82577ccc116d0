"""The hooks: the option -krea2 and those beside it, the part that they load, its endpoint, and `golem draw`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_core import GolemError, Option, Part, hookimpl

if TYPE_CHECKING:
    import click

    from golem_core import Server
    from golem_krea2.noise import Source
    from golem_krea2.studio import Studio

BOTH = ("serve", "draw")


def source(text: str) -> Source:
    """Read where the noise of steps comes from."""
    from golem_krea2 import noise

    return noise.source(text)


@hookimpl
def golem_options() -> Iterable[Option]:
    return [
        Option(
            "krea2", "A ComfyUI directory with Krea 2, for POST /v1/images/generations.", example="DIR", commands=BOTH
        ),
        Option("krea2-keep", "Leave Krea 2's networks on the device between pictures.", bool, False),
        Option("krea2-dit", "The DiT's file, in place of the one in -krea2.", example="FILE", commands=BOTH),
        Option(
            "krea2-encoder", "The text encoder's file, in place of the one in -krea2.", example="FILE", commands=BOTH
        ),
        Option("krea2-vae", "The VAE's file, in place of the one in -krea2.", example="FILE", commands=BOTH),
        Option(
            "krea2-tokenizer", "The tokenizer's folder, in place of the one in -krea2.", example="DIR", commands=BOTH
        ),
        Option("krea2-loras", "The folder of LoRAs, in place of the one in -krea2.", example="DIR", commands=BOTH),
        Option(
            "krea2-noise",
            "Whose noise the steps get: a card's with P multiprocessors (rocm:P, cuda:P), or a CPU's (cpu, cpu+1).",
            source,
            "rocm:32",
            example="SOURCE",
            commands=BOTH,
        ),
        Option("krea2-literal", "Read brackets in prompts as they stand, not as weights.", bool, False, commands=BOTH),
    ]


@hookimpl
def golem_parts() -> Iterable[Part]:
    return [Part("krea2", load, paths=("/v1/images/generations",))]


def load(options: Mapping[str, Any]) -> Studio:
    from golem_krea2.studio import Studio

    return Studio.open(options["krea2"], options)


@hookimpl
def golem_endpoints(server: Server) -> Iterable[Any]:
    studio = server.parts.get("krea2")
    if studio is None:
        for option in golem_options():
            value = server.options.get(option.name) or option.default
            if getattr(value, "text", value) != option.default:  # that of a source of noise is its name
                raise GolemError(f"-{option.name}: it goes with -krea2 DIR, and none is named")
        return []
    from golem_krea2.endpoint import handler

    return [handler(server, studio)]


@hookimpl
def golem_commands(cli: click.Group) -> None:
    from golem_krea2.command import draw

    cli.add_command(draw())
