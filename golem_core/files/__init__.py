"""From a file on disk to metadata and named, typed, memory-mapped weights."""

from __future__ import annotations

from .encode import ENCODERS, encoded
from .expected import TensorSpec, block_tensors, check_tensors
from .keys import Keys
from .mapped import mapped_pages, release_pages
from .metadata import Metadata
from .model import ModelFile, architecture_of, open_model, open_safetensors
from .quants import DECODERS, dequantize, dequantize_rows, refuse_nan
from .safetensors import read_json
from .types import GGUF_TYPES, SAFETENSORS_TYPES, TYPES, TensorType
from .weights import Weight, Weights

__all__ = [
    "DECODERS",
    "ENCODERS",
    "GGUF_TYPES",
    "SAFETENSORS_TYPES",
    "TYPES",
    "Keys",
    "Metadata",
    "ModelFile",
    "TensorSpec",
    "TensorType",
    "Weight",
    "Weights",
    "architecture_of",
    "block_tensors",
    "check_tensors",
    "dequantize",
    "dequantize_rows",
    "encoded",
    "mapped_pages",
    "open_model",
    "open_safetensors",
    "read_json",
    "refuse_nan",
    "release_pages",
]
