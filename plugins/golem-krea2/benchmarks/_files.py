"""Writes a ComfyUI directory with the three networks in any shapes, random weights, and a tokenizer for a few words.

The DiT is a plain cast to e4m3, the encoder scaled e4m3, the decoder bf16, as in the published files.  Bytes are drawn
straight into the mapped files, by as many threads as there are processors: seconds for 18 GB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from golem_krea2.checkpoint import DIT, ENCODER, TOKENIZER, VAE
from golem_krea2.shapes import DiTShape, EncoderShape, VaeShape
from golem_krea2.tokens import TEMPLATE

from golem_core import TensorSpec

PIECE = 1 << 26
"""Bytes that are drawn at once."""
SMALL = 0x8F8F8F8F8F8F8F8F
"""Leaves a code of e4m3 the sign, the lowest bit of the exponent and the mantissa: numbers below 2^-5 in size."""
FINITE = 0xF7F7F7F7F7F7F7F7
"""Clears the lowest bit of the exponent, so that no code is a NaN."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

Fill = Callable[[np.random.Generator, np.ndarray], None]
"""Fills a stretch of bytes."""


def codes(mask: int) -> Fill:
    def fill(dice: np.random.Generator, room: np.ndarray) -> None:
        words = dice.integers(0, 1 << 64, -(-len(room) // 8), np.uint64)
        words &= np.uint64(mask)
        room[:] = words.view(np.uint8)[: len(room)]

    return fill


def uniform(size: float, around: float = 0.0) -> Fill:
    """bf16 in [around - size, around + size)."""

    def fill(dice: np.random.Generator, room: np.ndarray) -> None:
        values = (dice.random(len(room) // 2, np.float32) * 2 - 1) * np.float32(size) + np.float32(around)
        room[:] = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)

    return fill


def halves(size: float) -> Fill:
    """float16 in [-size, size)."""

    def fill(dice: np.random.Generator, room: np.ndarray) -> None:
        values = (dice.random(len(room) // 2, np.float32) * 2 - 1) * np.float32(size)
        room[:] = values.astype(np.float16).view(np.uint8)

    return fill


def constant(value: float) -> Fill:
    def fill(dice: np.random.Generator, room: np.ndarray) -> None:
        room[:] = np.full(len(room) // 4, value, np.float32).view(np.uint8)

    return fill


Tensor = tuple[str, str, tuple[int, ...], Fill]
"""Name, type, shape, and what fills it."""
SIZES = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4}


def write(path: Path, tensors: Iterable[Tensor]) -> int:
    """Writes a safetensors file; returns its size in bytes."""
    header, stretches, end = {}, [], 0
    for name, kind, shape, fill in tensors:
        size = int(np.prod(shape, dtype=np.int64)) * SIZES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + size]}
        stretches += [(end + at, min(PIECE, size - at), fill) for at in range(0, size, PIECE)]
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    data = np.memmap(path, np.uint8, "r+", offset=8 + len(text), shape=(end,))

    def draw(numbered: tuple[int, tuple[int, int, Fill]]) -> None:
        number, (start, size, fill) = numbered
        fill(np.random.Generator(np.random.SFC64(number)), data[start : start + size])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(draw, enumerate(stretches)))
    data.flush()
    return 8 + len(text) + end


def dit(shape: DiTShape) -> Iterable[Tensor]:
    for spec in shape.tensors():
        if spec.name == "txtfusion.projector.weight":
            yield spec.name, "BF16", spec.shape, uniform(0.5)
        elif len(spec.shape) == 2 and spec.name.endswith(".weight"):
            yield spec.name, "F8_E4M3", spec.shape, codes(SMALL)
        else:
            yield spec.name, "BF16", spec.shape, uniform(0.3)


def encoder(shape: EncoderShape) -> Iterable[Tensor]:
    every = np.arange(256, dtype=np.uint8) & np.uint8(FINITE & 255)
    exponent, mantissa = (every >> 3 & 15).astype(int), (every & 7) / 8
    sizes = np.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent - 7))
    spread = float(np.sqrt(np.mean(sizes**2)))
    for spec in shape.tensors():
        name = f"model.{spec.name}"
        if spec.name.endswith("_proj.weight"):
            yield name, "F8_E4M3", spec.shape, codes(FINITE)
            yield f"{name}_scale", "F32", (), constant(1 / spread / spec.shape[1] ** 0.5)
        else:
            yield name, "BF16", spec.shape, uniform(0.3, float("norm" in name))


def vae(shape: VaeShape) -> Iterable[Tensor]:
    def fill(spec: TensorSpec) -> Fill:
        if "gamma" in spec.name or len(spec.shape) == 1:
            return uniform(0.3, float("gamma" in spec.name))
        read = spec.shape[1] * (9 if spec.shape[-1] == 3 else 1)
        return uniform((3 / read) ** 0.5)

    for spec in shape.tensors():
        yield spec.name, "BF16", spec.shape, fill(spec)


def lora(shape: DiTShape, rank: int) -> Iterable[Tensor]:
    """A pair for every product of every block, main and text."""
    for spec in shape.tensors():
        if (".attn." in spec.name or ".mlp." in spec.name) and len(spec.shape) == 2:
            (outputs, inputs), target = spec.shape, spec.name.removesuffix(".weight")
            yield f"diffusion_model.{target}.lora_A.weight", "F16", (rank, inputs), halves((3 / inputs) ** 0.5)
            yield f"diffusion_model.{target}.lora_B.weight", "F16", (outputs, rank), halves(0.1 * (3 / rank) ** 0.5)


def write_tokenizer(folder: Path, prompt: str) -> None:
    """Every byte is a token, and so are the words of the template and of a prompt."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(byte if byte in own else next(others)) for byte in range(256)]
    ids, merges = {letter: i for i, letter in enumerate(sorted(letters))}, []
    words = f" {TEMPLATE} {prompt}"
    for text in SPECIAL:
        words = words.replace(text, "\n")
    for word in words.replace(",", " ").replace(" ", "\n ").split("\n"):
        made = ""
        for letter in (letters[byte] for byte in word.encode()):
            if made and made + letter not in ids:
                merges.append(f"{made} {letter}")
                ids[made + letter] = len(ids)
            made += letter
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges))
    added = {str(len(ids) + i): {"content": text} for i, text in enumerate(SPECIAL)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))


def write_directory(root: Path, shapes: tuple[DiTShape, EncoderShape, VaeShape], prompt: str) -> int:
    """Everything that `Files.open(root)` wants; returns the bytes of the three files."""
    write_tokenizer(root / TOKENIZER, prompt)
    (root / "models/loras").mkdir(parents=True, exist_ok=True)
    made = zip((DIT, ENCODER, VAE), (dit(shapes[0]), encoder(shapes[1]), vae(shapes[2])), strict=True)
    return sum(write(root / path, tensors) for path, tensors in made)
