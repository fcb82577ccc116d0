"""The core's own parts, registered through the hooks that every plugin uses: the CPU device, the sampler
stages and the standard endpoints.  Each is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from golem_core.hookspecs import DeviceType, Part, hookimpl

if TYPE_CHECKING:
    import click

    from golem_core.hookspecs import Loaded
    from golem_core.sampling import SamplerStage
    from golem_core.server.app import Server


def _probe_cpu() -> str:
    import os
    import platform

    from golem_core.cpu.target import Target

    return f"{platform.machine()}, {os.cpu_count()} processors, kernels for {Target.host().paths[0]}"


def _open_cpu(options: Mapping[str, Any]) -> Any:
    from golem_core.cpu.device import CpuDevice

    return CpuDevice(threads=options.get("threads"), kv=options.get("kv", "f16"))


@hookimpl
def golem_devices() -> Iterable[DeviceType]:
    return [DeviceType("cpu", _probe_cpu, _open_cpu)]


@hookimpl
def golem_samplers() -> Iterable[SamplerStage]:
    from golem_core import sampling

    return sampling.STAGES


def _open_embedder(options: Mapping[str, Any]) -> Loaded:
    from golem_core.server.embedding import open_embedder

    return open_embedder(options)


@hookimpl
def golem_parts() -> Iterable[Part]:
    return [Part("embed", _open_embedder, paths=("/v1/embeddings", "/api/embed", "/api/embeddings"))]


@hookimpl
def golem_endpoints(server: Server) -> Iterable[Any]:
    from golem_core.server import health, models, ollama_models, openapi, refused

    handlers = [*health.handlers(server), *models.handlers(server), *refused.handlers(), *openapi.handlers(server)]
    handlers += ollama_models.handlers(server)
    from golem_core.hub import hub, routes

    handlers += routes.handlers(hub.hub_of(server))
    from golem_core.server.embedding import embedder_of

    embedder = embedder_of(server)
    if server.chat is not None or embedder is not None:
        from golem_core.server import monitoring

        handlers += monitoring.handlers(server)
    if server.chat is not None:
        from golem_core.server import ollama, openai_chat, tokens

        handlers += [*openai_chat.handlers(server), *ollama.handlers(server), *tokens.handlers(server)]
    if embedder is not None:
        from golem_core.server import ollama_embed, openai_embeddings

        handlers += [*openai_embeddings.handlers(embedder), *ollama_embed.handlers(embedder)]
    return handlers


@hookimpl
def golem_commands(cli: click.Group) -> None:
    from golem_core.hub.commands import extension

    cli.add_command(extension)
