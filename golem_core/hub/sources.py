"""Where an extension comes from: a folder, a zip archive, or a repository on GitHub, brought into a fresh folder."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from golem_core.errors import GolemError

__all__ = ["ARCHIVE_LIMIT", "Fetched", "fetch"]

ARCHIVE_LIMIT = 256 << 20
"""Bytes that an archive may have, and its files unpacked."""

_SKIPPED = {".venv", "__pycache__", ".git"}
_REPOSITORY = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?")


@dataclass(frozen=True)
class Fetched:
    """Where files came from, as it is recorded: the source, and for a repository what was asked for and found."""

    source: str
    ref: str | None = None
    revision: str | None = None


def fetch(source: str, ref: str | None, target: Path) -> Fetched:
    """Bring the files of `source` into `target`, which is made.  Raises GolemError."""
    if re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE):
        found = _REPOSITORY.fullmatch(source)
        if found is None:
            raise GolemError(f"{source}: only GitHub repository URLs, https://github.com/OWNER/REPO, are supported")
        return _fetch_repository(source, found[1], found[2], ref, target)
    if ref is not None:
        raise GolemError(f"--ref {ref}: only a repository has refs, and {source} is none")
    path = Path(source).expanduser()
    if path.is_dir():
        _copy(path, target)
    elif path.suffix.lower() == ".zip" and path.is_file():
        with path.open("rb") as file:
            _unpack(file, source, target)
    else:
        raise GolemError(f"{source}: expected a folder, a .zip file, or https://github.com/OWNER/REPO")
    return Fetched(str(path.resolve()))


def _copy(source: Path, target: Path) -> None:
    """Copy the regular files of a folder."""
    target.mkdir(parents=True)
    for folder, folders, files in os.walk(source):
        below = target / Path(folder).relative_to(source)
        kept = [name for name in folders if name not in _SKIPPED and not (Path(folder) / name).is_symlink()]
        folders[:] = kept
        for name in kept:
            (below / name).mkdir()
        for name in files:
            path = Path(folder) / name
            if stat.S_ISREG(path.lstat().st_mode):
                shutil.copy2(path, below / name)


def _unpack(file: Any, source: str, target: Path) -> None:
    """Unpack an archive, without the one folder that all of it may lie in."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = [(info, _inside(source, info.filename)) for info in archive.infolist()]
            if sum(info.file_size for info, _ in entries) > ARCHIVE_LIMIT:
                raise GolemError(f"{source}: its files have more than {ARCHIVE_LIMIT} bytes")
            tops = {path.parts[0] for _, path in entries if path.parts}
            strip = len(tops) == 1 and all(info.is_dir() or len(path.parts) > 1 for info, path in entries)
            target.mkdir(parents=True)
            for info, path in entries:
                below = target.joinpath(*path.parts[1 if strip else 0 :])
                kind = stat.S_IFMT(info.external_attr >> 16)
                if info.is_dir():
                    below.mkdir(parents=True, exist_ok=True)
                elif kind in (0, stat.S_IFREG):
                    below.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(info) as packed, below.open("xb") as unpacked:
                        shutil.copyfileobj(packed, unpacked)
    except GolemError:
        raise
    except Exception as error:  # a damaged archive raises what its compression does
        raise GolemError(f"{source}: {error or type(error).__name__}") from None


def _inside(source: str, name: str) -> PurePosixPath:
    """The path of an entry; GolemError for one that leaves the folder."""
    path = PurePosixPath(name)
    if "\\" in name or "\0" in name or path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
        raise GolemError(f"{source}: the entry {name!r} leaves the archive's folder")
    return path


def _fetch_repository(source: str, owner: str, name: str, ref: str | None, target: Path) -> Fetched:
    place = f"https://api.github.com/repos/{owner}/{name}"
    try:
        commit = json.loads(_download(f"{place}/commits/{quote(ref or 'HEAD')}"))
    except ValueError:
        raise GolemError(f"{place}: the answer is no JSON") from None
    revision = commit.get("sha") if isinstance(commit, dict) else None
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{40,64}", revision):
        raise GolemError(f"{source}: no commit was found for {ref or 'its default branch'}")
    _unpack(io.BytesIO(_download(f"{place}/zipball/{revision}")), source, target)
    return Fetched(source, ref, revision)


def _download(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "golem", "Accept": "application/vnd.github+json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read(ARCHIVE_LIMIT + 1)
    except (OSError, ValueError, HTTPException) as error:
        told = error.reason if type(error) is urllib.error.URLError else error
        raise GolemError(f"{url}: {told or type(error).__name__}") from None
    if len(content) > ARCHIVE_LIMIT:
        raise GolemError(f"{url}: larger than {ARCHIVE_LIMIT} bytes")
    return content
