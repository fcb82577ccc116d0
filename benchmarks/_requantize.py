"""Writes a model file with its matrices in another type: decoded, and encoded again by the package gguf."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from golem_core import ModelFile, open_model

TYPES = ("F16", "Q4_0", "Q8_0", "Q4_1", "Q5_0", "Q5_1")


def write(path: Path, source: Path, kind: str) -> None:
    """Write the model of `source` with every matrix as `kind`; an embedding in 4 or 5 bits becomes Q8_0."""
    with open_model(source) as file:
        writer = gguf.GGUFWriter(path, file.architecture)
        copy_metadata(writer, file)
        for name, weight in file.weights.items():
            values = weight.dequantize()
            if values.ndim < 2:
                writer.add_tensor(name, values.astype(np.float32))
                continue
            chosen = "Q8_0" if name == "token_embd.weight" and kind not in ("F16", "Q8_0") else kind
            wanted = gguf.GGMLQuantizationType[chosen]
            writer.add_tensor(name, gguf.quantize(values, wanted), raw_dtype=wanted)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def copy_metadata(writer: gguf.GGUFWriter, file: ModelFile) -> None:
    for key in file.metadata:
        value: Any = file.metadata[key]
        if key in ("general.architecture", "general.file_type"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = [each.encode("utf-8", "surrogateescape") for each in value]
        kind = gguf.GGUFValueType.get_type(value)
        if isinstance(value, int) and not isinstance(value, bool):
            kind = gguf.GGUFValueType.UINT32
        writer.add_key_value(key, value, kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    write(options.path, options.source, options.type)


if __name__ == "__main__":
    main()
