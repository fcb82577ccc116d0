"""Decodes quantized weights to float32 with numpy: what a block means, one function per storage format.

A decoder takes (n, block bytes) uint8 and gives (n, block elements) float32.  It is the readable meaning that faster
code is held to, and serves what is read once (norms, tables); products on quantized weights are a device's job.
Layouts: ggml, ggml-common.h; results equal gguf-py's `quants.dequantize` bit for bit.

Shared vocabulary: `d` is a block's scale and `m` or `dmin` its offset, little-endian float16.  "Low halves then high
halves" means that byte i of a run of n bytes holds element i in bits 0-3 and element n + i in bits 4-7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from golem_core.errors import BadFile, Unsupported

from .types import TYPES

if TYPE_CHECKING:
    from .weights import Weight

Decoder = Callable[[np.ndarray], np.ndarray]

# The sixteen levels of IQ4_NL and IQ4_XS.
IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)

_CHUNK_ELEMENTS = 1 << 18  # Temporaries of a decode stay within a few MiB.


def dequantize(weight: Weight) -> np.ndarray:
    """A new float32 array of the weight's shape.  Raises Unsupported for a type without a decoder."""
    return dequantize_rows(weight, slice(None)).reshape(weight.shape)


def dequantize_rows(weight: Weight, rows: slice | Sequence[int] | np.ndarray) -> np.ndarray:
    """The chosen rows, in the order given, as a new (len(rows), width) float32 array.

    `rows` is a slice or integers, negative ones counting from the end.  Needs no memory beyond the result but a
    chunk of a few MiB.  Raises Unsupported for a type without a decoder, IndexError for a row that is not there.
    """
    decoder = DECODERS.get(weight.type)
    if decoder is None:
        raise Unsupported(f"tensor {weight.name!r}: {weight.type} cannot be decoded, only {', '.join(DECODERS)}")
    kind = TYPES[weight.type]
    stored = weight.data.reshape(weight.rows, weight.row_nbytes)
    chosen = stored[rows] if isinstance(rows, slice) else np.asarray(rows, np.intp)
    out = np.empty((len(chosen), weight.width), np.float32)
    if not out.size:
        return out
    if isinstance(rows, slice) and stored.flags.c_contiguous and chosen.flags.c_contiguous:
        # Whole rows in one run: chunks need not end where rows do, so one long row is no exception.
        _decode_into(out.reshape(-1), chosen.reshape(-1), decoder, kind.block, kind.nbytes)
    else:
        step = max(1, _CHUNK_ELEMENTS // weight.width)
        for start in range(0, len(chosen), step):
            part = chosen[start : start + step]
            part = part if isinstance(rows, slice) else stored[part]
            _decode_into(out[start : start + step].reshape(-1), part.reshape(-1), decoder, kind.block, kind.nbytes)
    if weight.scale != 1:
        out *= np.float32(weight.scale)
    return out


def refuse_nan(weight: Weight, data: np.ndarray | None = None) -> None:
    """Raises BadFile naming a weight of type F8_E4M3 that has codes which stand for no number; other types pass.

    `data` (uint8): the part of the weight's that is looked at, by default all of it.  For devices that take a weight
    over: products would spread such a code over all results.
    """
    if weight.type != "F8_E4M3":
        return
    codes = (weight.data if data is None else data).reshape(-1)
    for start in range(0, len(codes), _CHUNK_ELEMENTS):
        some = codes[start : start + _CHUNK_ELEMENTS]
        if some.max() == 0xFF or some.view(np.int8).max() == 0x7F:  # the largest numbers of either type
            raise BadFile(f"tensor {weight.name!r}: a code of F8_E4M3 in it is NaN, no number")


def _decode_into(out: np.ndarray, data: np.ndarray, decoder: Decoder, block: int, nbytes: int) -> None:
    blocks = data.reshape(-1, nbytes)
    target = out.reshape(-1, block)
    step = max(1, _CHUNK_ELEMENTS // block)
    for start in range(0, len(blocks), step):
        target[start : start + step] = decoder(blocks[start : start + step])


def _floats(blocks: np.ndarray, at: int, kind: str = "<f2") -> np.ndarray:
    """The number at byte `at` of each block, as (n, 1) float32."""
    end = at + np.dtype(kind).itemsize
    return np.ascontiguousarray(blocks[:, at:end]).view(kind).astype(np.float32)


def _halves(run: np.ndarray) -> np.ndarray:
    """(..., n) bytes, low halves then high halves -> (..., 2n) values of 0 to 15."""
    return np.concatenate([run & 15, run >> 4], axis=-1)


def _bits(run: np.ndarray, width: int) -> np.ndarray:
    """(..., n) bytes -> (..., 8 / width, n) values: first the lowest `width` bits of all bytes, then the next."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return (run[..., None, :] >> shifts) & np.uint8((1 << width) - 1)


def f32(blocks: np.ndarray) -> np.ndarray:
    """IEEE single precision."""
    return np.ascontiguousarray(blocks).view("<f4")


def f16(blocks: np.ndarray) -> np.ndarray:
    """IEEE half precision."""
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def bf16(blocks: np.ndarray) -> np.ndarray:
    """The upper half of a single."""
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


def f8_e4m3(blocks: np.ndarray) -> np.ndarray:
    """Sign, 4 bits of exponent e, 3 of mantissa m: (1 + m/8) 2^(e - 7), and m/8 2^-6 where e is 0.

    0x7f and 0xff are NaN, and there are no infinities (arXiv:2209.05433, E4M3; "fn" in other places).  A float16 has
    the same fields, its exponent 8 larger.
    """
    codes = np.arange(256, dtype=np.uint16)
    values = ((codes & 0x80) << 8 | (codes & 0x7F) << 7).view(np.float16).astype(np.float32) * np.float32(256)
    values[[0x7F, 0xFF]] = np.nan
    return values[blocks]


def q4_0(blocks: np.ndarray) -> np.ndarray:
    """d, then 16 bytes: 32 values q of 4 bits, low halves then high halves.  x = d (q - 8)."""
    return _floats(blocks, 0) * (_halves(blocks[:, 2:]).astype(np.float32) - np.float32(8))


def q4_1(blocks: np.ndarray) -> np.ndarray:
    """d, m, then 16 bytes as in Q4_0.  x = d q + m."""
    return _floats(blocks, 0) * _halves(blocks[:, 4:]).astype(np.float32) + _floats(blocks, 2)


def _fifth_bits(run: np.ndarray) -> np.ndarray:
    """4 bytes -> (n, 32): 16 where the bit of an element, counted from the lowest, is set, else 0."""
    return np.unpackbits(np.ascontiguousarray(run), axis=-1, bitorder="little") << 4


def q5_0(blocks: np.ndarray) -> np.ndarray:
    """d, 4 bytes with the fifth bit of each element, then 16 bytes as in Q4_0.  x = d (q - 16)."""
    q = _halves(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return _floats(blocks, 0) * (q.astype(np.float32) - np.float32(16))


def q5_1(blocks: np.ndarray) -> np.ndarray:
    """d, m, 4 bytes with the fifth bits, then 16 bytes as in Q4_0.  x = d q + m."""
    q = _halves(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return _floats(blocks, 0) * q.astype(np.float32) + _floats(blocks, 2)


def q8_0(blocks: np.ndarray) -> np.ndarray:
    """d, then 32 signed bytes q.  x = d q."""
    return _floats(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def q2_k(blocks: np.ndarray) -> np.ndarray:
    """16 bytes: scale (bits 0-3) and minimum (bits 4-7) of each 16 elements; 64 bytes of 2-bit q; d; dmin.

    32 bytes of q hold 128 elements, the lowest bits of all 32 first.  x = d scale q - dmin minimum.
    """
    scales = _floats(blocks, 80) * (blocks[:, :16] & 15).astype(np.float32)
    minima = _floats(blocks, 82) * (blocks[:, :16] >> 4).astype(np.float32)
    q = _bits(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16).astype(np.float32)
    return (scales[..., None] * q - minima[..., None]).reshape(-1, 256)


def q3_k(blocks: np.ndarray) -> np.ndarray:
    """32 bytes of third bits, bit i of them for elements 32 i to 32 i + 31; 64 bytes of 2-bit q as in Q2_K; 12 bytes
    with 16 scales; d.

    A scale has 6 bits and 32 is taken off it: scale i of 0 to 7 has its low 4 bits in the low half of byte i, scale
    8 + i in the high half; the upper 2 bits are in bytes 8 to 11, those of scale i in byte 8 + i mod 4 at bit
    2 (i div 4).  x = d (scale - 32) (q - 4), with q including its third bit.
    """
    packed = blocks[:, 96:108]
    scales = _halves(packed[:, :8]) | (_bits(packed[:, 8:], 2).reshape(-1, 16) << 4)
    scales = _floats(blocks, 108) * (scales.astype(np.float32) - np.float32(32))
    low = _bits(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    high = _bits(blocks[:, :32], 1).reshape(-1, 16, 16)
    q = (low | high << 2).astype(np.float32) - np.float32(4)
    return (scales[..., None] * q).reshape(-1, 256)


def _scales_and_minima(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 12 bytes of Q4_K and Q5_K -> 8 scales and 8 minima of 6 bits, as (n, 8) float32.

    Bytes 0 to 3 have scales 0 to 3 in their low 6 bits, bytes 4 to 7 the minima.  Of scale 4 + i, the low 4 bits
    are the low half of byte 8 + i and the upper 2 the top bits of byte i; of minimum 4 + i, the high half of byte
    8 + i and the top bits of byte 4 + i.
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_45(blocks: np.ndarray, q: np.ndarray) -> np.ndarray:
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scales, minima = _floats(blocks, 0) * scales, _floats(blocks, 2) * minima
    return (scales[..., None] * q.reshape(-1, 8, 32).astype(np.float32) - minima[..., None]).reshape(-1, 256)


def q4_k(blocks: np.ndarray) -> np.ndarray:
    """d; dmin; 12 bytes with a scale and a minimum for each 32 elements; 128 bytes of 4-bit q, each 32 bytes low
    halves then high halves.  x = d scale q - dmin minimum.
    """
    return _k_45(blocks, _halves(blocks[:, 16:].reshape(-1, 4, 32)))


def q5_k(blocks: np.ndarray) -> np.ndarray:
    """As Q4_K, with 32 bytes of fifth bits before the q: bit i of them for elements 32 i to 32 i + 31."""
    low = _halves(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _k_45(blocks, low | _bits(blocks[:, 16:48], 1) << 4)


def q6_k(blocks: np.ndarray) -> np.ndarray:
    """128 bytes of low 4 bits, each 64 bytes low halves then high halves; 64 bytes of upper 2 bits as the q of Q2_K;
    16 signed bytes, a scale for each 16 elements; d.  x = d scale (q - 32).
    """
    low = _halves(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 16, 16)
    high = _bits(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scales = _floats(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    q = (low | high << 4).astype(np.float32) - np.float32(32)
    return (scales[..., None] * q).reshape(-1, 256)


def iq4_nl(blocks: np.ndarray) -> np.ndarray:
    """As Q4_0, but q picks one of 16 uneven levels.  x = d level[q]."""
    return _floats(blocks, 0) * IQ4_LEVELS[_halves(blocks[:, 2:])]


def iq4_xs(blocks: np.ndarray) -> np.ndarray:
    """d; 2 bytes with the upper 2 bits of 8 scales, lowest first; 4 bytes with their low 4 bits, two to a byte, low
    half first; 128 bytes of 4-bit q, each 16 bytes low halves then high halves.  x = d (scale - 32) level[q].
    """
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    scales = _floats(blocks, 0) * ((low | high << 4).astype(np.float32) - np.float32(32))
    levels = IQ4_LEVELS[_halves(blocks[:, 8:].reshape(-1, 8, 16))]
    return (scales[..., None] * levels).reshape(-1, 256)


def pq2_0(blocks: np.ndarray) -> np.ndarray:
    """d, then 32 bytes of 128 values q of 2 bits, the lowest bits of a byte first.  x = d (q - 1)."""
    q = _bits(blocks[:, 2:, None], 2).reshape(-1, 128)
    return _floats(blocks, 0) * (q.astype(np.float32) - np.float32(1))


def ptq1_0(blocks: np.ndarray) -> np.ndarray:
    """26 bytes of base-3 digits q, then d: 16 bytes with five digits, 8 with five, 2 with four.  x = d (q - 1).

    Byte v holds digit n as (3^n v mod 256) 3 div 256; the first digits of all bytes of a group of bytes come first.
    """
    runs = []
    for start, stop, count in ((0, 16, 5), (16, 24, 5), (24, 26, 4)):
        powers = 3 ** np.arange(count, dtype=np.uint16)[:, None]
        q = (blocks[:, None, start:stop].astype(np.uint16) * powers & 255) * 3 >> 8
        runs.append(q.reshape(len(blocks), -1))
    return _floats(blocks, 26) * (np.concatenate(runs, axis=1).astype(np.float32) - np.float32(1))


DECODERS: dict[str, Decoder] = {
    "F32": f32,
    "F16": f16,
    "BF16": bf16,
    "F8_E4M3": f8_e4m3,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
    "PQ2_0": pq2_0,
    "PTQ1_0": ptq1_0,
}
