"""The tensor types that weight files name: GGUF's block formats and the plain types of safetensors.

A type is `block` consecutive elements of a row stored in `nbytes` bytes.  Every type of the formats is known here by
name, so that a file holding one that nothing can compute with still opens; `quants.py` says which can be decoded.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """One storage format: `block` elements of a row take `nbytes` bytes."""

    name: str
    block: int
    nbytes: int


# GGUF's number for each type -> the type.  Numbers that are not here were never given out or were withdrawn; those from
# 142 on were given by a fork of llama.cpp.
GGUF_TYPES: dict[int, TensorType] = {
    number: TensorType(name, block, nbytes)
    for number, name, block, nbytes in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
        (142, "PQ2_0", 128, 34),
        (143, "PTQ1_0", 128, 28),
    )
}

# safetensors' dtype name -> the type.  F4 and the F6 types pack several elements into whole bytes.
SAFETENSORS_TYPES: dict[str, TensorType] = {
    name: TensorType(name, block, nbytes)
    for name, block, nbytes in (
        ("F64", 1, 8),
        ("F32", 1, 4),
        ("F16", 1, 2),
        ("BF16", 1, 2),
        ("F8_E4M3", 1, 1),
        ("F8_E5M2", 1, 1),
        ("F8_E8M0", 1, 1),
        ("F6_E2M3", 4, 3),
        ("F6_E3M2", 4, 3),
        ("F4", 2, 1),
        ("C64", 1, 8),
        ("I64", 1, 8),
        ("I32", 1, 4),
        ("I16", 1, 2),
        ("I8", 1, 1),
        ("U64", 1, 8),
        ("U32", 1, 4),
        ("U16", 1, 2),
        ("U8", 1, 1),
        ("BOOL", 1, 1),
    )
}

TYPES: dict[str, TensorType] = SAFETENSORS_TYPES | {known.name: known for known in GGUF_TYPES.values()}
