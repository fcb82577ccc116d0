"""The core's own parts, registered through the hooks that every plugin uses: the CPU device, the sampler
stages and the standard endpoints.  Each is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_core.hookspecs import DeviceType, hookimpl

if TYPE_CHECKING:
    import click

    from golem_core.sampling import SamplerStage
    from golem_core.server.app import Server


def _probe_cpu() -> str:
    import os
    import platform

    from golem_core.cpu.target import Target

    return f"{platform.machine()}, {os.cpu_count()} processors, kernels for {Target.host().paths[0]}"


def _open_cpu(options: Mapping[str, Any]) -> Any:
    from golem_core.cpu.device import CpuDevice

    return CpuDevice(threads=options.get("threads"))


@hookimpl
def golem_devices() -> Iterable[DeviceType]:
    return [DeviceType("cpu", _probe_cpu, _open_cpu)]


@hookimpl
def golem_samplers() -> Iterable[SamplerStage]:
    from golem_core import sampling

    return sampling.STAGES


@hookimpl
def golem_endpoints(server: Server) -> Iterable[Any]:
    from golem_core.server import health, models, ollama_models, openapi, refused

    handlers = [*health.handlers(server), *models.handlers(server), *refused.handlers(), *openapi.handlers(server)]
    handlers += ollama_models.handlers(server)
    from golem_core.hub import hub, routes

    handlers += routes.handlers(hub.hub_of(server))
    if server.chat is not None:
        from golem_core.server import monitoring, ollama, openai_chat, tokens

        handlers += [
            *openai_chat.handlers(server),
            *ollama.handlers(server),
            *monitoring.handlers(server),
            *tokens.handlers(server),
        ]
    return handlers


@hookimpl
def golem_commands(cli: click.Group) -> None:
    from golem_core.hub.commands import extension

    cli.add_command(extension)
