"""The tiny networks through the studio: LoRAs, brackets, guidance, and the memory of a process."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golem_krea2.checkpoint import DIT
from golem_krea2.request import Settings
from golem_krea2.shapes import DiTShape, Heads
from golem_krea2.studio import Studio
from PIL import Image

from golem_core import BadRequest
from golem_core.cpu.device import CpuDevice

SMALL = Settings("a (red:1.3) cat", width=64, height=64, steps=2, seed=5)


def cpu() -> CpuDevice:
    return CpuDevice(threads=2)


def pixels(studio: Studio, **changes) -> np.ndarray:
    with Image.open(io.BytesIO(studio.draw(replace(SMALL, **changes)).png)) as picture:
        return np.asarray(picture).astype(int)


@pytest.fixture(scope="module")
def lora(tiny, files):
    """A LoRA of two products, one of them the text part's."""
    dice, tensors = np.random.default_rng(3), {}
    for target, outputs, inputs in (("blocks.0.attn.wq", 128, 128), ("txtfusion.refiner_blocks.1.mlp.up", 96, 64)):
        tensors[f"diffusion_model.{target}.lora_A.weight"] = dice.normal(0, 0.3, (4, inputs)).astype(np.float32)
        tensors[f"diffusion_model.{target}.lora_B.weight"] = dice.normal(0, 0.3, (outputs, 4)).astype(np.float32)
    path = tiny.write(files.loras / "style.safetensors", tensors)
    yield path.name
    path.unlink()


def test_a_lora_changes_the_picture_by_its_strength(files, lora):
    studio = Studio(files, cpu, keep=True)
    assert studio.plan.everything
    try:
        without = pixels(studio)
        whole, half, again = (pixels(studio, lora=lora, lora_strength=strength) for strength in (1.0, 0.5, 1.0))
        np.testing.assert_array_equal(pixels(studio, lora=lora, lora_strength=0.0), without)
        np.testing.assert_array_equal(pixels(studio), without)
        np.testing.assert_array_equal(whole, again)
        assert 0 < np.abs(half - without).mean() < np.abs(whole - without).mean()
    finally:
        studio._leave()


def test_a_lora_of_another_network_is_refused_by_its_key(tiny, files):
    wide = np.zeros((4, 256), np.float32)
    path = tiny.write(files.loras / "wide.safetensors", {"diffusion_model.blocks.0.attn.wq.lora_A.weight": wide})
    try:
        with pytest.raises(BadRequest, match=r"^lora: wide\.safetensors: .*blocks\.0\.attn\.wq"):
            Studio(files, cpu).draw(replace(SMALL, lora=path.name))
    finally:
        path.unlink()


def test_brackets_are_cut_out_unless_they_are_read_as_they_stand(files):
    weighted, literal = Studio(files, cpu), Studio(files, cpu, brackets=False)
    assert np.abs(pixels(weighted) - pixels(literal)).max() > 0
    plain = {"prompt": "a red cat"}
    np.testing.assert_array_equal(pixels(weighted, **plain), pixels(literal, **plain))
    np.testing.assert_array_equal(pixels(weighted, prompt="a (red) cat"), pixels(weighted))


def test_the_negative_prompt_counts_where_there_is_guidance(files):
    studio = Studio(files, cpu)
    np.testing.assert_array_equal(pixels(studio, negative="blur"), pixels(studio))
    assert np.abs(pixels(studio, negative="blur", cfg=2.0) - pixels(studio, cfg=2.0)).max() > 0


# ---------------------------------------------------------------- memory

STATUS = Path("/proc/self/status")


MEASURED = """
import sys
from pathlib import Path
from golem_core.cpu.device import CpuDevice
from golem_krea2.checkpoint import Files
from golem_krea2.request import Settings
from golem_krea2.studio import Stopped, Studio

def own_memory():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10

studio = Studio(Files.open(sys.argv[1]), lambda: CpuDevice(threads=2))
settings, during = Settings("a cat", width=64, height=64, steps=2, seed=5), []
before = own_memory()
for _ in range(3):
    try:
        studio.draw(settings, lambda step: during.append(own_memory()), lambda: len(during) % 2 == 1)
    except Stopped:
        during.append(0)
    print(max(during) - before, own_memory() - before)
studio.close()
"""
"""In a process of its own: at each picture given up, the most bytes that lie in no file, and those after it."""


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's /proc")
def test_a_picture_given_up_gives_its_memory_back(tiny, tmp_path):
    """A DiT of 165 MB, all zeros, so that its file has holes instead."""
    directory = tiny.write_directory(tmp_path)
    shape = DiTShape(Heads(2048, 16, 4, 128, 8192), Heads(64, 2, 2, 32, 96), blocks=2, taps=2, channels=16, time=32)
    tiny.write_zeros(directory / DIT, shape.tensors())
    done = subprocess.run([sys.executable, "-c", MEASURED, str(directory)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    pictures = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(pictures) == 3
    for most, after in pictures:
        assert most > 150 << 20
        assert after < 75 << 20
