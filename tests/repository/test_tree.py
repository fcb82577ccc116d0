"""What holds for every file and every package of the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from repository_layout import PACKAGES, ROOT, core_modules, import_name, label, modules, project

LONGEST = 450
"""Lines that a module may have; a longer one has a noun in it that wants its own file."""


def tracked() -> list[Path]:
    """Every text file under version control."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a checkout, so nothing says which files belong to the repository")
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_no_file_holds_a_path_of_somebody_s_machine() -> None:
    machine = re.compile(r"(?<![\w.~-])(?:/(?:home|root|Users|work|tmp)/\w[\w.-]*|[A-Z]:\\Users\\)")
    found = [
        f"{label(path)}:{number}: {match[0]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in machine.finditer(line)
    ]
    assert not found, "\n".join(found)


def test_nothing_names_the_host_of_a_package_registry() -> None:
    files = [ROOT / "Makefile", ROOT / ".ci" / "run", *(each / "pyproject.toml" for each in [ROOT, *PACKAGES])]
    hosts = [f"{label(path)}: {url}" for path in files for url in re.findall(r"https?://[^\s\"')]+", path.read_text())]
    assert [each for each in hosts if "127.0.0.1" not in each] == []


@pytest.mark.parametrize("path", [*core_modules(), *(m for p in PACKAGES for m in modules(p))], ids=label)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LONGEST, f"{label(path)} has {lines} lines, {LONGEST} are allowed"
    assert not text or text.startswith('"""'), f"{label(path)} opens without a docstring"


@pytest.mark.parametrize(
    "folder", [ROOT, *PACKAGES], ids=lambda folder: folder.name if folder != ROOT else "golem-core"
)
def test_a_package_says_what_it_is_under_which_licence_and_for_which_python(folder: Path) -> None:
    about = project(folder)["project"]
    assert about["license"] == "Apache-2.0"
    assert about["requires-python"] == ">=3.11"
    assert about["description"].strip()
    readme = folder / about["readme"]
    assert readme.read_text(encoding="utf-8").startswith("# "), f"{label(readme)} has no title"


@pytest.mark.parametrize("folder", PACKAGES, ids=label)
def test_a_package_is_found_as_a_plugin_under_its_own_name(folder: Path) -> None:
    about = project(folder)["project"]
    assert about["name"] == folder.name
    assert any(re.match(r"golem-core\b", each) for each in about["dependencies"])
    entries = about["entry-points"]["golem"]
    assert entries
    for module in entries.values():
        assert module.split(".")[0] == import_name(folder)
        path = folder / Path(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), f"there is no module {module}"


def test_the_licence_of_the_repository_is_the_one_that_the_packages_name() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("folder", [*PACKAGES, ROOT / "sdk"], ids=label)
def test_a_package_carries_the_licence_into_its_wheel(folder: Path) -> None:
    """A build takes files of the package's own folder only, so each has a copy."""
    assert project(folder)["project"]["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
