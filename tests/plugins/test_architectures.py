"""Which plugin opens which architecture."""

from __future__ import annotations

from typing import Any

import pytest

from golem_core.engine.roles import Architecture, ChatModel
from golem_core.errors import GolemError, Unsupported
from golem_core.hookspecs import hookimpl
from golem_core.plugins import Plugins


class Opens:
    def __init__(self, *names: str):
        self.record = Architecture(names, ChatModel, lambda file: file)

    @hookimpl
    def golem_architectures(self) -> Any:
        return [self.record]


def test_an_architecture_is_opened_by_the_plugin_that_names_it() -> None:
    found = Plugins(entry_points=[])
    plugin = Opens("alpha", "alpha2")
    found.manager.register(plugin, "golem-alpha")
    assert found.architecture("alpha2") is plugin.record


def test_one_that_nobody_opens_lists_what_is_installed() -> None:
    found = Plugins(entry_points=[])
    found.manager.register(Opens("alpha"), "golem-alpha")
    with pytest.raises(Unsupported, match=r"architecture 'beta'; installed: alpha \(golem-alpha\)"):
        found.architecture("beta")
    with pytest.raises(Unsupported, match="installed: none"):
        Plugins(entry_points=[]).architecture("beta")


def test_two_claims_to_one_name_are_an_error_that_names_both() -> None:
    found = Plugins(entry_points=[])
    found.manager.register(Opens("alpha", "beta"), "golem-one")
    found.manager.register(Opens("beta"), "golem-two")
    assert found.architecture("alpha")
    with pytest.raises(GolemError, match="'beta' is claimed by golem-one and golem-two"):
        found.architecture("beta")
