"""Sets of token ids with one bit each, and what they do to a row of logits.

A vocabulary has up to some 260,000 entries, and a set of them is made for every token of an answer: the bits are
never made into numbers one by one.
"""

from __future__ import annotations

import numpy as np

__all__ = ["TokenSet"]

# What is added to eight logits for each value of a byte of bits; as one item of 32 bytes, so that taking is copying.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_ADDED = np.where(_BITS, np.float32(0), np.float32(-np.inf)).view("V32").reshape(256)


class TokenSet:
    """Some of the tokens below `size`.

    `bits` has them in ascending order, the lowest bit of a byte first, as uint8 (n,): what is missing is not in the
    set, what is too much is ignored.  A set that is to be changed needs bits of its own.
    """

    def __init__(self, size: int, bits: np.ndarray):
        self.size = size
        self._bits = _fitted(bits, size)

    @classmethod
    def none(cls, size: int) -> TokenSet:
        """The empty set."""
        return cls(size, np.zeros(-(-size // 8), np.uint8))

    @classmethod
    def every(cls, size: int) -> TokenSet:
        """All tokens below `size`."""
        return cls(size, np.full(-(-size // 8), 255, np.uint8))

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def __bool__(self) -> bool:
        return bool(self._bits.any())

    @property
    def sparse(self) -> bool:
        """Whether at least seven in eight tokens are not in the set, counted coarsely."""
        return int(np.count_nonzero(self._bits)) * 8 <= len(self._bits)

    def __contains__(self, token: int) -> bool:
        return 0 <= token < self.size and bool(self._bits[token >> 3] >> (token & 7) & 1)

    def add(self, tokens: np.ndarray) -> None:
        """Put tokens (int64 (n,)) in; those that are not below `size` are ignored."""
        at, bits = self._bytes_of(tokens)
        np.bitwise_or.at(self._bits, at, bits)

    def remove(self, tokens: np.ndarray) -> None:
        """Take tokens out."""
        at, bits = self._bytes_of(tokens)
        np.bitwise_and.at(self._bits, at, ~bits)

    def ids(self) -> np.ndarray:
        """The tokens in ascending order: int64 (n,)."""
        return _places(self._bits)

    def flags(self) -> np.ndarray:
        """For each token whether it is in the set: bool (size,)."""
        return np.unpackbits(self._bits, count=self.size, bitorder="little").view(bool)

    def hold(self, logits: np.ndarray) -> None:
        """Make the logits (float32 (size,), none infinite above) of all other tokens minus infinity."""
        others = ~self._bits
        if self.size & 7:
            others[-1] &= (1 << (self.size & 7)) - 1
        if int(np.count_nonzero(others)) * 4 <= len(others):
            logits[_places(others)] = -np.inf
        else:
            logits += _ADDED.take(self._bits).view(np.float32)[: self.size]

    def _bytes_of(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tokens = tokens[tokens < self.size]
        return tokens >> 3, np.left_shift(1, tokens & 7).astype(np.uint8)


def _places(bits: np.ndarray) -> np.ndarray:
    """Where the bits are that are set, in ascending order: int64 (n,).  Bytes that are 0 are passed over."""
    at = np.flatnonzero(bits != 0)
    within = np.flatnonzero(np.unpackbits(bits[at], bitorder="little").view(bool))
    return (at[within >> 3] << 3) + (within & 7)


def _fitted(bits: np.ndarray, size: int) -> np.ndarray:
    """Bits of as many bytes as `size` tokens take, those of a last byte that are too much 0."""
    count = -(-size // 8)
    if len(bits) < count:
        return np.concatenate([bits, np.zeros(count - len(bits), np.uint8)])
    bits = bits[:count]
    if size & 7 and bits[-1] >> (size & 7):
        bits = bits.copy()
        bits[-1] &= (1 << (size & 7)) - 1
    return bits
