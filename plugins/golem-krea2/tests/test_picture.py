"""A whole picture, held to what a pipeline of diffusers' and transformers' networks and torch's noise draws."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golem_krea2 import noise
from golem_krea2.checkpoint import Files
from golem_krea2.request import Settings
from golem_krea2.studio import Networks, Studio
from golem_krea2.vae import Decoder
from PIL import Image

EXPECTED = np.load(Path(__file__).parent / "fixtures" / "pictures.npz")
PICTURES = {
    "plain": Settings("a red fox in the snow, photo", width=96, height=64, steps=8, seed=42),
    "scaled": Settings("un été à Paris, 猫", "blur, text", width=64, height=96, steps=5, cfg=2.5, seed=2**50 - 1),
}


def decibels(got: np.ndarray, expected: np.ndarray) -> float:
    """Peak signal-to-noise ratio of 8-bit pictures; no more than one value's being off by one in all."""
    return float(10 * np.log10(255**2 * got.size / max(1.0, np.sum((got.astype(np.float64) - expected) ** 2))))


@pytest.mark.parametrize("dialect", PICTURES)
def test_a_picture_is_that_of_the_reference_pipeline(tiny, tmp_path, open_device, dialect):
    files = Files.open(tiny.write_directory(tmp_path, dialect))
    latents = []

    class Watched(Decoder):
        def decode(self, z: np.ndarray) -> np.ndarray:
            latents.append(z)
            return super().decode(z)

    studio = Studio(files, open_device, source=noise.source("cpu"), networks=replace(Networks(), decoder=Watched))
    try:
        drawn = studio.draw(PICTURES[dialect])
    finally:
        studio.close()
    latent, picture = EXPECTED[f"{dialect}.latent"], EXPECTED[f"{dialect}.picture"]
    error = np.sqrt(np.mean((latents[0] - latent) ** 2) / np.mean(latent**2))
    with Image.open(io.BytesIO(drawn.png)) as opened:
        got = np.asarray(opened)
    assert got.shape == picture.shape and len(np.unique(picture)) > 200
    assert error < 1e-2, error
    assert decibels(got, picture) >= 40, decibels(got, picture)
