"""Who may name whom: packages use the public names of the core, and the core names no family and no accelerator."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository_layout import PACKAGES, ROOT, core_modules, import_name, label, modules, project, public_names

import golem_core

# ---------------------------------------------------------------- what packages import


def imports(source: str) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name) of every import; the name is None for `import module`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name, None) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, node.module or "", each.name) for each in node.names)


def uses_beyond(source: str, package: str, public: set[str]) -> list[str]:
    """What `source` takes of `package` that is not one of its `public` names."""
    found = []
    for line, module, name in imports(source):
        inside = module.startswith(package + ".")
        if inside or (module == package and name is not None and name not in public):
            found.append(f"line {line}: {module}" + (f".{name}" if name else ""))
    for node in ast.walk(ast.parse(source)):
        of_package = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == package
        if of_package and node.attr not in public:
            found.append(f"line {node.lineno}: {package}.{node.attr}")
    return found


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ("from golem_core import Graph", []),
        ("from golem_core.graph import Graph", ["line 1: golem_core.graph.Graph"]),
        ("import golem_core.engine", ["line 1: golem_core.engine"]),
        ("from golem_core import engine", ["line 1: golem_core.engine"]),
        ("import golem_core\ngolem_core.Graph()\ngolem_core.engine", ["line 3: golem_core.engine"]),
        ("def f():\n    from golem_core.text import bpe", ["line 2: golem_core.text.bpe"]),
        ("from .golem_core import x\nfrom golem_corelike import y", []),
    ],
)
def test_the_check_sees_every_way_of_reaching_below_the_public_names(source: str, taken: list[str]) -> None:
    assert uses_beyond(source, "golem_core", {"Graph"}) == taken


def test_every_public_name_is_there() -> None:
    missing = [name for name in sorted(public_names()) if not hasattr(golem_core, name)]
    assert not missing
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        golem_core.nothing  # noqa: B018


def test_the_public_names_are_what_dir_lists_and_what_a_star_imports() -> None:
    told = """
import golem_core, golem_core.server.app
print(*(name for name in dir(golem_core) if not name.startswith("__")))
before = {*globals(), "before"}
from golem_core import *
print(*({*globals()} - before))
"""
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    listed, imported = (set(line.split()) for line in ran.stdout.splitlines())
    assert listed == imported == set(golem_core.__all__) == public_names()


@pytest.mark.parametrize("package", PACKAGES, ids=label)
def test_a_package_uses_only_public_names_of_the_core(package: Path) -> None:
    assert modules(package), f"{label(package)} has no modules"
    public = public_names()
    found = [
        f"{label(path)} {use}"
        for path in modules(package)
        for use in uses_beyond(path.read_text(), "golem_core", public)
    ]
    assert not found, "import these from golem_core itself, or export them there:\n" + "\n".join(found)


@pytest.mark.parametrize("path", sorted(ROOT.glob("plugins/*/benchmarks/*.py")), ids=label)
def test_a_package_s_benchmark_uses_what_programs_that_embed_golem_may(path: Path) -> None:
    assert uses_beyond(path.read_text(), "golem_core", public_names() | {"plugins"}) == []


@pytest.mark.parametrize("package", PACKAGES, ids=label)
def test_a_package_uses_another_only_by_its_top_level_and_declares_it(package: Path) -> None:
    declared = {re.split(r"[^\w.-]", each)[0] for each in project(package)["project"]["dependencies"]}
    for other in PACKAGES:
        if other == package:
            continue
        for path in modules(package):
            for line, module, name in imports(path.read_text()):
                where = f"{label(path)} line {line}: {module}"
                assert not module.startswith(import_name(other) + "."), f"{where} is inside {other.name}"
                if module == import_name(other):
                    assert other.name in declared, f"{where}, but {other.name} is not among the dependencies"
                    assert name is None or not name.startswith("_"), f"{where}.{name} is private"


# ---------------------------------------------------------------- what the core names

WORDS = (
    # model families
    *("gemma", "qwen", "llama", "smollm", "nomic", "kyutai", "krea", "laya", "mistral", "mixtral", "deepseek"),
    # accelerators, their makers and interfaces
    *("vulkan", "cuda", "nvidia", "geforce", "radeon", "amd", "rocm", "opencl", "spirv", "directx", "metal", "gpu"),
)
WHOLE = {"laya", "metal", "gpu"}  # these are parts of ordinary words
EXCEPT = {"llama": r"(?<!o)llama", "amd": r"(?<![a-z])amd(?!64|[a-z])"}  # ollama's API is spoken; amd64 is a CPU
NAMED = re.compile(
    "|".join(EXCEPT.get(word, rf"(?<![a-z]){word}(?![a-z])" if word in WHOLE else word) for word in WORDS),
    re.IGNORECASE,
)

REFERENCES = re.compile(r"llama\.cpp|llamacpp:|llama-server|src/llama-[\w.-]+")
"""Reference implementations, named where a rule is theirs, and the prefix of their metrics."""

FORMAT_VALUES = re.compile(r"(?<![\w-])(llama|gemma4)(?![\w-])")
"""Values of tokenizer.ggml.model, which the tokenizers of golem_core/text explain."""

LITERAL = re.compile(r"""(["'])[\w.-]+\1""")
"""A word in quotes: in golem_core/text, a value of tokenizer.ggml.model or tokenizer.ggml.pre."""


def named(source: str, *, tokenizers: bool = False) -> list[str]:
    """Families and accelerators that `source` names, by line: in identifiers, texts and comments."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type != tokenize.NAME:
            text = REFERENCES.sub("", text)
            if tokenizers:
                text = "" if LITERAL.fullmatch(text) else FORMAT_VALUES.sub("", text)
        for offset, line in enumerate(text.splitlines()):
            found += [f"line {token.start[0] + offset}: {match[0]}" for match in NAMED.finditer(line)]
    return found


@pytest.mark.parametrize(
    ("source", "tokenizers", "count"),
    [
        ("class Gemma: pass", False, 1),
        ("class Gemma: pass", True, 1),
        ('x = "gemma4"', False, 1),
        ('x = "gemma4"', True, 0),
        ('x = "qwen9-extra"', True, 0),
        ('x = "for qwen9 only"', True, 1),
        ("# as llama.cpp does it", False, 0),
        ("# as llama does it", False, 1),
        ("ollama = 1  # as ollama does it", False, 0),
        ('machine in ("amd64", "AMD")', False, 1),
        ('"""One.\n\nFast on CUDA and AMD cards.\n"""', False, 2),
        ("delayable = playas = metallic = gpus = 1", False, 0),
    ],
)
def test_the_check_tells_names_from_format_values_and_references(source: str, tokenizers: bool, count: int) -> None:
    assert len(named(source + "\n", tokenizers=tokenizers)) == count


@pytest.mark.parametrize("path", core_modules(), ids=label)
def test_the_core_names_no_family_and_no_accelerator(path: Path) -> None:
    found = named(path.read_text(), tokenizers=path.parent.name == "text")
    assert not found, f"{label(path)}: {', '.join(found)}"
    assert not NAMED.search(path.name), path.name
