"""Memory outside Python's heap."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core.cpu.memory import LARGE_PAGE, together


@pytest.mark.parametrize("sizes", [[], [0], [1, 64, 65, 0, 7], [LARGE_PAGE // 3] * 9])
def test_pieces_of_one_room_are_aligned_zeros_apart_from_each_other(sizes: list[int]):
    pieces = together(sizes)
    assert [piece.nbytes for piece in pieces] == sizes
    for number, piece in enumerate(pieces):
        assert not piece.nbytes or piece.ctypes.data % 64 == 0
        assert not piece.any()
        piece[:] = number + 1
    assert all(np.all(piece == number + 1) for number, piece in enumerate(pieces))


def test_small_pieces_lie_on_large_pages_together():
    pieces = together([LARGE_PAGE // 2] * 8)
    assert pieces[0].ctypes.data % LARGE_PAGE == 0
    assert [piece.ctypes.data - pieces[0].ctypes.data for piece in pieces] == [n * LARGE_PAGE // 2 for n in range(8)]
