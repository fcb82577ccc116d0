"""Sets of tokens in bits, held to sets of Python."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core.sampling.grammar.token_set import TokenSet


def packed(tokens: set[int], size: int) -> np.ndarray:
    flags = np.zeros(size, bool)
    flags[sorted(tokens)] = True
    return np.packbits(flags, bitorder="little")


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("given", [3, 200, 2000])
def test_a_set_has_the_tokens_below_its_size(size, given):
    random = np.random.default_rng(size)
    tokens = set(random.choice(given, given // 2, replace=False).tolist())
    found = TokenSet(size, packed(tokens, given))
    expected = {token for token in tokens if token < size}
    assert set(found.ids().tolist()) == expected and len(found) == len(expected)
    assert {token for token in range(-3, size + 9) if token in found} == expected
    assert np.flatnonzero(found.flags()).tolist() == sorted(expected) and len(found.flags()) == size


def test_tokens_are_added_and_removed_also_those_that_share_a_byte():
    found = TokenSet.none(20)
    found.add(np.array([1, 2, 3, 17, 25]))
    found.remove(np.array([2, 2, 19, 30]))
    assert found.ids().tolist() == [1, 3, 17]
    full = TokenSet.every(20)
    full.remove(np.array([0, 1, 19]))
    assert full.ids().tolist() == list(range(2, 19)) and len(full) == 17


@pytest.mark.parametrize("size", [5, 8, 300])
@pytest.mark.parametrize("others", [1, 3, 100])
def test_the_logits_of_all_others_become_minus_infinity(size, others):
    random = np.random.default_rng(1)
    tokens = {token for token in range(size) if token % others}
    logits = random.normal(0, 100, size).astype(np.float32)
    logits[4] = -np.inf
    held = logits.copy()
    TokenSet(size, packed(tokens, size)).hold(held)
    expected = np.where([token in tokens for token in range(size)], logits, -np.inf)
    np.testing.assert_array_equal(held, expected)
