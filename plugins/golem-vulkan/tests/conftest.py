"""A device watched by the validation layer, where that is installed."""

from __future__ import annotations

import pytest
from golem_vulkan import notices
from golem_vulkan.adapters import Instance
from golem_vulkan.device import VulkanDevice

from golem_core import Unsupported


def layer_is_here() -> bool:
    try:
        Instance(validate=True).close()
    except Unsupported:
        return False
    return True


@pytest.fixture(scope="session")
def device(tmp_path_factory):
    """A pass of which the validation layer complains fails."""
    try:
        opened = VulkanDevice(validate=layer_is_here(), cache=tmp_path_factory.mktemp("cache"))
    except Unsupported as reason:
        pytest.skip(str(reason))
    yield opened
    opened.close()
    assert opened.complaints == []


@pytest.fixture
def said(monkeypatch):
    """What this process has said already: nothing."""
    found: set[str] = set()
    monkeypatch.setattr(notices, "_said", found)
    return found
