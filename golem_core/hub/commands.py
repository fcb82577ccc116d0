"""`golem extension add | list | remove`."""

from __future__ import annotations

import click

__all__ = ["extension"]

_HELP = {"help_option_names": ["-h", "-help", "--help"]}


def _say(line: str) -> None:
    click.echo(line, err=True)


@click.group("extension", context_settings=_HELP)
def extension() -> None:
    """Install, list and remove extensions: channels, providers and tools."""


@extension.command("add", context_settings=_HELP)
@click.argument("source")
@click.option("--ref", "-ref", metavar="REF", help="The branch, tag or commit of a repository.")
@click.option("--force", "-force", is_flag=True, help="Replace an extension that is installed.")
def add(source: str, ref: str | None, force: bool) -> None:
    """Install the extension at SOURCE: a folder, a .zip file, or https://github.com/OWNER/REPO."""
    from golem_core.hub.config import Home
    from golem_core.hub.installer import add

    add(Home(), source, ref=ref, force=force, say=_say)


@extension.command("list", context_settings=_HELP)
def list_extensions() -> None:
    """List the extensions that are installed: name, version and source."""
    from golem_core.hub.config import Home
    from golem_core.hub.manifest import installed

    home = Home()
    config = home.config()
    rows = [("NAME", "VERSION", "SOURCE")]
    for _, manifest in installed(home.extensions, _say):
        rows.append((manifest.name, manifest.version, str(config.extension(manifest.name).get("source", "-"))))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for row in rows:
        click.echo(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}")


@extension.command("remove", context_settings=_HELP)
@click.argument("name")
def remove(name: str) -> None:
    """Remove the extension called NAME; a running server ends it."""
    from golem_core.hub.config import Home
    from golem_core.hub.installer import remove

    remove(Home(), name, _say)
