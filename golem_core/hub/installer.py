"""Installing extensions into the hub's folder, and removing them: whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from golem_core.errors import GolemError
from golem_core.hub.config import Home
from golem_core.hub.environment import make_environment
from golem_core.hub.manifest import Manifest, check_name, read_manifest
from golem_core.hub.sources import fetch

__all__ = ["add", "remove"]


def add(
    home: Home,
    source: str,
    *,
    ref: str | None = None,
    force: bool = False,
    say: Callable[[str], None],
    environment: Callable[[Path, Callable[[str], None]], None] = make_environment,
) -> Manifest:
    """Install the extension at `source`; with `force` in place of an installed one, whose settings stay.

    Raises GolemError, and leaves everything as it was then.
    """
    served = home.served()
    if force and served:
        raise GolemError("--force replaces files of extensions that a running golem serve may use; stop it first")
    home.make()
    home.extensions.mkdir(mode=0o700, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".adding-", dir=home.extensions))
    try:
        fetched = fetch(source, ref, work / "new")
        manifest = read_manifest(work / "new", fetched.source)
        target = home.extensions / manifest.name
        if target.exists() and not force:
            raise GolemError(f'extension "{manifest.name}" already installed (use --force to replace)')
        if target.exists():
            target.rename(work / "old")
        try:
            # The programs of an environment hold its path, so it is made where it stays.
            (work / "new").rename(target)
            environment(target, say)
            about = {"source": fetched.source, "ref": fetched.ref, "revision": fetched.revision}
            kept = {key: value for key, value in home.config().extension(manifest.name).items() if key not in about}
            home.record(manifest.name, kept | {key: value for key, value in about.items() if value is not None})
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            if (work / "old").exists():
                (work / "old").rename(target)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"installed {manifest.name}" + ("; it runs from the next start of golem serve on" if served else ""))
    return manifest


def remove(home: Home, name: str, say: Callable[[str], None]) -> None:
    """Remove an extension with its settings; a running server ends its process.  Raises GolemError."""
    folder = home.extensions / check_name(name)
    if not folder.is_dir():
        raise GolemError(f'extension "{name}" is not installed')
    home.record(name, None)
    gone = Path(tempfile.mkdtemp(prefix=".removing-", dir=home.extensions))
    folder.rename(gone / name)
    shutil.rmtree(gone, ignore_errors=True)
    say(f"removed {name}")
