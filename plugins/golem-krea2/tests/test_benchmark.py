"""The benchmark says at once what it lacks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PICTURES = Path(__file__).parents[1] / "benchmarks" / "pictures.py"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_without_pytorch_nothing_is_begun():
    found = subprocess.run([sys.executable, str(PICTURES)], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2 and found.stdout == ""
    assert "PyTorch's side needs torch" in found.stderr and "--peer-device none" in found.stderr
