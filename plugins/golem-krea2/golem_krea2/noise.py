"""Random numbers as ComfyUI draws them, from a seed: the start of a picture and the noise of its steps.

The start is PyTorch's `randn` on a CPU, to the last bit: Mersenne Twister words made normal in vectors of 8, with the
logarithm, sine and cosine of PyTorch's AVX2 kernels (`DistributionTemplates.h`, `avx_mathfun.h`).  The noise of steps
is `randn` on the device where the network runs: Philox words, spread over as many threads as that device has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import pi, prod

import numpy as np

F32, F64 = np.float32, np.float64

# ---------------------------------------------------------------- Mersenne Twister


class TwisterNoise:
    """PyTorch's generator of a CPU, seeded with the low 32 bits of `seed`; every draw goes on where the last ended."""

    def __init__(self, seed: int):
        self._words = np.random.RandomState(seed & 0xFFFFFFFF)

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """float32 of `shape`, of 16 numbers or more."""
        size = prod(shape)
        if size < 16:
            raise ValueError(f"{size} numbers are drawn in another way, which is not here")
        out = self._uniform(size)
        whole = size // 16 * 16
        out[:whole] = _normal(out[:whole])
        if whole < size:
            out[-16:] = _normal(self._uniform(16))
        return out.reshape(shape)

    def _uniform(self, size: int) -> np.ndarray:
        words = self._words.randint(0, 1 << 32, size, np.uint32)
        return (words & 0xFFFFFF).astype(F32) * F32(2**-24)


def _normal(uniform: np.ndarray) -> np.ndarray:
    """Normal numbers for uniform ones: of every 16, the first half are radii and the second angles."""
    both = uniform.reshape(-1, 2, 8)
    radius = np.sqrt(F32(-2) * _log(F32(1) - both[:, 0]))
    sine, cosine = _sincos(F32(2 * pi) * both[:, 1])
    return np.stack([radius * cosine, radius * sine], 1).reshape(-1)


def _fma(a: np.ndarray | np.float32, b: np.ndarray, c: np.ndarray | np.float32) -> np.ndarray:
    """a · b + c of float32 numbers, rounded once."""
    product = np.asarray(a, F64) * b
    addend = np.asarray(c, F64)
    total = np.asarray(product + addend)
    # Rounding twice goes wrong only where the float64 sum lies in the middle of two float32 numbers without being it.
    bits = total.view(np.uint64)
    middle = np.flatnonzero((bits & 0x1FFFFFFF) == 0x10000000)
    if len(middle):
        product, addend = (np.broadcast_to(each, total.shape).reshape(-1)[middle] for each in (product, addend))
        sums = product + addend
        back = sums - product
        error = (product - (sums - back)) + (addend - back)
        aside = np.nextafter(sums, np.copysign(np.inf, error))
        total.reshape(-1)[middle] = np.where(error == 0, sums, aside)
    return total.astype(F32)


LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
"""-π/4 in three parts."""


def _horner(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    y = np.full_like(x, F32(coefficients[0]))
    for each in coefficients[1:]:
        y = _fma(y, x, F32(each))
    return y


def _log(x: np.ndarray) -> np.ndarray:
    """The logarithm of float32 numbers, as Cephes' polynomial with fused sums gives it."""
    x, e = np.frexp(np.maximum(x, F32(2**-126)))
    small = x < F32(0.707106781186547524)
    e = e.astype(F32) - small
    x = np.where(small, (x - F32(1)) + x, x - F32(1))
    z = x * x
    y = _horner(x, LOG) * x
    y = _fma(y, z, e * F32(-2.12194440e-4))
    y = _fma(z, F32(-0.5) * np.ones_like(z), y)
    return _fma(e, np.full_like(x, F32(0.693359375)), x + y)


def _sincos(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sine and the cosine of float32 numbers of 0 or more, as Cephes' polynomials with fused sums give them."""
    j = (angle * F32(1.27323954473516)).astype(np.int32) + 1 & ~1
    x, turns = angle, j.astype(F32)
    for part in QUARTER:
        x = _fma(F32(part), turns, x)
    z = x * x
    y = _horner(z, COSINE) * z
    cosine = _fma(y, z, -(z * F32(0.5))) + F32(1)
    sine = _fma(_horner(z, SINE) * z, x, x)
    swap = (j & 2) != 0
    sine, cosine = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    return np.where(j & 4, -sine, sine), np.where((j - 2) & 4, cosine, -cosine)


# ---------------------------------------------------------------- Philox

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEYS = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)


def philox(counter: tuple[np.ndarray | int, ...], key: tuple[int, int]) -> list[np.ndarray]:
    """Four uint64 arrays of 32-bit words: Philox4x32 in ten rounds (Salmon and others, 2011) of four words each.

    The words of `counter` are numbers or arrays of one shape.
    """
    c = list(np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter)))
    k = list(key)
    for _ in range(10):
        first, second = c[0] * np.uint64(MULTIPLIERS[0]), c[2] * np.uint64(MULTIPLIERS[1])
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            second & LOW,
            (first >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            first & LOW,
        ]
        k = [(word + add) & 0xFFFFFFFF for word, add in zip(k, KEYS, strict=True)]
    return c


@dataclass(frozen=True)
class Card:
    """How a graphics card draws: its multiprocessors, and the numbers by which its library makes words uniform.

    rocRAND adds as much to the smallest word as to any, cuRAND half as much.
    """

    processors: int
    half: bool = False


THREADS, RESIDENT = 256, 2048
"""Threads of a block, and of a multiprocessor."""


class CardNoise:
    """PyTorch's generator of a graphics card; every draw goes on where the last ended."""

    def __init__(self, seed: int, card: Card):
        self._key, self._card, self._offset = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF), card, 0

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """float32 of `shape`."""
        size = prod(shape)
        blocks = min(-(-size // THREADS), self._card.processors * (RESIDENT // THREADS))
        threads = THREADS * blocks
        rounds = -(-size // (4 * threads))
        thread = np.arange(threads, dtype=np.uint64)
        out = []
        for at in range(self._offset // 4, self._offset // 4 + rounds):
            words = philox((at & 0xFFFFFFFF, at >> 32, thread, 0), self._key)
            out += [*self._pair(*words[:2]), *self._pair(*words[2:])]
        self._offset += 4 * rounds
        return np.concatenate(out)[:size].reshape(shape)

    def _pair(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two normal numbers of two words, with functions that are exact before they are rounded."""
        unit, turn = F32(2**-32), F32(2 * pi * 2**-32)
        if self._card.half:
            u = first.astype(F32) * unit + unit / F32(2)
            v = second.astype(F32) * turn + turn / F32(2)
        else:
            u = unit + unit * first.astype(F32)
            v = turn + turn * second.astype(F32)
        radius = np.sqrt(-2 * np.log(u.astype(F64))).astype(F32)
        angle = v.astype(F64)
        return np.sin(angle).astype(F32) * radius, np.cos(angle).astype(F32) * radius


# ---------------------------------------------------------------- the source of step noise

DEFAULT = "rocm:32"


@dataclass(frozen=True)
class Source:
    """Where the noise of steps comes from.  `text` names it; `open(seed)` gives what draws float32 of a shape."""

    text: str
    open: Callable[[int], Callable[[tuple[int, ...]], np.ndarray]]


def source(text: str) -> Source:
    """Read the name of a source: "rocm:P" or "cuda:P", a card with P multiprocessors; "cpu" or "cpu+1", a CPU's
    generator seeded with the seed or with one more."""
    name = text.strip().lower()
    if name in ("cpu", "cpu+1"):
        return Source(name, lambda seed: TwisterNoise(seed + (name == "cpu+1")))
    found = re.fullmatch(r"(rocm|cuda):([1-9][0-9]{0,3})", name)
    if found is None:
        raise ValueError("expected rocm:P or cuda:P with the card's multiprocessors, or cpu or cpu+1")
    card = Card(int(found[2]), half=found[1] == "cuda")
    return Source(name, lambda seed: CardNoise(seed, card))
