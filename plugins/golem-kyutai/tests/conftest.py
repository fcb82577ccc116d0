"""The tiny checkpoint, written once, and what moshi and transformers compute of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from golem_kyutai.checkpoint import Checkpoint

from golem_core.cpu.device import CpuDevice

HERE = Path(__file__).parent


def _tiny():
    spec = importlib.util.spec_from_file_location("kyutai_tiny", HERE / "tiny.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kyutai_tiny"] = module
    spec.loader.exec_module(module)
    return module


_loaded = _tiny()


@pytest.fixture(scope="session")
def tiny():
    """The module that makes the checkpoint."""
    return _loaded


@pytest.fixture(scope="session")
def directory(tmp_path_factory, tiny):
    return tiny.write_checkpoint(tmp_path_factory.mktemp("kyutai") / "stt-tiny")


@pytest.fixture(scope="session")
def checkpoint(directory):
    opened = Checkpoint.open(directory)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def expected():
    return dict(np.load(HERE / "fixtures" / "expected.npz"))


@pytest.fixture(scope="session")
def device():
    opened = CpuDevice(threads=2, kv="f32")
    yield opened
    opened.close()
