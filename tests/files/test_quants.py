"""Decoded weights equal gguf-py's bit for bit, whatever the bytes, and in any choice of rows."""

from __future__ import annotations

import tracemalloc

import gguf
import numpy as np
import pytest

from golem_core.errors import BadFile, Unsupported
from golem_core.files import DECODERS, GGUF_TYPES, TYPES, Weight, dequantize_rows, refuse_nan

# Byte offsets of the float16 scales and offsets within a block.
SCALES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "PQ2_0": (0,),
    "PTQ1_0": (26,),
}

KNOWN_TO_GGUF_PY = [kind for kind in DECODERS if kind in gguf.GGMLQuantizationType.__members__]


def random_weight(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Weight:
    """Random bytes, with scales drawn from the finite numbers."""
    stored = TYPES[kind]
    count = int(np.prod(shape)) // stored.block
    if kind in ("F32", "F16"):
        data = rng.standard_normal(count).astype(kind.lower().replace("f", "<f").replace("32", "4").replace("16", "2"))
        return Weight("w", kind, shape, data.view(np.uint8))
    blocks = rng.integers(0, 256, (count, stored.nbytes), np.uint8)
    if kind == "BF16":
        blocks[:, 1] &= 0xBF  # An exponent that is not all ones.
    for at in SCALES.get(kind, ()):
        blocks[:, at : at + 2] = rng.uniform(-2, 2, (count, 1)).astype("<f2").view(np.uint8)
    return Weight("w", kind, shape, blocks.reshape(-1))


def by_gguf_py(weight: Weight) -> np.ndarray:
    rows = weight.data.reshape(weight.rows, weight.row_nbytes)
    return gguf.dequantize(rows, gguf.GGMLQuantizationType[weight.type]).reshape(weight.shape)


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.dtype == np.float32 and np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("kind", KNOWN_TO_GGUF_PY)
def test_random_blocks_decode_as_in_gguf_py(kind, rng):
    weight = random_weight(rng, kind, (6, 5, 1024))
    expected = by_gguf_py(weight)
    assert np.isfinite(expected).all() and np.unique(expected).size > 100
    assert same_bits(weight.dequantize(), expected)


def block_of(kind: str, scale_at: int, scale: float) -> Weight:
    """One block whose byte i is 73 i + 19, but for its scale."""
    block = (np.arange(TYPES[kind].nbytes) * 73 + 19).astype(np.uint8)
    block[scale_at : scale_at + 2] = np.array([scale], "<f2").view(np.uint8)
    return Weight("w", kind, (128,), block)


@pytest.mark.parametrize(
    ("kind", "scale_at", "total", "weighted", "values"),
    [
        ("PQ2_0", 0, 34.5, 2253, {0: 0, 1: 0, 15: 0.5, 63: 1}),
        ("PTQ1_0", 26, -0.5, 144, {0: -0.5, 1: 0, 16: -0.5, 31: -0.5, 32: 0.5, 64: -0.5}),
    ],
)
def test_ternary_blocks_decode_to_known_values(kind, scale_at, total, weighted, values):
    x = block_of(kind, scale_at, 0.5).dequantize()
    assert {index: x[index] for index in values} == values
    assert (x.sum(), (x * np.arange(1, 129)).sum()) == (total, weighted)


def test_two_bits_have_four_values():
    block = np.array([0, 64, 0xE4, *[0x55] * 31], np.uint8)  # a scale of 2; codes 0, 1, 2, 3, then ones
    assert Weight("w", "PQ2_0", (128,), block).dequantize()[:5].tolist() == [-2, 0, 2, 4, 0]


def test_base_three_digits_hold_every_row_of_ternary_values():
    """All 243 rows of five, written as the nearest byte at or above their number times 256 / 243."""
    rows = np.stack(np.meshgrid(*[np.arange(3)] * 5, indexing="ij"), -1).reshape(-1, 5)
    stored = (rows @ 3 ** np.arange(4, -1, -1) * 256 + 242) // 243
    for start in range(0, 243, 16):
        part = stored[start : start + 16]
        block = np.zeros(28, np.uint8)
        block[: len(part)], block[26:] = part, (0, 60)  # a scale of 1
        x = Weight("w", "PTQ1_0", (128,), block).dequantize()[:80].reshape(5, 16).T[: len(part)]
        assert np.array_equal(x, rows[start : start + 16] - 1)


@pytest.mark.parametrize("kind", DECODERS)
def test_data_at_an_odd_address_decodes(kind, rng):
    weight = random_weight(rng, kind, (3, 512))
    shifted = np.concatenate([np.zeros(1, np.uint8), weight.data])[1:]
    assert same_bits(Weight("w", kind, weight.shape, shifted).dequantize(), weight.dequantize())


def test_codes_of_8_bits_are_sign_exponent_and_mantissa():
    for code, x in enumerate(Weight("w", "F8_E4M3", (256,), np.arange(256, dtype=np.uint8)).dequantize().tolist()):
        exponent, mantissa = code >> 3 & 15, code & 7
        if code & 127 == 127:
            assert np.isnan(x)
        else:
            size = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
            assert x == (-size if code > 127 else size), hex(code)


def test_a_scale_multiplies_every_number(rng):
    weight = Weight("w", "F8_E4M3", (5, 24), rng.integers(0, 127, 120, np.uint8))
    twice = weight.scaled(0.5).scaled(0.75)
    assert twice.scale == 0.375 and (twice.name, twice.type, twice.shape) == (weight.name, weight.type, weight.shape)
    assert np.array_equal(twice.dequantize(), weight.dequantize() * np.float32(0.375))
    assert np.array_equal(dequantize_rows(twice, [3, 0]), twice.dequantize()[[3, 0]])
    with pytest.raises(Unsupported, match="norm: weights of type F32 take no scale, only F8_E4M3"):
        Weight("norm", "F32", (1,), np.zeros(4, np.uint8)).scaled(2.0)


def test_codes_that_are_no_numbers_are_refused_by_name():
    data = np.zeros(1 << 20, np.uint8)
    weight = Weight("blk.3.up", "F8_E4M3", (1024, 1024), data)
    refuse_nan(weight)
    for code in (0x7F, 0xFF):
        data[-1] = code
        with pytest.raises(BadFile, match=r"'blk\.3\.up': a code of F8_E4M3 in it is NaN"):
            refuse_nan(weight)
    refuse_nan(weight, data[:1024])
    refuse_nan(Weight("bytes", "Q8_0", (1024, 1024), np.full(34 << 15, 0x7F, np.uint8)))


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q6_K"])
def test_chosen_rows_are_those_of_the_whole(kind, rng):
    weight = random_weight(rng, kind, (700, 1024))
    whole = by_gguf_py(weight)
    for rows in (slice(None), slice(5, 640), slice(None, None, 3), slice(9, 2, -2), [3, 3, -1, 0], np.arange(699)):
        assert same_bits(dequantize_rows(weight, rows), whole[rows])
    assert dequantize_rows(weight, []).shape == dequantize_rows(weight, slice(4, 4)).shape == (0, 1024)
    with pytest.raises(IndexError):
        dequantize_rows(weight, [700])


def test_decoding_leaves_the_file_alone(rng):
    weight = random_weight(rng, "F32", (4, 8))
    weight.data.flags.writeable = False
    weight.dequantize()[:] = 0
    assert weight.dequantize().any()


@pytest.mark.parametrize("shape", [(4096, 2048), (1, 4096 * 2048)])
def test_a_large_tensor_needs_little_beyond_its_result(shape, rng):
    weight = Weight("w", "Q4_0", shape, np.zeros(4096 * 2048 // 32 * 18, np.uint8))
    tracemalloc.start()
    try:
        result = weight.dequantize()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.nbytes == 32 << 20
    assert peak - result.nbytes < 8 << 20


@pytest.mark.parametrize("kind", [*sorted({kind.name for kind in GGUF_TYPES.values()} - DECODERS.keys()), "F8_E5M2"])
def test_a_type_without_a_decoder_is_refused_by_name(kind):
    stored = TYPES[kind]
    weight = Weight("blk.0.attn_q.weight", kind, (1, stored.block), np.zeros(stored.nbytes, np.uint8))
    with pytest.raises(Unsupported, match=rf"'blk\.0\.attn_q\.weight': {kind} cannot be decoded"):
        weight.dequantize()
