"""The tiny checkpoints of `fixtures/`, and a device for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from golem_laya.checkpoint import Checkpoint
from golem_laya.decider import Decider

from golem_core.cpu.device import CpuDevice

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ["english", "multilingual"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def checkpoint(name):
    with_it = Checkpoint.open(FIXTURES / name)
    yield with_it
    with_it.close()


@pytest.fixture
def expected(name):
    return dict(np.load(FIXTURES / name / "expected.npz"))


@pytest.fixture
def decider(checkpoint):
    return Decider(checkpoint, CpuDevice(threads=2))


@pytest.fixture
def english():
    checkpoint = Checkpoint.open(FIXTURES / "english")
    yield Decider(checkpoint, CpuDevice(threads=2))
    checkpoint.close()


@pytest.fixture
def copied(tmp_path):
    """A copy of the English checkpoint, to be damaged."""
    shutil.copytree(FIXTURES / "english", tmp_path / "laya")
    return tmp_path / "laya"
