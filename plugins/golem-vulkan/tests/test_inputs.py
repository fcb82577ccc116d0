"""Inputs that are handed over again: what nobody can have changed is not copied, everything else is."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core import Columns, Graph


@pytest.fixture
def doubled(device):
    g = Graph()
    g.output("y", g.scale(g.input("x", (64,)), by=2.0))
    made = device.compile(g, width=4, scored=4)

    def run(rows: np.ndarray) -> np.ndarray:
        places = np.arange(len(rows))
        return made.run(Columns(np.zeros(len(rows)), places, np.zeros(len(rows)), places, {"x": rows}))["y"].copy()

    yield run
    made.close()


def test_an_input_that_cannot_change_is_copied_once(doubled):
    rows, others = np.full((4, 64), 3, np.float32), np.full((4, 64), 5, np.float32)
    rows.flags.writeable = False
    for given in (rows, rows, others, rows):
        np.testing.assert_array_equal(doubled(given), 2 * given)


def test_a_read_only_view_of_what_changes_is_copied_again(doubled):
    rows = np.ones((4, 64), np.float32)
    view = rows.view()
    view.flags.writeable = False
    for value in (1, 7):
        rows[:] = value
        np.testing.assert_array_equal(doubled(view), np.full((4, 64), 2 * value))
