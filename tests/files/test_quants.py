"""Decoded weights equal gguf-py's bit for bit, whatever the bytes, and in any choice of rows."""

from __future__ import annotations

import tracemalloc

import gguf
import numpy as np
import pytest

from golem_core.errors import Unsupported
from golem_core.files import DECODERS, GGUF_TYPES, TYPES, Weight, dequantize_rows

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
}


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


@pytest.mark.parametrize("kind", DECODERS)
def test_random_blocks_decode_as_in_gguf_py(kind, rng):
    weight = random_weight(rng, kind, (6, 5, 1024))
    expected = by_gguf_py(weight)
    assert np.isfinite(expected).all() and np.unique(expected).size > 100
    assert same_bits(weight.dequantize(), expected)


@pytest.mark.parametrize("kind", DECODERS)
def test_data_at_an_odd_address_decodes(kind, rng):
    weight = random_weight(rng, kind, (3, 512))
    shifted = np.concatenate([np.zeros(1, np.uint8), weight.data])[1:]
    assert same_bits(Weight("w", kind, weight.shape, shifted).dequantize(), weight.dequantize())


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


@pytest.mark.parametrize("kind", [*sorted({kind.name for kind in GGUF_TYPES.values()} - DECODERS.keys()), "F8_E4M3"])
def test_a_type_without_a_decoder_is_refused_by_name(kind):
    stored = TYPES[kind]
    weight = Weight("blk.0.attn_q.weight", kind, (1, stored.block), np.zeros(stored.nbytes, np.uint8))
    with pytest.raises(Unsupported, match=rf"'blk\.0\.attn_q\.weight': {kind} cannot be decoded"):
        weight.dequantize()
