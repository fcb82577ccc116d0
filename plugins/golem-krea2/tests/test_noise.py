"""Noise, to the last bit of PyTorch's on a CPU, and to the digits that a card gave."""

from __future__ import annotations

import json
import time
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from golem_krea2 import noise
from golem_krea2.noise import TwisterNoise, source

DRAWN = json.loads((Path(__file__).parent / "fixtures" / "randn.json").read_text())


@pytest.mark.parametrize("seed", [each["seed"] for each in DRAWN])
def test_torch_draws_the_same_bits(seed):
    """Several draws of one generator: multiples of 16, the redrawn tails of other sizes, and pictures."""
    expected = next(each for each in DRAWN if each["seed"] == seed)
    generator = TwisterNoise(seed)
    for size, crc in expected["draws"]:
        found = generator((size,))
        assert found.dtype == np.float32
        assert zlib.crc32(found.astype("<f4").tobytes()) == crc, f"{size} numbers"


@pytest.mark.parametrize(
    ("seed", "first", "last", "total"),
    [
        (0, (3213892485, 3214114954, 3196079062), (3218950877, 1058675584), -39.446269415),
        (42, (1073128745, 1069440851, 1063687527), (1064373753, 3158444192), -4.412261033),
        (2**32 + 5, (1072419191, 1057281482, 3218808893), (3216028952, 3217568598), 16.363174386),
        (2**50 - 1, (3224011738, 3213600635, 1055335454), (3212694270, 3209161423), 34.317091778),
    ],
)
def test_the_first_numbers_of_a_seed(seed, first, last, total):
    found = TwisterNoise(seed)((4096,))
    bits = found.view(np.uint32)
    assert tuple(bits[:3]) == first and tuple(bits[-2:]) == last
    assert found.sum(dtype=np.float64) == pytest.approx(total, abs=1e-9)


def test_only_the_low_32_bits_of_a_seed_start_a_picture():
    np.testing.assert_array_equal(TwisterNoise(2**32 + 5)((64,)), TwisterNoise(5)((64,)))
    np.testing.assert_array_equal(TwisterNoise(2**64 - 1)((16,)), TwisterNoise(2**32 - 1)((16,)))


def test_fewer_than_16_numbers_are_refused():
    with pytest.raises(ValueError, match="15 numbers"):
        TwisterNoise(1)((3, 5))


def test_a_fused_sum_is_rounded_once():
    """Against exact fractions: no float32 lies nearer."""
    dice = np.random.default_rng(1)
    a, b, c = (dice.normal(0, 1, 500) * 2.0 ** dice.integers(-20, 20, 500) for _ in range(3))
    a, b, c = (each.astype(np.float32) for each in (a, b, c))
    for each, x, y, z in zip(noise._fma(a, b, c), a, b, c, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        distance = abs(Fraction(float(each)) - exact)
        for side in (-np.inf, np.inf):
            neighbour = np.nextafter(each, np.float32(side))
            assert distance <= abs(Fraction(float(neighbour)) - exact)


def test_a_fused_sum_beside_the_middle_of_two_numbers():
    """Sums that in float64 are the middle, and would be rounded to the even side, though they lie on the odd one."""
    one, least = np.float32(1), np.float32(2**-23)
    almost = (np.float32(2**-12) * (one + least), np.float32(2**-12) * (one - least))  # together 2⁻²⁴ - 2⁻⁷⁰
    assert noise._fma(np.array([almost[0]]), np.array([almost[1]]), one + least) == one + least
    assert noise._fma(np.array([-almost[0] / 2]), np.array([almost[1]]), one - least / 2) == one - least / 2
    middle = np.float32(2**-12)
    assert noise._fma(np.array([middle]), np.array([middle]), one + least) == one + 2 * least, "the middle itself"


VECTORS = [
    (42, (16, 128, 96), [0.1940189, 2.1613741, -0.1720506], [0.642825, 0.5142289], [0.1391376, -0.1082158]),
    (7, (16, 32, 32), [-0.304847, 1.0453334, -0.2785641], [-0.0724153, 0.5809572], [-1.2870116, -0.3958327]),
    (2**40 + 3, (16, 128, 96), [-1.3825016, 0.5182016, 1.1696048], [-0.1577637, 0.9211134], [-1.6722178, -1.7734294]),
]


@pytest.mark.parametrize(("seed", "shape", "first", "last", "second"), VECTORS)
def test_a_card_with_32_multiprocessors(seed, shape, first, last, second):
    draw = source("rocm:32").open(seed)
    found = draw(shape)
    assert found.shape == shape and found.dtype == np.float32
    np.testing.assert_allclose(found.reshape(-1)[:3], first, atol=5e-7)
    np.testing.assert_allclose(found.reshape(-1)[-2:], last, atol=5e-7)
    np.testing.assert_allclose(draw(shape).reshape(-1)[:2], second, atol=5e-7)


def test_philox_knows_its_answer():
    """The first known answer of Random123's philox4x32-10."""
    assert [int(word) for word in noise.philox((0, 0, 0, 0), (0, 0))] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    ones = 0xFFFFFFFF
    found = noise.philox((ones, ones, ones, ones), (ones, ones))
    assert [int(word) for word in found] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_seeds_of_64_bits_count_whole():
    low, high = (source("rocm:32").open(seed)((16, 8, 8)) for seed in (5, 5 + (1 << 63)))
    assert np.abs(low - high).max() > 1


def test_a_small_card_draws_in_several_rounds():
    """Sixteen blocks of threads stand for a larger card's; the rest comes from later counters."""
    few, many = source("rocm:2").open(9)((16, 64, 64)), source("rocm:32").open(9)((16, 64, 64))
    assert few.shape == many.shape and np.array_equal(few.reshape(-1)[:4096], many.reshape(-1)[:4096])
    assert abs(few.mean()) < 0.02 and few.std() == pytest.approx(1, abs=0.02)
    assert len(np.unique(few)) > 0.99 * few.size


def test_the_other_library_lies_half_a_word_lower():
    amd, nvidia = source("rocm:132").open(3)((16, 64, 64)), source("cuda:132").open(3)((16, 64, 64))
    assert not np.array_equal(amd, nvidia)
    np.testing.assert_allclose(amd, nvidia, atol=1e-4)


def test_a_cpu_goes_on_in_one_stream():
    draw, later = source("cpu").open(11), source("cpu+1").open(10)
    whole = TwisterNoise(11)
    for _ in range(2):
        expected = whole((16, 4, 4))
        np.testing.assert_array_equal(draw((16, 4, 4)), expected)
        np.testing.assert_array_equal(later((16, 4, 4)), expected)


@pytest.mark.parametrize("text", ["", "rocm", "rocm:0", "rocm:x", "gpu:32", "cpu+2", "rocm:32:1", "cuda:99999"])
def test_other_sources_are_refused(text):
    with pytest.raises(ValueError, match="expected rocm:P"):
        source(text)


def test_a_picture_takes_milliseconds():
    best = {"start": 1.0, "step": 1.0}
    for _ in range(5):
        for name, draw in (("start", TwisterNoise(5)), ("step", source("rocm:32").open(5))):
            start = time.thread_time()
            draw((16, 128, 96))
            best[name] = min(best[name], time.thread_time() - start)
    assert max(best.values()) < 0.2, best
