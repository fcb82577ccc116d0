"""What is installed: finding plugins, asking them, and remembering what failed.

Plugins come from the entry-point group `golem`; the core's own parts are one more plugin.  A plugin that
cannot be imported, or whose hook raises, is recorded with its reason and the rest run.  GOLEM_PLUGINS=a,b
restricts loading to the plugins or distributions of those names.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pluggy

from golem_core import builtin, hookspecs
from golem_core.errors import GolemError, Unsupported
from golem_core.options import CORE_OPTIONS, Option

if TYPE_CHECKING:
    import click

    from golem_core.engine.roles import Architecture
    from golem_core.hookspecs import DefaultModel, DeviceType, Part
    from golem_core.sampling import SamplerStage

__all__ = [
    "Plugin",
    "Plugins",
    "architecture",
    "default_models",
    "device",
    "device_options",
    "installed",
    "manager",
    "options",
    "reason",
    "sampler_stages",
    "version",
]

CORE = "golem-core"
_OPTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
HINT = "the table of packages in golem's README tells which package brings what"


@dataclass
class Plugin:
    """One plugin: where it comes from, the hooks it implements, and what went wrong with it."""

    name: str
    distribution: str | None = None
    version: str | None = None
    hooks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        """How to name it to a user: its distribution, or its own name."""
        return self.distribution or self.name

    def fail(self, reason: str) -> None:
        if reason not in self.failures:
            self.failures.append(reason)


class Plugins:
    """The plugins of one process.

    `entry_points` stands in for what is installed, and `only` for GOLEM_PLUGINS (None: no restriction).
    Raises GolemError when `only` names something that is not installed.
    """

    def __init__(
        self, entry_points: Iterable[importlib.metadata.EntryPoint] | None = None, only: Sequence[str] | None = None
    ):
        self.manager = pluggy.PluginManager("golem")
        self.manager.add_hookspecs(hookspecs)
        self.found: list[Plugin] = []
        self._add(Plugin(CORE, CORE, version()), lambda: builtin)
        if entry_points is None:
            entry_points = importlib.metadata.entry_points(group="golem")
        points = sorted(entry_points, key=lambda point: (point.name, point.dist.name if point.dist else ""))
        for point in _restricted(points, only):
            distribution = point.dist
            described = Plugin(
                point.name, distribution.name if distribution else None, distribution.version if distribution else None
            )
            self._add(described, point.load)

    def _add(self, plugin: Plugin, load: Callable[[], Any]) -> None:
        if any(plugin.name == other.name for other in self.found):
            plugin.name = f"{plugin.name} ({plugin.distribution})"
        self.found.append(plugin)
        try:
            loaded = load()
            self.manager.register(loaded, plugin.name)
        except (Exception, SystemExit) as error:  # a stranger's import may raise anything; it is reported by name
            plugin.fail(reason(error))
            if self.manager.has_plugin(plugin.name):
                self.manager.unregister(name=plugin.name)
            return
        callers = self.manager.get_hookcallers(loaded) or []
        for caller in callers:
            if caller.spec is None and not all(impl.optionalhook for impl in _of(caller, loaded)):
                plugin.fail(f"implements {caller.name}, which is not a hook of golem")
        plugin.hooks = sorted(caller.name for caller in callers if caller.spec is not None)
        if not plugin.hooks and not plugin.failures:
            plugin.fail("implements no hook; its functions need golem_core.hookimpl")

    def described(self, name: str) -> Plugin:
        """The record of the plugin of that name; one registered by hand gets a record when first asked for."""
        for plugin in self.found:
            if plugin.name == name:
                return plugin
        plugin = Plugin(name)
        self.found.append(plugin)
        return plugin

    def ask(self, hook: str, kind: type | None = None, **arguments: Any) -> list[tuple[Plugin, Any]]:
        """Call one hook of every plugin, in order, and return (plugin, record) pairs.

        A hook that raises, or returns something that is not a list of `kind`, is recorded as that plugin's
        failure and the others are asked all the same.
        """
        answers: list[tuple[Plugin, Any]] = []
        for impl in getattr(self.manager.hook, hook).get_hookimpls():
            plugin = self.described(impl.plugin_name)
            answers += [(plugin, record) for record in self._asked(plugin, impl, hook, kind, arguments)]
        return answers

    def _asked(
        self, plugin: Plugin, impl: pluggy.HookImpl, hook: str, kind: type | None, arguments: Mapping[str, Any]
    ) -> list[Any]:
        """The records that one plugin returns; none where its hook fails, which is recorded."""
        try:
            records: Any = impl.function(*(arguments[name] for name in impl.argnames))
            records = [] if records is None else list(records)
            for record in records:
                if kind is not None and not isinstance(record, kind):
                    raise TypeError(f"returned {record!r}, which is not a record of type {kind.__name__}")
        except (Exception, SystemExit) as error:  # as above: a stranger's code, reported by name
            if plugin.name == CORE or (hook == "golem_endpoints" and isinstance(error, GolemError)):
                raise  # a defect of ours, or a part that the user asked for and cannot have
            plugin.fail(f"{hook}: {reason(error)}")
            return []
        return records

    def check(self, cli: click.Group, reserved: Collection[str] = ()) -> None:
        """Ask every hook that needs no server, so that what fails is recorded, and claims to one name with it.

        `cli` and `reserved` are what `commands` is given.
        """
        claims: list[tuple[str, str, str, list[tuple[Plugin, Any]]]] = []
        for name, claimed in self.architectures().items():
            claims.append(("golem_architectures", "architecture", name, claimed))
        for name, claimed in self.devices().items():
            claims.append(("golem_devices", "device", name, claimed))
        for name, claimed in self._claimed_parts().items():
            claims.append(("golem_parts", "option", f"-{name}", claimed))
        for hook, kind, name, claimed in claims:
            for plugin, _ in claimed if len(claimed) > 1 else []:
                plugin.fail(f"{hook}: {_claimed(kind, name, claimed)}")
        self.sampler_stages()
        self.options()
        self.default_models()
        self.commands(cli, reserved)

    def architectures(self) -> dict[str, list[tuple[Plugin, Architecture]]]:
        """Who opens which architecture; more than one entry for a name is a conflict."""
        from golem_core.engine.roles import Architecture

        table: dict[str, list[tuple[Plugin, Architecture]]] = {}
        for plugin, record in self.ask("golem_architectures", Architecture):
            if isinstance(record.names, str):
                plugin.fail(f"golem_architectures: names is the text {record.names!r}; expected a tuple of texts")
                continue
            for name in record.names:
                table.setdefault(name, []).append((plugin, record))
        return table

    def architecture(self, name: str) -> Architecture:
        """The record that opens `name`.

        Raises Unsupported, listing what is installed, when nobody does, and GolemError when two plugins do.
        """
        table = self.architectures()
        if name in table:
            return self._only_one("architecture", name, table[name])
        known = ", ".join(f"{each} ({who[0][0].origin})" for each, who in sorted(table.items()))
        message = f"no installed plugin opens the architecture {name!r}; installed: {known or 'none'}; {HINT}"
        raise Unsupported(message + self._broken())

    def device(self, name: str) -> DeviceType:
        """The kind of device that `name` names before a colon; what stands behind it is the device's own affair.

        Raises Unsupported or GolemError as `architecture` does.
        """
        table = self.devices()
        kind = name.partition(":")[0]
        if kind in table:
            return self._only_one("device", kind, table[kind])
        known = ", ".join(sorted(table))
        raise Unsupported(
            f"no installed plugin drives the device {name!r}; installed: {known}; {HINT}" + self._broken()
        )

    def devices(self) -> dict[str, list[tuple[Plugin, DeviceType]]]:
        """Who drives each kind of device."""
        from golem_core.hookspecs import DeviceType

        table: dict[str, list[tuple[Plugin, DeviceType]]] = {}
        for plugin, record in self.ask("golem_devices", DeviceType):
            table.setdefault(record.name, []).append((plugin, record))
        return table

    def chosen_device(self, options: Mapping[str, Any], *, by_hand: Collection[str] = ()) -> str:
        """The device that the options ask for: a switch with the name of a kind stands for `-device` and that name.

        `by_hand` are the options of the command line, which beat those of variables.  Raises GolemError where several
        devices are asked for.
        """
        named = options["device"]
        base = named.partition(":")[0]
        switched = [kind for kind in self.devices() if options.get(kind) is True]
        typed = [kind for kind in switched if kind in by_hand]
        if typed or "device" in by_hand:
            switched = typed
        if not switched:
            return named
        kind = switched[0]
        yields = "device" not in by_hand and (base == "cpu" or bool(typed))
        if len(switched) > 1 or not (base == kind or yields):
            other = switched[1] if len(switched) > 1 else named
            raise GolemError(f"-{kind}: another device is asked for too, {other}")
        return named if base == kind else kind

    def sampler_stages(self) -> list[SamplerStage]:
        """Every stage of the sampler chain, by position."""
        from golem_core.sampling import SamplerStage

        return sorted(
            (stage for _, stage in self.ask("golem_samplers", SamplerStage)), key=lambda stage: stage.position
        )

    def options(self) -> list[Option]:
        """The core's options and the plugins'.

        One whose name is none, or that repeats a name or a variable, is recorded as its plugin's failure.
        """
        table = {option.name: (CORE, option) for option in CORE_OPTIONS}
        for plugin, option in self.ask("golem_options", Option):
            variables = {other.variable: owner for owner, other in table.values()}
            if not _OPTION.fullmatch(option.name) or option.name in ("h", "help", "version"):
                plugin.fail(
                    f"golem_options: an option cannot be called {option.name!r}: expected lower-case words "
                    "joined by -, and none of h, help and version"
                )
            elif option.name in table:
                plugin.fail(f"golem_options: the option -{option.name} is already {table[option.name][0]}'s")
            elif option.variable in variables:
                taken = f"the variable {option.variable} of -{option.name} is already {variables[option.variable]}'s"
                plugin.fail(f"golem_options: {taken}")
            else:
                table[option.name] = (plugin.origin, option)
        return [option for _, option in table.values()]

    def default_models(self) -> list[DefaultModel]:
        """The models in packages that may be opened when none is named, the preferred ones first."""
        from golem_core.hookspecs import DefaultModel

        records = [record for _, record in self.ask("golem_default_models", DefaultModel)]
        return sorted(records, key=lambda record: (-record.priority, record.name))

    def parts(self) -> list[Part]:
        """What can be loaded into a server beside the conversation model.

        Raises GolemError when two plugins load something for one option.
        """
        claimed = self._claimed_parts()
        return [self._only_one("option", f"-{option}", claims) for option, claims in claimed.items()]

    def _claimed_parts(self) -> dict[str, list[tuple[Plugin, Part]]]:
        from golem_core.hookspecs import Part

        table: dict[str, list[tuple[Plugin, Part]]] = {}
        for plugin, record in self.ask("golem_parts", Part):
            table.setdefault(record.option, []).append((plugin, record))
        return table

    def endpoints(self, server: Any) -> list[tuple[Plugin, Any]]:
        """The route handlers of every plugin for what this server has loaded, each with its plugin.

        A GolemError passes through: it says why a part that the user asked for cannot be had.
        """
        return self.ask("golem_endpoints", server=server)

    def commands(self, cli: click.Group, reserved: Collection[str] = ()) -> None:
        """Let every plugin add its commands to the command line.

        One that repeats a name, or has one of the `reserved`, is recorded as its plugin's failure.
        """
        owners = dict.fromkeys((*reserved, *cli.commands), CORE)
        for impl in self.manager.hook.golem_commands.get_hookimpls():
            plugin, before = self.described(impl.plugin_name), dict(cli.commands)
            self._asked(plugin, impl, "golem_commands", None, {"cli": cli})
            for name, command in list(cli.commands.items()):
                if before.get(name) is command:
                    continue
                if name not in owners:
                    owners[name] = plugin.origin
                    continue
                plugin.fail(f"golem_commands: the command {name} is already {owners[name]}'s")
                if name in before:
                    cli.commands[name] = before[name]
                else:
                    del cli.commands[name]

    def _only_one(self, kind: str, name: str, claims: list[tuple[Plugin, Any]]) -> Any:
        if len(claims) > 1:
            raise GolemError(_claimed(kind, name, claims))
        return claims[0][1]

    def _broken(self) -> str:
        failed = [f"{plugin.origin}: {reason}" for plugin in self.found for reason in plugin.failures]
        return f". Failed plugins: {'; '.join(failed)}" if failed else ""


def _claimed(kind: str, name: str, claims: Sequence[tuple[Plugin, Any]]) -> str:
    owners = " and ".join(plugin.origin for plugin, _ in claims)
    return f"the {kind} {name!r} is claimed by {owners}; uninstall one, or choose with GOLEM_PLUGINS=NAME"


def _restricted(
    points: Sequence[importlib.metadata.EntryPoint], only: Sequence[str] | None
) -> list[importlib.metadata.EntryPoint]:
    """The entry points that `only` leaves: by plugin name or by distribution, compared as package names are.

    The core may be named too; it is always there.
    """
    if only is None:
        return list(points)
    names = {
        id(point): {_normal(point.name)} | ({_normal(point.dist.name)} if point.dist else set()) for point in points
    }
    for wanted in only:
        if _normal(wanted) != CORE and not any(_normal(wanted) in each for each in names.values()):
            known = ", ".join(sorted({point.name for point in points}))
            raise GolemError(f"GOLEM_PLUGINS names {wanted!r}, which is not installed; installed: {known or 'none'}")
    chosen = {_normal(wanted) for wanted in only}
    return [point for point in points if names[id(point)] & chosen]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _of(caller: pluggy.HookCaller, plugin: object) -> list[pluggy.HookImpl]:
    return [impl for impl in caller.get_hookimpls() if impl.plugin is plugin]


def reason(error: BaseException) -> str:
    """What a stranger's code raised, in one line with its kind."""
    try:
        told = " ".join(str(error).split())
    except Exception as another:
        told = f"its text can't be made: {type(another).__name__}"
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


@cache
def version() -> str:
    """The installed version of golem-core."""
    try:
        return importlib.metadata.version(CORE)
    except importlib.metadata.PackageNotFoundError:
        return "0+source"


@cache
def installed() -> Plugins:
    """The plugins of this process, found once, as GOLEM_PLUGINS allows (set but empty: none but the core)."""
    setting = os.environ.get("GOLEM_PLUGINS")
    only = None if setting is None else [name.strip() for name in setting.split(",") if name.strip()]
    return Plugins(only=only)


def manager() -> pluggy.PluginManager:
    """The pluggy manager, where a test or an embedding program registers a plugin of its own."""
    return installed().manager


def architecture(name: str) -> Architecture:
    """The record that opens the architecture `name`; Unsupported lists what is installed."""
    return installed().architecture(name)


def device(name: str) -> DeviceType:
    """The kind of device called `name`; Unsupported lists what is installed."""
    return installed().device(name)


def sampler_stages() -> list[SamplerStage]:
    """Every stage of the sampler chain, by position."""
    return installed().sampler_stages()


def options() -> list[Option]:
    """The command-line options of the core and of every plugin."""
    return installed().options()


def device_options() -> set[str]:
    """What options a device may be opened with, besides its name and its threads: -kv, and those of plugins."""
    return {option.name for option in options()} - {option.name for option in CORE_OPTIONS} | {"kv"}


def default_models() -> list[DefaultModel]:
    """The models in packages that may be opened when none is named, the preferred ones first."""
    return installed().default_models()
