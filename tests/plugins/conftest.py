"""Packages that exist for one test: a module and the metadata that pip would have written."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from golem_core import plugins


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a distribution: package("golem-x", "1.2", "entry", source)."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def install(distribution: str, version: str, entry: str, source: str) -> None:
        module = distribution.replace("-", "_") + "_module"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[golem]\n{entry} = {module}\n")

    plugins.installed.cache_clear()
    yield install
    plugins.installed.cache_clear()
    for name in set(sys.modules) - before:
        if name.endswith("_module"):
            del sys.modules[name]
