"""The repository's packages: where each lies, and the modules in it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = sorted(path.parent for kind in ("plugins", "examples") for path in ROOT.glob(f"{kind}/*/pyproject.toml"))
"""The folders of the packages that are installed beside the core."""


def import_name(folder: Path) -> str:
    return folder.name.replace("-", "_")


def modules(folder: Path) -> list[Path]:
    """The modules of the package in `folder`, its tests left out."""
    return sorted((folder / import_name(folder)).rglob("*.py"))


def core_modules() -> list[Path]:
    return sorted((ROOT / "golem_core").rglob("*.py"))


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def public_names() -> set[str]:
    """What `golem_core/__init__.py` re-exports."""
    tree = ast.parse((ROOT / "golem_core" / "__init__.py").read_text(encoding="utf-8"))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "golem_core.lazy")
    return {name.name for node in imports for name in node.names if name.asname}


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))
