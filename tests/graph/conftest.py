"""A device after the other."""

from __future__ import annotations

import pytest

from .devices import OPENERS, installed


@pytest.fixture(scope="module", params=installed())
def device(request):
    opened = OPENERS[request.param]()
    yield opened
    opened.close()
