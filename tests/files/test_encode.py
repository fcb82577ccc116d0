"""Encoded weights equal gguf-py's, which equal ggml's, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from golem_core import Unsupported, Weight, encoded
from golem_core.files import ENCODERS


def weight(x: np.ndarray, type_: str = "F32") -> Weight:
    return Weight("w", type_, x.shape, np.frombuffer(x.tobytes(), np.uint8))


@pytest.mark.parametrize("type_", ENCODERS)
def test_blocks_are_ggmls(type_, monkeypatch):
    monkeypatch.setattr("golem_core.files.encode.PIECE", 1 << 10)  # so that there are several pieces, and one is short
    dice = np.random.default_rng(1)
    x = (dice.standard_normal((37, 96)) * dice.uniform(1e-4, 100, (37, 1))).astype(np.float32)
    x[3] = 0
    x[4] = np.round(x[4])
    x[5, :32] = np.linspace(-127, 127, 32, dtype=np.float32) / 2  # halves
    made = encoded(weight(x), type_)
    want = gguf.quants.quantize(x, getattr(gguf.GGMLQuantizationType, type_))
    assert made.shape == x.shape and made.nbytes == want.nbytes
    assert np.array_equal(made.data, want.reshape(-1))
    assert np.abs(made.dequantize() - x).max() <= np.abs(x).max() / (7 if type_ == "Q4_0" else 120)


def test_what_cannot_be_encoded_is_refused_by_name():
    with pytest.raises(Unsupported, match=r"w: Q5_K cannot be encoded, only Q8_0, Q4_0"):
        encoded(weight(np.zeros((2, 256), np.float32)), "Q5_K")
    with pytest.raises(Unsupported, match=r"w: rows of 40 entries are no whole number of Q8_0's blocks of 32"):
        encoded(weight(np.zeros((2, 40), np.float32)), "Q8_0")
