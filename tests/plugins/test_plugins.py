"""Finding plugins, asking them, and living with those that fail."""

from __future__ import annotations

import re

import pytest

from golem_core import plugins
from golem_core.errors import GolemError, Unsupported
from golem_core.hookspecs import DefaultModel, DeviceType, hookimpl
from golem_core.options import Option
from golem_core.plugins import Plugin, Plugins

DEVICE = """
    from golem_core.hookspecs import DeviceType, hookimpl

    @hookimpl
    def golem_devices():
        return [DeviceType("{name}", lambda: "here", lambda options: "{name} opened")]
"""


def named(found: Plugins, name: str) -> Plugin:
    return next(plugin for plugin in found.found if plugin.name == name)


def test_the_cores_own_parts_are_a_plugin_like_any_other() -> None:
    core = Plugins(entry_points=[]).found[0]
    assert core.name == "golem-core"
    assert {"golem_devices", "golem_samplers", "golem_endpoints"} <= set(core.hooks)
    assert core.failures == []


def test_an_installed_package_is_found_with_its_distribution_and_version(package) -> None:
    package("golem-radio", "1.2", "radio", DEVICE.format(name="radio"))
    found = Plugins()
    radio = named(found, "radio")
    assert (radio.distribution, radio.version, radio.hooks, radio.failures) == (
        "golem-radio",
        "1.2",
        ["golem_devices"],
        [],
    )
    assert found.device("radio").open({}) == "radio opened"


def test_a_plugin_that_cannot_be_imported_is_reported_and_the_rest_run(package) -> None:
    package("golem-broken", "1", "broken", "import a_module_that_is_not_there\n")
    package("golem-worse", "1", "worse", "raise SystemError('no luck')\n")
    package("golem-radio", "1", "radio", DEVICE.format(name="radio"))
    found = Plugins()
    assert "ModuleNotFoundError" in named(found, "broken").failures[0]
    assert "a_module_that_is_not_there" in named(found, "broken").failures[0]
    assert named(found, "worse").failures == ["SystemError: no luck"]
    assert found.device("radio").name == "radio"
    with pytest.raises(Unsupported, match=r"golem-broken: ModuleNotFoundError"):
        found.device("television")


def test_a_hook_that_raises_or_returns_nonsense_is_reported_and_the_rest_run(package) -> None:
    package(
        "golem-odd",
        "1",
        "odd",
        """
        from golem_core.hookspecs import hookimpl

        @hookimpl
        def golem_devices():
            raise ValueError("not today")

        @hookimpl
        def golem_options():
            return ["--flag"]
        """,
    )
    package("golem-radio", "1", "radio", DEVICE.format(name="radio"))
    found = Plugins()
    assert found.device("radio").name == "radio"
    assert found.options()
    first, second = named(found, "odd").failures
    assert first == "golem_devices: ValueError: not today"
    assert second.startswith("golem_options: TypeError: returned '--flag'")
    found.options()
    assert len(named(found, "odd").failures) == 2, "the same failure is told once"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from golem_core.hookspecs import hookimpl\n@hookimpl\ndef golem_devises(): ...\n", "golem_devises"),
        ("def golem_devices(): return []\n", "implements no hook"),
        ("from golem_core.hookspecs import hookimpl\n@hookimpl\ndef golem_devices(speed): ...\n", "speed"),
    ],
)
def test_a_plugin_whose_hooks_are_misspelt_is_told_so(package, source, reason) -> None:
    package("golem-typo", "1", "typo", source)
    [failure] = named(Plugins(), "typo").failures
    assert reason in failure


def test_two_devices_of_one_name_are_an_error_that_names_both_packages(package) -> None:
    package("golem-one", "1", "one", DEVICE.format(name="radio"))
    package("golem-two", "1", "two", DEVICE.format(name="radio"))
    with pytest.raises(GolemError, match="golem-one and golem-two"):
        Plugins().device("radio")
    assert Plugins(only=["golem-two"]).device("radio").name == "radio"


def test_two_packages_with_one_plugin_name_are_told_apart(package) -> None:
    package("golem-one", "1", "radio", DEVICE.format(name="one"))
    package("golem-two", "1", "radio", DEVICE.format(name="two"))
    found = Plugins()
    assert found.device("one").name == "one"
    assert found.device("two").name == "two"
    assert [plugin.name for plugin in found.found if "radio" in plugin.name] == ["radio", "radio (golem-two)"]


@pytest.mark.parametrize("only", [["radio"], ["golem-radio"], ["Golem_Radio"], ["golem-core", "radio"]])
def test_loading_is_restricted_by_plugin_or_distribution(package, only) -> None:
    package("golem-radio", "1", "radio", DEVICE.format(name="radio"))
    package("golem-other", "1", "other", DEVICE.format(name="other"))
    names = [plugin.name for plugin in Plugins(only=only).found]
    assert names == ["golem-core", "radio"]


def test_golem_plugins_in_the_environment_restricts_the_process(package, monkeypatch) -> None:
    package("golem-radio", "1", "radio", DEVICE.format(name="radio"))
    monkeypatch.setenv("GOLEM_PLUGINS", "")
    assert [plugin.name for plugin in plugins.installed().found] == ["golem-core"]
    plugins.installed.cache_clear()
    monkeypatch.setenv("GOLEM_PLUGINS", "golem-core")
    assert [plugin.name for plugin in plugins.installed().found] == ["golem-core"]
    plugins.installed.cache_clear()
    monkeypatch.setenv("GOLEM_PLUGINS", " radio ,")
    assert [plugin.name for plugin in plugins.installed().found] == ["golem-core", "radio"]
    plugins.installed.cache_clear()
    monkeypatch.setenv("GOLEM_PLUGINS", "radio,television")
    with pytest.raises(
        GolemError, match=r"GOLEM_PLUGINS names 'television', which is not installed; installed: .*radio"
    ):
        plugins.installed()


def test_a_plugin_can_be_registered_for_a_while() -> None:
    class Throwaway:
        @hookimpl
        def golem_default_models(self):
            return [
                DefaultModel("small", "pkg-small", lambda: None, 1),
                DefaultModel("big", "pkg-big", lambda: None, 5),
            ]

        @hookimpl
        def golem_options(self):
            return [Option("stt", "Speech to text.")]

    plugin = Throwaway()
    found = Plugins(entry_points=[])
    found.manager.register(plugin, "throwaway")
    assert [record.name for record in found.default_models()] == ["big", "small"]
    assert "stt" in [option.name for option in found.options()]
    found.manager.unregister(plugin)
    assert found.default_models() == []


def test_an_option_that_repeats_a_name_is_reported() -> None:
    class Twice:
        @hookimpl
        def golem_options(self):
            return [Option("context", "Mine."), Option("new", "New.")]

    found = Plugins(entry_points=[])
    found.manager.register(Twice(), "twice")
    options = found.options()
    assert [option.help for option in options if option.name == "context"] != ["Mine."]
    assert "new" in [option.name for option in options]
    assert named(found, "twice").failures == ["golem_options: the option -context is already golem-core's"]


def test_an_unknown_device_lists_those_that_are_there() -> None:
    with pytest.raises(Unsupported, match=r"'abacus'.*installed: cpu"):
        Plugins(entry_points=[]).device("abacus")


def test_the_cpu_says_what_it_is() -> None:
    device = Plugins(entry_points=[]).device("cpu")
    assert isinstance(device, DeviceType)
    assert re.search(
        r"\d+ processors, kernels for (avx512-vnni|avx-vnni|avx2|neon-i8mm|neon-dotprod|baseline)$", device.probe()
    )
