"""What a start does not load: names are imported when they are used."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ALL = [f"golem-{name}" for name in ("gemma", "kyutai", "krea2", "laya", "llama", "nomic", "qwen", "vulkan")]
OWN = [name for name in ALL if find_spec(name.replace("-", "_"))]
LAZY = ("golem_core", "golem_core.engine", "golem_core.text", "golem_core.sampling.grammar")


@pytest.mark.parametrize("package", LAZY)
def test_every_name_that_type_checkers_see_is_found_where_they_see_it(package) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        name.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        and not str(node.module).endswith(".text" if package != "golem_core" else "-")
        for name in node.names
    }
    assert seen
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name
    listed = {name for node in ast.walk(block) if isinstance(node, ast.Constant) for name in str(node.value).split()}
    assert {name for name in listed if not name.startswith("golem_core")} == seen.keys()
    assert seen.keys() <= set(dir(module))


def test_names_are_listed_before_they_are_asked_for() -> None:
    code = "import golem_core; assert 'KVRing' not in vars(golem_core); print('KVRing' in dir(golem_core))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ImportError, match="nothing"):
        exec("from golem_core import nothing")


def loaded(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(*sys.modules)"
    variables = os.environ | {"GOLEM_PLUGINS": ",".join(OWN)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "import golem_core.cli",
        "from golem_core import plugins; plugins.installed(); plugins.options()",
        "from golem_core import Architecture, DeviceType, Option, Part, Server, hookimpl",
    ],
)
def test_the_command_line_and_the_plugins_load_no_library_for_models_or_servers(program) -> None:
    heavy = {"numpy", "litestar", "uvicorn", "msgspec", "asyncio", "llvmlite", "jinja2", "lark", "llguidance", "rich"}
    assert not heavy & loaded(program)
