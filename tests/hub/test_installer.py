"""`golem extension add | list | remove`: what is taken, what is refused, and that nothing is left of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from golem_core.errors import GolemError
from golem_core.hub import sources
from golem_core.hub.builtin_tools import builtin_tools
from golem_core.hub.config import Home
from golem_core.hub.groups import ProcessGroups
from golem_core.hub.installer import add, remove
from golem_core.hub.manifest import installed, read_manifest

SCRIPT = '[project.scripts]\nmy-ext = "x:main"\n'


def project(folder: Path, name: str = "my-ext", more: str = SCRIPT, version: str = "1.2") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n{more}')
    return folder


def environment(folder: Path, say) -> None:
    (folder / ".venv" / "bin").mkdir(parents=True)


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


def install(home: Home, source: Path | str, **settings) -> str:
    return add(home, str(source), say=lambda line: None, environment=environment, **settings).name


def left(home: Home) -> list[str]:
    return sorted(path.name for path in home.extensions.iterdir())


def test_a_folder_is_copied_without_what_belongs_to_a_machine(home, tmp_path) -> None:
    source = project(tmp_path / "src")
    for name in (".git", ".venv", "pkg", "pkg/__pycache__"):
        (source / name).mkdir()
        (source / name / "file").write_text("x")
    (source / "link").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    assert install(home, source) == "my-ext"
    folder = home.extensions / "my-ext"
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) == [
        *(".venv", ".venv/bin", "pkg", "pkg/file", "pyproject.toml"),
    ]
    assert home.config().extension("my-ext") == {"source": str(source)}
    assert left(home) == ["my-ext"]


@pytest.mark.parametrize("name", ["../x", "A", "a--b", "a-", "-a", "a_b", "a" * 65, "a/b", ""])
def test_a_name_that_is_none_is_refused(home, tmp_path, name) -> None:
    source = project(tmp_path / "src", name)
    with pytest.raises(GolemError, match=r"invalid name|missing name"):
        install(home, source)
    with pytest.raises(GolemError, match="invalid extension name"):
        remove(home, name, print)
    assert left(home) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[project]\nversion = "1"\n' + SCRIPT, "missing name"),
        ('[project]\nname = "my-ext"\n' + SCRIPT, "missing version"),
        ('[project]\nname = "my-ext"\nversion = "1"', "declare a provider, a channel or tools"),
        ('[project]\nname = "my-ext"\nversion = "1"\n[project.scripts]\na = "x:y"\nb = "x:y"', "none is called my-ext"),
        ('[project]\nname = "my-ext"\nversion = "1"\n[tool.golem.provider]\nentrypoint = "a:B"', "missing id"),
        ('[project]\nname = "my-ext"\nversion = "1"\n[tool.golem]\ntools = "a"', "expected an entry point"),
        ("[project", "pyproject.toml: "),
    ],
)
def test_a_manifest_that_lacks_something_is_told_by_name(home, tmp_path, text, reason) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "pyproject.toml").write_text(text)
    with pytest.raises(GolemError, match=reason) as told:
        install(home, tmp_path / "src")
    assert str(told.value).startswith(f"{tmp_path / 'src'}/pyproject.toml: ")
    assert left(home) == []


def test_how_an_extension_is_started(tmp_path) -> None:
    provider = '[tool.golem.provider]\nid = "p"\nentrypoint = "m:P"\n'
    channel = '[tool.golem.channel]\nid = "c"\nentrypoint = "m.n:C"\n'
    golem = '[tool.golem]\ntools = "m:T"\n' + provider + channel
    both = read_manifest(project(tmp_path / "a", more=golem + SCRIPT))
    arguments = ["--name", "my-ext", "--provider", "p=m:P", "--channel", "c=m.n:C", "--tools", "m:T"]
    assert both.command(Path("bin")) == ["bin/python", "-m", "golem", *arguments]
    assert read_manifest(project(tmp_path / "b")).command(Path("bin")) == ["bin/my-ext"]
    only = read_manifest(project(tmp_path / "c", more='[project.scripts]\nother = "x:y"\n'))
    assert only.command(Path("bin")) == ["bin/other"]


def test_an_installed_extension_is_replaced_by_force_and_keeps_its_settings(home, tmp_path) -> None:
    source = project(tmp_path / "src")
    install(home, source)
    home.record("my-ext", {**home.config().extension("my-ext"), "env": {"KEY": "k"}})
    values = home.config().values | {"mine": 1}
    home.write(values)
    project(source, version="2")
    with pytest.raises(GolemError, match='extension "my-ext" already installed'):
        install(home, source)
    install(home, source, force=True)
    assert read_manifest(home.extensions / "my-ext").version == "2"
    assert home.config().extension("my-ext")["env"] == {"KEY": "k"}
    assert home.config().values["mine"] == 1, "keys that nobody knows stay"


def test_what_is_added_while_a_server_runs_is_said_to_wait_for_its_next_start(home, tmp_path) -> None:
    home.make()
    held = home.lock()
    assert held is not None
    said: list[str] = []
    add(home, str(project(tmp_path / "src")), say=said.append, environment=environment)
    assert said == ["installed my-ext; it runs from the next start of golem serve on"]
    remove(home, "my-ext", said.append)
    os.close(held)
    assert said[1:] == ["removed my-ext"] and left(home) == []


def test_a_failure_leaves_everything_as_it_was(home, tmp_path) -> None:
    source = project(tmp_path / "src")

    def fails(folder: Path, say) -> None:
        raise GolemError("no network")

    with pytest.raises(GolemError, match="no network"):
        add(home, str(source), say=print, environment=fails)
    assert left(home) == [] and home.config().values["extensions"] == {}
    install(home, source)
    project(source, version="2")
    with pytest.raises(GolemError, match="no network"):
        add(home, str(source), force=True, say=print, environment=fails)
    assert read_manifest(home.extensions / "my-ext").version == "1.2" and left(home) == ["my-ext"]


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return path


PYPROJECT = f'[project]\nname = "my-ext"\nversion = "1"\n{SCRIPT}'


def test_an_archive_may_have_one_folder_around_it(home, tmp_path) -> None:
    install(home, archive(tmp_path / "a.zip", **{"top-1/pyproject.toml": PYPROJECT, "top-1/pkg/m.py": "x"}))
    assert (home.extensions / "my-ext" / "pkg" / "m.py").read_text() == "x"
    install(home, archive(tmp_path / "b.zip", **{"pyproject.toml": PYPROJECT, "m.py": "y"}), force=True)
    assert (home.extensions / "my-ext" / "m.py").read_text() == "y"


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/evil", "C:/evil", "top\\..\\..\\evil"])
def test_an_archive_that_leaves_its_folder_is_refused(home, tmp_path, name) -> None:
    with pytest.raises(GolemError, match="leaves the archive's folder"):
        install(home, archive(tmp_path / "a.zip", **{"top/pyproject.toml": PYPROJECT, name: "x"}))
    assert left(home) == [] and not list(tmp_path.rglob("evil"))


def test_links_in_an_archive_are_left_out_and_bombs_refused(home, tmp_path, monkeypatch) -> None:
    path = archive(tmp_path / "a.zip", **{"pyproject.toml": PYPROJECT})
    with zipfile.ZipFile(path, "a") as made:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "/etc/passwd")
    install(home, path)
    assert not (home.extensions / "my-ext" / "link").is_symlink() and not (home.extensions / "my-ext" / "link").exists()
    monkeypatch.setattr(sources, "ARCHIVE_LIMIT", 10)
    with pytest.raises(GolemError, match="more than 10 bytes"):
        install(home, path, force=True)
    (tmp_path / "odd.zip").write_bytes(b"PK")
    with pytest.raises(GolemError, match=r"odd\.zip"):
        install(home, tmp_path / "odd.zip")


@pytest.mark.parametrize(
    "url",
    ["https://gitlab.com/a/b", "http://github.com/a/b", "https://github.com/a", "https://github.com/a/b/tree/main"],
)
def test_only_repositories_of_one_form_are_fetched(home, url) -> None:
    with pytest.raises(GolemError, match="only GitHub repository URLs"):
        install(home, url)


def test_a_repository_is_fetched_at_its_commit(home, tmp_path, monkeypatch) -> None:
    packed = archive(tmp_path / "a.zip", **{"o-r-abc/pyproject.toml": PYPROJECT}).read_bytes()
    asked = []

    def download(url: str) -> bytes:
        asked.append(url)
        return b'{"sha": "%s"}' % (b"a" * 40) if "commits" in url else packed

    monkeypatch.setattr(sources, "_download", download)
    install(home, "https://github.com/o/r", ref="v1")
    place = "https://api.github.com/repos/o/r"
    assert asked == [f"{place}/commits/v1", f"{place}/zipball/{'a' * 40}"]
    about = {"source": "https://github.com/o/r", "ref": "v1", "revision": "a" * 40}
    assert home.config().extension("my-ext") == about


def test_what_a_repository_is_asked_for_travels_quoted_and_an_odd_answer_is_told(home, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(sources, "_download", lambda url: asked.append(url) or b"<html>")
    with pytest.raises(GolemError, match=r"api\.github\.com/repos/o/r: the answer is no JSON"):
        install(home, "https://github.com/o/r", ref="a branch/ü?#")
    assert asked == ["https://api.github.com/repos/o/r/commits/a%20branch/%C3%BC%3F%23"]
    assert left(home) == []


def test_a_damaged_archive_is_told(home, tmp_path) -> None:
    path = archive(tmp_path / "a.zip", **{"pyproject.toml": PYPROJECT})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("pyproject.toml", PYPROJECT * 50)
    content = bytearray(path.read_bytes())
    content[50:60] = b"\xff" * 10
    path.write_bytes(content)
    with pytest.raises(GolemError, match=r"a\.zip: "):
        install(home, path)
    assert left(home) == []


def test_refs_are_for_repositories(home, tmp_path) -> None:
    with pytest.raises(GolemError, match="--ref v1: only a repository has refs"):
        install(home, project(tmp_path / "src"), ref="v1")
    with pytest.raises(GolemError, match="expected a folder"):
        install(home, tmp_path / "nothing")


def test_a_broken_extension_is_said_and_left_out_of_the_list(home, tmp_path) -> None:
    install(home, project(tmp_path / "src"))
    project(home.extensions / "other-name", "third")
    (home.extensions / ".hidden").mkdir()
    (home.extensions / "empty").mkdir()
    said: list[str] = []
    assert [manifest.name for _, manifest in installed(home.extensions, said.append)] == ["my-ext"]
    assert len(said) == 2 and "empty" in said[0] and "another name, third" in said[1]


def test_the_commands(home, tmp_path) -> None:
    install(home, project(tmp_path / "src"))

    def golem(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"GOLEM_HOME": str(home.path), "GOLEM_PLUGINS": ""}
        program = [sys.executable, "-c", "from golem_core.cli import main; main()", "extension", *arguments]
        return subprocess.run(program, env=variables, capture_output=True, text=True)

    listed = golem("list").stdout.splitlines()
    assert listed == ["NAME    VERSION  SOURCE", f"my-ext  1.2      {tmp_path / 'src'}"]
    again = golem("add", str(tmp_path / "src"))
    assert again.returncode == 1 and again.stderr.endswith("already installed (use --force to replace)\n")
    gone = golem("remove", "my-ext")
    assert gone.returncode == 0 and gone.stderr == "removed my-ext\n" and left(home) == []
    absent = golem("remove", "my-ext")
    assert (absent.returncode, absent.stderr) == (1, 'golem: extension "my-ext" is not installed\n')
    assert golem("add").returncode == 2


def test_the_hubs_own_tools(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    skill = tmp_path / "skills" / "tea" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("Boil water.")
    groups = ProcessGroups()
    names = ["read", "write", "edit", "shell", "skill"]
    tools = builtin_tools(names, tmp_path / "skills", groups, threading.Event())
    assert tools["write"].run({"path": "d/f", "content": "one\ntwo\nthree"}) == "wrote d/f"
    assert tools["read"].run({"path": "d/f", "offset": 2, "limit": 1}) == "2\ttwo"
    tools["edit"].run({"path": "d/f", "old": "two", "new": "2"})
    assert (tmp_path / "d" / "f").read_text() == "one\n2\nthree"
    (tmp_path / "lines").write_bytes(b"one\r\ntwo\r\n")
    tools["edit"].run({"path": "lines", "old": "one\ntwo", "new": "1\n2"})
    assert (tmp_path / "lines").read_bytes() == b"1\r\n2\r\n", "the file keeps its ends of lines"
    assert tools["read"].run({"path": "lines"}) == "1\t1\n2\t2"
    with pytest.raises(GolemError, match="old occurs 0 times"):
        tools["edit"].run({"path": "d/f", "old": "two", "new": "2"})
    assert tools["shell"].run({"command": "echo hi; exit 3"}) == "exit 3\nhi"
    assert tools["shell"].run({"command": "true"}) == "(no output)"
    monkeypatch.setattr("golem_core.hub.builtin_tools.SHELL_SECONDS", 1.5)
    assert tools["shell"].run({"command": "echo a; sleep 60"}) == "a\n[ended after 1.5 s]"
    began = time.monotonic()
    assert tools["shell"].run({"command": "yes"}).endswith("\n[truncated]\n[ended after 1.5 s]")
    monkeypatch.setattr("golem_core.hub.builtin_tools.SHELL_SECONDS", 30)
    assert tools["shell"].run({"command": "setsid sleep 20 & echo a"}) == "a"
    assert tools["shell"].run({"command": "exec >&- 2>&-; exit 4"}) == "exit 4\n(no output)"
    assert tools["shell"].run({"command": "sleep 60 & echo a"}) == "a", "what is left is ended"
    assert tools["shell"].run({"command": "echo a; yes &"}).startswith("a"), "also if it writes all the while"
    assert time.monotonic() - began < 15
    long = tools["shell"].run({"command": "head -c 40000 /dev/zero | tr '\\0' x"})
    assert long == "x" * 32768 + "\n[truncated]"
    assert tools["skill"].run({"name": "tea"}) == "Boil water."
    with pytest.raises(GolemError, match="there is no skill"):
        tools["skill"].run({"name": "../tea"})
    with pytest.raises(GolemError, match="path is required"):
        tools["read"].run({})
    with pytest.raises(GolemError, match="offset must be of type integer"):
        tools["read"].run({"path": "d/f", "offset": "2"})
    groups.close()
    with pytest.raises(GolemError, match="-tools dance: there is no such tool"):
        builtin_tools(["dance"], tmp_path, groups, threading.Event())
