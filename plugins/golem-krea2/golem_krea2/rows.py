"""What the DiT reads and gives as rows: a latent as patches of 2 x 2 pixels, a noise level as its embedding."""

from __future__ import annotations

import numpy as np


def embedding(sigma: float, size: int) -> np.ndarray:
    """cos and sin of 1000 sigma at `size` / 2 frequencies, float32 (size,), in float32 throughout."""
    half = size // 2
    frequencies = np.exp(np.float32(-np.log(10_000.0)) * np.arange(half, dtype=np.float32) / np.float32(half))
    angle = np.float32(sigma) * np.float32(1000) * frequencies
    return np.concatenate([np.cos(angle), np.sin(angle)])


def patches(z: np.ndarray) -> np.ndarray:
    """A latent (channels, h, w) as rows of 2 x 2 pixels, (h/2 * w/2, 4 * channels): channel, dy, dx."""
    channels, h, w = z.shape
    cut = z.reshape(channels, h // 2, 2, w // 2, 2).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(cut).reshape(h // 2 * (w // 2), 4 * channels)


def unpatched(rows: np.ndarray, h: int, w: int) -> np.ndarray:
    """What `patches` made rows of."""
    cut = rows.reshape(h // 2, w // 2, -1, 2, 2).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(cut).reshape(-1, h, w)
