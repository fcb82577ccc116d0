"""The ways in which a family's tests run a graph, as fixtures for the conftest of its package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from golem_core import Columns, Graph, Reference
from golem_core.cpu.device import CpuDevice

Compile = Callable[..., Any]


@pytest.fixture(scope="session")
def cpu():
    """The CPU as a device that keeps keys and values in full precision, to be compared with float32."""
    device = CpuDevice(threads=2, kv="f32")
    yield device
    device.close()


@pytest.fixture(params=["reference", "cpu", "cpu without fusions"])
def compile(request, cpu) -> Compile:
    """compile(graph, slots=, context=, width=) -> something whose run(columns) gives the outputs."""

    def make(graph: Graph, slots: int = 1, context: int = 64, width: int = 32) -> Any:
        if request.param == "reference":
            return Reference(graph, slots=slots, context=context)
        fuse = request.param == "cpu"
        return cpu.compile(graph, slots=slots, context=context, width=width, scored=width, fuse=fuse)

    return make


@pytest.fixture
def columns():
    """columns(tokens, start=, slot=, scored=): one conversation's tokens from position `start` on, all scored."""

    def make(tokens, start: int = 0, slot: int = 0, scored=None) -> Columns:
        n = len(tokens)
        return Columns(tokens, start + np.arange(n), np.full(n, slot), np.arange(n) if scored is None else scored)

    return make
