"""The noise levels, to the last bit of ComfyUI's."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from golem_krea2 import schedule


def test_the_table_is_that_of_comfyui_to_the_last_bit():
    table = schedule.table()
    assert table.dtype == np.float32 and len(table) == 10_000
    assert table[-1] == 1 and np.all(np.diff(table) > 0)
    # of `ModelSamplingFlux` at a shift of 1.15, computed with torch
    assert zlib.crc32(table.astype("<f4").tobytes()) == 0x2F091FD8


def test_eight_steps():
    expected = [1.0, 0.95672369, 0.904530764, 0.84034878, 0.759510934, 0.654566824, 0.512844086, 0.310901076, 0]
    assert schedule.sigmas(8).tolist() == np.float32(expected).tolist()


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20, 99, 100])
def test_levels_go_down_to_nought(steps):
    found = schedule.sigmas(steps)
    assert found.dtype == np.float32 and len(found) == steps + 1
    assert found[0] == 1 and found[-1] == 0 and np.all(np.diff(found) < 0)
    table = schedule.table()
    assert found[:-1].tolist() == [table[-1 - int(k * (10_000 / steps))] for k in range(steps)]


def test_a_level_of_one_is_put_below_it():
    levels = schedule.sigmas(8)
    below = schedule.below_one(levels)
    assert below[0] == np.float32(0.99996835) and below[1:].tolist() == levels[1:].tolist()
    assert levels[0] == 1, "the levels that were handed in are left alone"
    assert schedule.below_one(below).tolist() == below.tolist()
