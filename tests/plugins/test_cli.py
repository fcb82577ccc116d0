"""The command line: both spellings of every option, their environment variables, and mistakes told in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from golem_core import GraphError, Unsupported, cli, open_device, plugins
from golem_core.options import Address, Option, address, duration


@pytest.fixture
def golem(monkeypatch, capsys):
    """Run the program in this process: golem("serve", "-n", "5") → (status, what serve was given, stderr)."""
    given: list[dict[str, Any]] = []
    for name in ("GOLEM_MODEL", "GOLEM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    commands = {name: (text, given.append, extra) for name, (text, _, extra) in cli._COMMANDS.items()}
    monkeypatch.setattr(cli, "_COMMANDS", commands)

    def run(*arguments: str) -> tuple[int, Any, str]:
        given.clear()
        own = {name: command for name, command in cli.cli.commands.items() if name not in commands}
        monkeypatch.setattr(cli.cli, "commands", own)  # put back afterwards, so that no faked command stays behind
        monkeypatch.setattr(cli.cli, "_whole", False)  # as it was, too: whoever comes next asks the packages again
        monkeypatch.setattr(sys, "argv", ["golem", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        status: Any = stopped.value.code
        output = capsys.readouterr()
        return status, (given[0] if given else output.out), output.err

    yield run
    for name in ("serve", "run"):
        cli.cli.commands.pop(name, None)


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("model", "a.gguf", "a.gguf"),
        ("addr", ":0", Address("", 0)),
        ("context", "2048", 2048),
        ("n", "7", 7),
        ("parallel", "4", 4),
        ("cache-ttl", "1h30m", 5400.0),
        ("device", "radio", "radio"),
        ("threads", "3", 3),
        ("api-key", "a,b", ("a", "b")),
        ("cors", "http://a:1, https://B/", ("http://a:1", "https://b")),
    ],
)
def test_an_option_is_taken_with_one_dash_two_and_from_the_environment(golem, monkeypatch, dashes, name, text, value):
    assert golem("serve", dashes + name, text)[1][name] == value
    assert golem("serve", f"{dashes}{name}={text}")[1][name] == value
    variable = "GOLEM_" + name.upper().replace("-", "_")
    monkeypatch.setenv(variable, text)
    assert golem("serve")[1][name] == value
    other = {"addr": "h:1", "cache-ttl": "2s", "model": "b", "device": "b", "api-key": "c", "cors": "*"}
    other = other.get(name, "9")
    assert golem("serve", dashes + name, other)[1][name] not in (value, None), "the flag beats the variable"


def test_defaults_are_those_of_the_documentation(golem) -> None:
    status, options, _ = golem("serve")
    assert status == 0
    assert options["addr"] == Address("127.0.0.1", 8080)
    assert (options["context"], options["n"], options["parallel"], options["cache-ttl"]) == (4096, 1024, 1, 0.0)
    assert (options["device"], options["threads"], options["model"]) == ("cpu", None, None)
    assert options["builtin-template"] is False


def test_a_switch_is_read_from_flag_and_environment(golem, monkeypatch) -> None:
    assert golem("serve", "-builtin-template")[1]["builtin-template"] is True
    monkeypatch.setenv("GOLEM_BUILTIN_TEMPLATE", "0")
    assert golem("serve")[1]["builtin-template"] is False
    assert golem("serve", "--builtin-template")[1]["builtin-template"] is True
    monkeypatch.setenv("GOLEM_BUILTIN_TEMPLATE", "1")
    assert golem("serve")[1]["builtin-template"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-context", "abc"], ["-context", "'abc'"]),
        (["-context", "0"], ["-context", "'0'", "from 2 to 999999999999999999"]),
        (["-n", "9" * 5000], ["-n", "from 1 to 999999999999999999"]),
        (["-context", "-5"], ["-context", "'-5'"]),
        (["--n=1.5"], ["-n", "'1.5'"]),
        (["-addr", "localhost"], ["-addr", "'localhost'", "HOST:PORT"]),
        (["-addr", "h:99999"], ["-addr", "'h:99999'"]),
        (["-cache-ttl", "5 minutes"], ["-cache-ttl", "'5 minutes'"]),
        (["-cors", "example.org"], ["-cors", "'example.org'", "https://"]),
        (["-contxt", "5"], ["-contxt", "-context"]),
        (["-model"], ["-model"]),
        (["stray"], ["stray"]),
    ],
)
def test_a_mistake_is_one_line_that_names_option_and_value(golem, arguments, words) -> None:
    status, _, error = golem("serve", *arguments)
    assert status == 2
    assert error.startswith("golem: ") and error.count("\n") == 1
    for word in words:
        assert word in error


def test_a_mistake_in_the_environment_names_the_variable(golem, monkeypatch) -> None:
    monkeypatch.setenv("GOLEM_CONTEXT", "abc")
    assert golem("serve")[::2] == (2, "golem: GOLEM_CONTEXT 'abc': expected a whole number of at least 2\n")
    monkeypatch.delenv("GOLEM_CONTEXT")
    monkeypatch.setenv("GOLEM_BUILTIN_TEMPLATE", "maybe")
    assert golem("serve")[::2] == (2, "golem: GOLEM_BUILTIN_TEMPLATE 'maybe': expected 1 or 0\n")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_plugins_are_listed_though_golem_plugins_names_one_that_is_missing(golem, monkeypatch, arguments) -> None:
    plugins.installed.cache_clear()
    monkeypatch.setenv("GOLEM_PLUGINS", "nope")
    try:
        status, output, error = golem("plugins", *arguments)
    finally:
        plugins.installed.cache_clear()
    assert status == 1 and "golem-core" in output and "failed" not in output
    assert error.count("\n") == 1 and "'nope'" in error


def test_run_takes_a_prompt_and_its_switches(golem) -> None:
    options = golem("run", "-p", "-hello", "-stats", "-raw", "-n", "5")[1]
    assert (options["prompt"], options["stats"], options["raw"], options["n"]) == ("-hello", True, True, 5)
    assert "addr" not in options
    assert golem("run", "-addr", ":1")[0] == 2


@pytest.mark.parametrize("flag", ["-version", "--version"])
def test_the_version_is_printed(golem, flag) -> None:
    for arguments in ([flag], ["serve", flag], ["run", flag]):
        assert golem(*arguments)[:2] == (0, f"golem {plugins.version()}\n")


def test_plugins_are_listed_with_their_failures(golem, package) -> None:
    package("golem-broken", "3.1", "broken", "raise ValueError('sorry')\n")
    status, listing, _ = golem("plugins")
    assert status == 0
    assert "golem-core" in listing and "devices, endpoints, parts" in listing
    assert "broken failed: ValueError: sorry" in listing
    records = {record["name"]: record for record in json.loads(golem("plugins", "--json")[1])}
    assert records["broken"] == {
        "name": "broken",
        "distribution": "golem-broken",
        "version": "3.1",
        "hooks": [],
        "failures": ["ValueError: sorry"],
    }
    assert "golem_devices" in records["golem-core"]["hooks"]


def test_devices_say_what_is_there_and_what_is_missing(golem, package) -> None:
    package(
        "golem-abacus",
        "1",
        "abacus",
        """
        from golem_core import DeviceType, Unsupported, hookimpl

        def probe():
            raise Unsupported("no beads")

        @hookimpl
        def golem_devices():
            return [DeviceType("abacus", probe, print)]
        """,
    )
    status, listing, _ = golem("devices")
    assert status == 0
    assert re.search(r"^cpu: .* processors, kernels for \S+$", listing, re.M)
    assert re.search(r"^abacus: no beads$", listing, re.M)
    records = {record["name"]: record for record in json.loads(golem("devices", "--json")[1])}
    assert records["abacus"] == {"name": "abacus", "plugin": "abacus", "there": False, "description": "no beads"}
    assert records["cpu"]["there"]


def test_a_device_whose_package_is_not_whole_is_one_line(golem, package) -> None:
    package(
        "golem-abacus",
        "1",
        "abacus",
        """
        from golem_core import DeviceType, hookimpl

        def lacking(*_):
            import beads_that_are_nowhere

        def broken(*_):
            raise ValueError("bent\\nrods")

        @hookimpl
        def golem_devices():
            return [DeviceType("abacus", lacking, lacking), DeviceType("soroban", broken, broken)]
        """,
    )
    status, listing, complaint = golem("devices")
    assert (status, complaint) == (0, "")
    assert re.search(r"^cpu: .* processors", listing, re.M)
    assert "\nabacus: No module named 'beads_that_are_nowhere'; install the package" in listing
    assert "\nsoroban: ValueError: bent rods\n" in listing
    records = {record["name"]: record for record in json.loads(golem("devices", "--json")[1])}
    assert not records["abacus"]["there"]
    with pytest.raises(Unsupported, match="abacus: No module named 'beads_that_are_nowhere'; install"):
        open_device({"device": "abacus"})


def test_a_switch_with_the_name_of_a_kind_chooses_the_device(golem, package, monkeypatch) -> None:
    package(
        "golem-abacus",
        "1",
        "abacus",
        """
        from golem_core import DeviceType, Option, hookimpl

        @hookimpl
        def golem_devices():
            return [DeviceType("abacus", lambda: "one\\ntwo", print)]

        @hookimpl
        def golem_options():
            return [Option("abacus", "Count on the abacus.", bool, False)]
        """,
    )
    assert golem("serve", "-abacus")[1]["device"] == "abacus"
    assert golem("serve", "-abacus", "-device", "abacus:1")[1]["device"] == "abacus:1"
    for other in ("radio", "cpu"):
        status, _, complaint = golem("serve", "-abacus", "-device", other)
        assert (status, complaint) == (1, f"golem: -abacus: another device is asked for too, {other}\n")
    assert plugins.installed().device("abacus:1").name == "abacus"

    monkeypatch.setenv("GOLEM_ABACUS", "1")
    assert golem("serve")[1]["device"] == "abacus"
    assert golem("serve", "-device", "cpu")[1]["device"] == "cpu"
    assert golem("serve", "-device", "abacus:1")[1]["device"] == "abacus:1"
    monkeypatch.setenv("GOLEM_DEVICE", "radio")
    assert golem("serve")[0] == 1
    assert golem("serve", "-abacus")[1]["device"] == "abacus"
    monkeypatch.setenv("GOLEM_DEVICE", "abacus:1")
    assert golem("serve", "-abacus")[1]["device"] == "abacus:1"
    assert golem("serve", "-device", "cpu")[1]["device"] == "cpu"
    assert "abacus: one\nabacus: two\n" in golem("devices")[1]


def test_plugins_add_options_and_commands(golem, package) -> None:
    package(
        "golem-stt",
        "1",
        "stt",
        """
        import click
        from golem_core.hookspecs import hookimpl
        from golem_core.options import Option, positive

        @hookimpl
        def golem_options():
            return [Option("stt-parallel", "Recordings at once.", positive, 1)]

        @hookimpl
        def golem_commands(cli):
            @cli.command("repeat-it")
            def repeat_it():
                click.echo("what was said")
        """,
    )
    try:
        assert golem("serve", "-stt-parallel", "3")[1]["stt-parallel"] == 3
        assert golem("serve", "-stt-parallel", "none")[0] == 2
        assert golem("repeat-it")[1] == "what was said\n"
    finally:
        cli.cli.commands.pop("repeat-it", None)


def test_what_a_plugin_asks_of_a_graph_in_vain_is_told_with_its_place(golem, package) -> None:
    package(
        "golem-flat",
        "1.0",
        "flat",
        """
        from golem_core import Graph, GraphError, hookimpl

        @hookimpl
        def golem_commands(cli):
            @cli.command("flat")
            def flat():
                Graph().view(Graph().input("x", (7,)), (5, 25))

            @cli.command("plain")
            def plain():
                raise GraphError("in vain")
        """,
    )
    try:
        status, _, told = golem("flat")
        assert status == 1 and told.startswith("golem: view: ") and re.search(r"\(\S+flat.*\.py:8\)\n$", told), told
        assert re.search(r"in vain \(\S+flat.*\.py:12\)\n$", golem("plain")[2])
    finally:
        for name in ("flat", "plain"):
            cli.cli.commands.pop(name, None)
    assert cli._place(GraphError("of the core itself")) == ""


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("raise SystemExit('no key is set')", "golem_architectures: SystemExit: no key is set"),
        ("raise Mute", "golem_architectures: Mute: its text can't be made: ValueError"),
    ],
)
def test_a_hook_that_exits_or_raises_what_has_no_text(golem, package, statement, told) -> None:
    source = f"""
        from golem_core import hookimpl

        class Mute(Exception):
            def __str__(self):
                raise ValueError

        @hookimpl
        def golem_architectures():
            {statement}
        """
    package("golem-odd", "1.0", "odd", textwrap.dedent(source))
    status, listing, _ = golem("plugins")
    assert status == 0 and f"odd failed: {told}" in listing


def test_what_fails_when_it_is_asked_and_what_is_claimed_twice_is_listed(golem, package) -> None:
    claims = """
        import click
        from golem_core import Architecture, ChatModel, Option, Part, hookimpl

        @hookimpl
        def golem_architectures():
            record = Architecture(("twice",), ChatModel, lambda file: None)
            return [record, Architecture("text", ChatModel, lambda file: None)]

        @hookimpl
        def golem_parts():
            return [Part("thing", lambda options: None)]

        @hookimpl
        def golem_options():
            return [Option("Not A Name", ""), Option("help", ""), Option("mine", "", env="GOLEM_MODEL")]

        @hookimpl
        def golem_commands(cli):
            cli.add_command(click.Command("serve"))
            cli.add_command(click.Command("plugins"))
            cli.add_command(click.Command("ours"))
    """
    package("golem-first", "1", "first", claims)
    package("golem-second", "1", "second", claims)
    package("golem-wrong", "1", "wrong", "from golem_core import hookimpl\n@hookimpl\ndef golem_parts(x): return []\n")
    package(
        "golem-raises", "1", "raises", "from golem_core import hookimpl\n@hookimpl\ndef golem_parts(): return 1/0\n"
    )
    try:
        failed = {each["name"]: each["failures"] for each in json.loads(golem("plugins", "--json")[1])}
        commands = cli.cli.commands
        assert commands["plugins"] is cli.list_plugins
        assert "serve" not in commands or commands["serve"].callback is not None
    finally:
        cli.cli.commands.pop("ours", None)
    both = "claimed by golem-first and golem-second; uninstall one, or choose with GOLEM_PLUGINS=NAME"
    names = "expected lower-case words joined by -, and none of h, help and version"
    assert sorted(failed["first"]) == [
        "golem_architectures: names is the text 'text'; expected a tuple of texts",
        f"golem_architectures: the architecture 'twice' is {both}",
        "golem_commands: the command plugins is already golem-core's",
        "golem_commands: the command serve is already golem-core's",
        f"golem_options: an option cannot be called 'Not A Name': {names}",
        f"golem_options: an option cannot be called 'help': {names}",
        "golem_options: the variable GOLEM_MODEL of -mine is already golem-core's",
        f"golem_parts: the option '-thing' is {both}",
    ]
    assert sorted(failed["second"]) == sorted(
        [*failed["first"], "golem_commands: the command ours is already golem-first's"]
    )
    (reason,) = failed["wrong"]
    assert "\n" not in reason and "declared in the hookimpl but can not be found in the hookspec" in reason
    assert failed["raises"] == ["golem_parts: ZeroDivisionError: division by zero"]


@pytest.mark.parametrize("command", [["--version"], ["plugins"], ["plugins", "--json"]])
def test_small_commands_import_nothing_heavy(command) -> None:
    heavy = ("litestar", "uvicorn", "llvmlite", "tokenizers", "sentencepiece", "jinja2", "gguf")
    code = f"import sys; sys.argv = ['golem', *{command!r}]\nfrom golem_core import cli\n"
    code += "try: cli.main()\nexcept SystemExit: pass\n"
    code += f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"GOLEM_PLUGINS": "", "PATH": ""}, check=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("300ms", 0.3),
        ("2m0.5s", 120.5),
        ("7µs", 7e-6),
    ],
)
def test_durations_are_gos(text, seconds) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "-5m", "5 m", "m", "1h-3m", "5d", "1,5h", "h1"])
def test_other_durations_are_refused(text) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        (":80", Address("", 80)),
        ("[::1]:0", Address("::1", 0)),
        ("my-host.example:65535", Address("my-host.example", 65535)),
    ],
)
def test_addresses_are_host_and_port(text, found) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", "::1:80", "host:-1", "host:65536", "a b:1", "host:1:2"])
def test_other_addresses_are_refused(text) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        address(text)


def test_an_option_names_its_variable() -> None:
    assert Option("cache-ttl", "").variable == "GOLEM_CACHE_TTL"
    assert Option("stt", "", env="SPEECH").variable == "SPEECH"


def test_a_mistaken_option_is_named_even_beside_a_right_one_with_its_letter(golem):
    status, _, text = golem("serve", "-model", "x", "-modle", "y")
    assert status == 2
    assert "no such option: -modle; did you mean -model?" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "-parallel=4", "-n", "3"], "no such option: -parallel; only golem serve has it"),
        (["run", "-parallel", "4"], "no such option: -parallel; only golem serve has it"),
        (["run", "-prompts", "-n", "3"], "no such option: -prompts; did you mean -prompt?"),
        (["serve", "-nparallel", "4"], "no such option: -nparallel; did you mean -parallel?"),
        (["run", "-p", "-parallel", "-nn"], "no such option: -nn;"),
    ],
)
def test_a_word_that_begins_with_an_options_letter_is_no_value_of_it(golem, arguments, said):
    status, _, text = golem(*arguments)
    assert status == 2 and text.startswith(f"golem: {said}"), text


@pytest.mark.parametrize("given", [["-n5"], ["-n=5"], ["-n", "5"], ["-p", "-nice", "-n5"], ["-p=-nice", "-n5"]])
def test_a_number_may_follow_an_options_letter(golem, given):
    assert golem("run", *given)[1]["n"] == 5


def test_an_option_of_another_command_is_said_to_be_there(golem):
    status, _, text = golem("bench", "-addr", ":80")
    assert golem("serve", "-zither")[2].endswith(
        f"no such option: -zither; no installed package has it; {plugins.HINT}\n"
    )
    assert golem("zither")[2] == f"golem: no such command: zither; no installed package has it; {plugins.HINT}\n"
    assert golem("devise")[2].endswith("did you mean devices?\n") and plugins.HINT in golem("devil")[2]
    assert golem("serv")[0] == 2 and "no such command: serv; did you mean serve?" in golem("serv")[2]
    assert status == 2 and "no such option: -addr; only golem serve has it" in text
    _, _, text = golem("bench", "--mmproj=x")
    assert "no such option: --mmproj; only golem run or golem serve has it" in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["plugins"], ["-version"], ["serve", "-help"]])
def test_an_output_that_is_full_is_told_in_one_line(arguments):
    program = [sys.executable, "-c", "from golem_core.cli import main; main()", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "golem: standard output: No space left on device\n")
