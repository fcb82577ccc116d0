"""The `golem` command line: serve, run, embed, bench, plugins, devices, and whatever commands plugins add.

Every option is accepted with one dash and with two, and has an environment variable that it beats.  A mistake is
one line on standard error that names the option and the value, with exit status 2; a part that cannot be had is
one line with exit status 1.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from golem_core import plugins
from golem_core.background import collect_seldom, import_numpy
from golem_core.errors import GolemError
from golem_core.options import Option

__all__ = ["cli", "main", "option_command"]


def main() -> None:
    """The `golem` program."""
    collect_seldom()
    try:
        status = cli.main(prog_name="golem", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 2
    except click.ClickException as error:
        status = _complain(_told(error), error.exit_code)
    except GolemError as error:
        status = _complain(f"{error}{_place(error)}", 1)
    except (click.Abort, KeyboardInterrupt):
        status = 130
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
        status = 1
        if error.errno != errno.EPIPE:  # a reader that left knows
            _complain(f"standard output: {error.strerror}", 1)
    sys.exit(status if isinstance(status, int) else 0)


def _told(error: click.ClickException) -> str:
    option = error.param if isinstance(error, click.MissingParameter) else None
    if not isinstance(option, click.Option):
        return error.format_message()
    ways = [
        f"{option.opts[0]} {option.metavar or ''}".strip(),
        *([option.envvar] if isinstance(option.envvar, str) else []),
    ]
    return f"{option.opts[0]} is missing; name it with {' or '.join(ways)}"


def _place(error: GolemError) -> str:
    """Where a plugin asks for what no graph can have, as " (FILE:LINE)"; "" for other errors."""
    from golem_core.graph.value import GraphError

    if not isinstance(error, GraphError):
        return ""
    import traceback
    from pathlib import Path

    folders = [Path(module.__file__).parent for module in (plugins, click) if module.__file__]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        core, framework = (folder in Path(frame.filename).parents for folder in folders)
        if framework:
            break
        if not core:
            return f" ({frame.filename}:{frame.lineno})"
    return ""


def _complain(message: str, status: int) -> int:
    click.echo(f"golem: {' '.join(message.split())}", err=True)
    return status


class _Value(click.ParamType):
    """The type of an `Option`: its function, with mistakes told by option, value, and variable."""

    name = "value"

    def __init__(self, option: Option):
        self.option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if len(self.option.name) == 1:
            value = value.removeprefix("=")  # "-n=5", which is read as -n with the value "=5"
        try:
            return self.option.type(value)
        except ValueError as error:
            named = f"-{self.option.name}"
            if ctx and param and param.name and ctx.get_parameter_source(param.name) == ParameterSource.ENVIRONMENT:
                named = self.option.variable
            raise click.UsageError(f"{named} {value!r}: {error}") from None


def _truth(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("expected 1 or 0")


class _Switch(click.Option):
    """A switch whose variable is read as strictly as any other value."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        return self.resolve_envvar_value(ctx)


def _parameter(option: Option) -> click.Option:
    """The click option for a record."""
    names = [option.name.replace("-", "_"), f"-{option.name}", f"--{option.name}"]
    kind = click.Option
    if option.type is bool:
        kind = _Switch
        switch = Option(option.name, option.help, _truth, option.default, option.env)
        settings: dict[str, Any] = {"is_flag": True, "flag_value": "1", "type": _Value(switch)}
    else:
        settings = {"type": _Value(option), "metavar": option.example}
    shown = option.variable if option.default in (None, False, ()) else f"{option.variable}, default {option.default}"
    return kind(names, default=option.default, envvar=option.variable, help=f"{option.help}  [{shown}]", **settings)


class _Command(click.Command):
    """A command whose unknown options are named whole, though they begin with one dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        import_numpy()  # by options' own readers at the soonest
        given = list(args)
        try:
            self._refuse_runs(ctx, given)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            every = [name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)]
            words = [arg.partition("=")[0] for arg in given]
            unknown = [word for word in words if word.startswith(error.option_name) and word not in every]
            whole = unknown[0] if unknown else error.option_name
            if elsewhere := _commands_with(whole):
                raise click.UsageError(f"no such option: {whole}; only {elsewhere} has it") from None
            known = [name for name in every if len(name) > 2]
            import difflib

            close = difflib.get_close_matches(whole, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"no installed package has it; {plugins.HINT}"
            raise click.UsageError(f"no such option: {whole}; {hint}") from None

    def _refuse_runs(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse "-parallel", where no option has that name, in place of reading "-p" with the value "arallel"."""
        options = {name: each for each in self.get_params(ctx) for name in each.opts if isinstance(each, click.Option)}
        values = iter(args)
        for word in values:
            if word == "--":
                return
            name, joined, _ = word.partition("=")
            if option := options.get(name):
                if not (joined or option.is_flag):
                    next(values, None)
            elif word[:2] in options and not _RUN.fullmatch(word):
                raise click.NoSuchOption(name)


_RUN = re.compile("-[^-](=.*|[0-9.,-]*)", re.DOTALL)
"""What may stand for an option of one letter with its value."""


def _commands_with(given: str) -> str:
    """The commands that have an installed option, as it was given with its dashes; "" for none."""
    name = given.removeprefix("-").removeprefix("-")
    found = {command for option in plugins.options() if option.name == name for command in option.commands}
    return " or ".join(f"golem {command}" for command in sorted(found))


_HELP = {"help_option_names": ["-h", "-help", "--help"]}


class _Root(click.Group):
    """The root: `serve` and `run` take the options of every plugin, so a command is made when it is asked for."""

    _whole = False

    def _prepare(self, name: str | None = None) -> None:
        """Add the command of that name, or all of them, those of plugins among them."""
        for each, (help_text, act, extra) in _COMMANDS.items():
            if name in (each, None) and each not in self.commands:
                self.add_command(option_command(each, help_text, act, extra()))
        if name not in self.commands and not self._whole:
            self._whole = True
            plugins.installed().commands(self, _COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self._prepare(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            import difflib

            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.7)
            hint = f"did you mean {close[0]}?" if close else f"no installed package has it; {plugins.HINT}"
            raise click.UsageError(f"no such command: {args[0]}; {hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._prepare()
        return super().list_commands(ctx)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"golem {plugins.version()}")
        ctx.exit()


def _version_option() -> click.Option:
    return click.Option(
        ["-version", "--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Print the version and exit.",
    )


def option_command(
    name: str, help_text: str, act: Callable[[dict[str, Any]], None], extra: Sequence[click.Parameter] = ()
) -> click.Command:
    """A click command that takes the installed options meant for it, besides the parameters `extra`, and calls `act`
    with the values of all by their names.  A switch for a kind of device is found in "device"."""
    options = [option for option in plugins.options() if {name, "*"} & set(option.commands)]
    names = {option.name.replace("-", "_"): option.name for option in options}

    def call(**values: Any) -> None:
        given = {names.get(key, key): value for key, value in values.items()}
        if "device" in given:
            source_of = click.get_current_context().get_parameter_source
            by_hand = {names.get(key, key) for key in values if source_of(key) is ParameterSource.COMMANDLINE}
            given["device"] = plugins.installed().chosen_device(given, by_hand=by_hand)
        act(given)

    parameters: list[click.Parameter] = [*(_parameter(option) for option in options), *extra, _version_option()]
    return _Command(name, params=parameters, callback=call, help=help_text, context_settings=_HELP)


def _serve(options: dict[str, Any]) -> None:
    from golem_core.server.app import serve

    serve(options)


def _run(options: dict[str, Any]) -> None:
    from golem_core.terminal import run

    run(options)


def _bench(options: dict[str, Any]) -> None:
    from golem_core.bench import bench

    bench(options)


def _embed(options: dict[str, Any]) -> None:
    from golem_core.embed_command import embed

    embed(options)


def _run_options() -> list[click.Option]:
    return [
        click.Option(
            ["prompt", "-p", "--p", "-prompt", "--prompt"],
            metavar="TEXT",
            help='The prompt, not empty but beside a picture or recording; "-" reads it from standard input.',
        ),
        click.Option(
            ["-image", "--image"], metavar="FILE", multiple=True, help="A picture that goes with the prompt (-mmproj)."
        ),
        click.Option(
            ["-audio", "--audio"],
            metavar="FILE",
            multiple=True,
            help="A recording that goes with the prompt (-mmproj).",
        ),
        click.Option(["-stats", "--stats"], is_flag=True, help="Say how fast the answer was read and drawn."),
        click.Option(
            ["-raw", "--raw"], is_flag=True, help="Complete the text as it stands, without the chat template."
        ),
        click.Option(["-grammar", "--grammar"], metavar="TEXT", help="GBNF that every answer follows."),
        click.Option(["-grammar-file", "--grammar-file"], metavar="FILE", help="A file with such GBNF."),
        click.Option(
            ["-json-schema", "--json-schema"], metavar="JSON", help="A JSON schema that every answer follows."
        ),
        click.Option(["-json-schema-file", "--json-schema-file"], metavar="FILE", help="A file with such a schema."),
    ]


def _bench_options() -> list[click.Option]:
    from golem_core.bench import OPTIONS

    return OPTIONS


def _embed_options() -> list[click.Parameter]:
    return [
        click.Argument(["texts"], nargs=-1, metavar="[TEXT]..."),
        click.Option(["-file", "--file"], metavar="FILE", help='A file whose lines are texts; "-" is standard input.'),
        click.Option(
            ["-out", "--out"],
            metavar="FILE",
            help="Where to write: an array if it ends in .npy, else JSON lines.  [default: standard output]",
        ),
        click.Option(
            ["-dimensions", "--dimensions"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Keep the first N components.",
        ),
        click.Option(["-truncate", "--truncate"], is_flag=True, help="Cut texts that are too long."),
        click.Option(["-raw", "--raw"], is_flag=True, help="Leave the vectors as the model gives them, of any length."),
    ]


_Act = Callable[[dict[str, Any]], None]
_COMMANDS: dict[str, tuple[str, _Act, Callable[[], Sequence[click.Parameter]]]] = {
    "serve": ("Answer over HTTP, as OpenAI's API does.", _serve, list),
    "run": ("Answer one prompt, or hold a conversation in the terminal.", _run, _run_options),
    "embed": ("Give texts vectors: the arguments, the lines of a file, or those piped in.", _embed, _embed_options),
    "bench": ("Measure how fast a model reads and generates.", _bench, _bench_options),
}

cli = _Root(
    "golem",
    params=[_version_option()],
    help="An inference server made of plugins.",
    subcommand_metavar="COMMAND ...",
    context_settings=_HELP,
)


@cli.command("plugins")
@click.option("--json", "-json", "as_json", is_flag=True, help="Write JSON instead of a table.")
def list_plugins(as_json: bool) -> None:
    """List what is installed, what it implements, and what failed to load and why."""
    failure = None
    try:
        asked = plugins.installed()
    except GolemError as error:  # GOLEM_PLUGINS asks for what is not there: say so below what is
        failure = error
        os.environ.pop("GOLEM_PLUGINS", None)  # commands of plugins ask for what is installed, too
        asked = plugins.installed()
    asked.check(cli, _COMMANDS)
    _write_plugins(asked.found, as_json)
    if failure is not None:
        raise failure


@cli.command("devices")
@click.option("--json", "-json", "as_json", is_flag=True, help="Write JSON instead of a table.")
def list_devices(as_json: bool) -> None:
    """List the kinds of devices, and what of each is on this machine."""
    from golem_core.hookspecs import DeviceType

    records = []
    for plugin, kind in plugins.installed().ask("golem_devices", DeviceType):
        try:
            records.append({"name": kind.name, "plugin": plugin.name, "there": True, "description": kind.probed()})
        except Exception as error:  # a stranger's code: the other devices are listed all the same
            reason = (
                str(error).removeprefix(f"{kind.name}: ") if isinstance(error, GolemError) else plugins.reason(error)
            )
            told = " ".join(reason.split())
            records.append({"name": kind.name, "plugin": plugin.name, "there": False, "description": told})
    if as_json:
        import json

        click.echo(json.dumps(records, indent=2, ensure_ascii=False))
        return
    for record in records:
        for line in record["description"].splitlines():
            click.echo(f"{record['name']}: {line}")


def _write_plugins(found: list[plugins.Plugin], as_json: bool) -> None:
    if as_json:
        import json

        records = [
            {
                "name": plugin.name,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "hooks": plugin.hooks,
                "failures": plugin.failures,
            }
            for plugin in found
        ]
        click.echo(json.dumps(records, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("plugin", "distribution", "version", "hooks"):
        table.add_column(column, overflow="fold")
    for plugin in found:
        hooks = ", ".join(hook.removeprefix("golem_") for hook in plugin.hooks) or "-"
        table.add_row(plugin.name, plugin.distribution or "-", plugin.version or "-", hooks)
    console = Console()
    console.print(table)
    for plugin in found:
        for reason in plugin.failures:
            console.print(f"{plugin.name} failed: {reason}", style="red", markup=False, soft_wrap=True)
