"""The decoder of the picture codec (Wan 2.1's, Qwen-Image's): a latent in, a picture out.

For one frame the causal network over time is one over height and width: of a convolution over three frames only the
last slice reads anything but zeros.  A picture is one column, but for the attention, where every pixel is one.  Maths
and names are those of ComfyUI's `ldm/wan/vae.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from golem_core import Columns, Device, GolemError, Graph, Pass, Value, Weight
from golem_krea2.checkpoint import Files
from golem_krea2.shapes import UPS, VaeShape
from golem_krea2.tensors import Tensors

TINY = 1e-24
"""Square of the smallest length that a norm divides by."""
SIDES = 8
"""Pixels of the picture for each of the latent, in height and in width."""
MEAN = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
)  # fmt: skip
DEVIATION = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
)  # fmt: skip


def unscaled(z: np.ndarray) -> np.ndarray:
    """The sampler's latent (16, h, w) as the codec's."""
    mean, deviation = (np.array(each, np.float32)[:, None, None] for each in (MEAN, DEVIATION))
    return z * deviation + mean


# ---------------------------------------------------------------- boxes


def convolution(g: Graph, t: Tensors, name: str, x: Value) -> Value:
    """Over height and width, with as many zeros around as keep the size."""
    return g.conv2d(x, t.derived(f"{name}.weight, last slice", flattened(t, f"{name}.weight")), t[f"{name}.bias"])


def flattened(t: Tensors, name: str) -> Callable[[str], Weight]:
    """Makes of a weight (out, channels[, time], height, width) the matrix of its last slice, (out, height * width *
    channels), in the type that the file has."""

    def make(key: str) -> Weight:
        w = t[name]
        size = w.nbytes // (w.rows * w.width)
        values = w.data.reshape(*w.shape, size)
        values = values[:, :, -1] if len(w.shape) == 5 else values
        matrix = np.ascontiguousarray(values.transpose(0, 2, 3, 1, 4))
        return Weight(f"{name}", w.type, (len(matrix), matrix.size // len(matrix) // size), matrix.reshape(-1))

    return make


def norm(g: Graph, t: Tensors, name: str, x: Value) -> Value:
    """x / |x| * sqrt(channels) * gamma for each pixel."""
    channels = x.shape[-1]
    gamma = t.derived(f"{name}.gamma, flat", lambda key: Weight.of(key, t.values(f"{name}.gamma").reshape(-1)))
    return g.rms_norm(x, gamma, eps=TINY / channels)


def residual(g: Graph, t: Tensors, name: str, x: Value) -> Value:
    h = convolution(g, t, f"{name}.residual.2", g.silu(norm(g, t, f"{name}.residual.0", x)))
    h = convolution(g, t, f"{name}.residual.6", g.silu(norm(g, t, f"{name}.residual.3", h)))
    return h + (convolution(g, t, f"{name}.shortcut", x) if f"{name}.shortcut.weight" in t else x)


# ---------------------------------------------------------------- graphs


def before(shape: VaeShape, t: Tensors, h: int, w: int) -> Graph:
    """The picture is one column: input "z" (h, w, latent), output "x" (h, w, 4 * base)."""
    g = Graph()
    x = convolution(g, t, "conv2", g.input("z", (h, w, shape.latent)))
    x = convolution(g, t, "decoder.conv1", x)
    g.output("x", residual(g, t, "decoder.middle.0", x))
    return g


def attention(shape: VaeShape, t: Tensors) -> Graph:
    """A column is a pixel: input and output "x" (4 * base,)."""
    g, name, channels = Graph(), "decoder.middle.1", 4 * shape.base

    def pointwise(x: Value, which: str) -> Value:
        weight = t.derived(f"{name}.{which}.weight, last slice", flattened(t, f"{name}.{which}.weight"))
        return g.linear(x, weight, t[f"{name}.{which}.bias"])

    x = g.input("x", (channels,))
    three = pointwise(norm(g, t, f"{name}.norm", x), "to_qkv")
    q, k, v = (g.slice(three, i * channels, (i + 1) * channels).heads(1) for i in range(3))
    g.output("x", x + pointwise(g.attend_columns(q, k, v, scale=1 / sqrt(channels)), "proj"))
    return g


def after(shape: VaeShape, t: Tensors, h: int, w: int) -> Graph:
    """The picture is one column: input "x" (h, w, 4 * base), output "y" (8 h, 8 w, 3), black at -1 and white at 1."""
    g = Graph()
    x = residual(g, t, "decoder.middle.2", g.input("x", (h, w, 4 * shape.base)))
    for i in range(len(shape.steps)):
        name = f"decoder.upsamples.{i}"
        x = convolution(g, t, f"{name}.resample.1", g.upsample(x)) if i in UPS else residual(g, t, name, x)
    g.output("y", convolution(g, t, "decoder.head.2", g.silu(norm(g, t, "decoder.head.0", x))))
    return g


class Decoder:
    """The decoder on a device, with the passes of the last size.  One thread uses it at a time.

    The weights are the device's once they are taken over; `close` gives back what passes need.
    """

    def __init__(self, files: Files, device: Device):
        self.shape, self.device, self._tensors = files.vae_shape, device, files.vae
        self._passes: list[Pass] = []
        self._size: tuple[int, int] | None = None

    def decode(self, z: np.ndarray) -> np.ndarray:
        """The picture uint8 (8 h, 8 w, 3) of the sampler's latent z (16, h, w).

        Raises GolemError where the network gives numbers that are not finite.
        """
        y = self.raw(unscaled(np.asarray(z, np.float32)))
        if not np.isfinite(y).all():
            raise GolemError("the decoder gave numbers that are not finite")
        return (np.clip((y + 1) / 2, 0, 1) * 255).astype(np.uint8)

    def raw(self, z: np.ndarray) -> np.ndarray:
        """The picture float32 (8 h, 8 w, 3), not held between -1 and 1, of the codec's latent z (16, h, w)."""
        _, h, w = z.shape
        first, second, third = self._sized(h, w)
        x = first.run(_columns(1, z=z.transpose(1, 2, 0)[None]))["x"]
        x = second.run(_columns(h * w, x=x.reshape(h * w, -1)))["x"]
        return third.run(_columns(1, x=x.reshape(1, h, w, -1)))["y"][0].copy()

    def close(self) -> None:
        for each in self._passes:
            each.close()
        self._passes, self._size = [], None

    def _sized(self, h: int, w: int) -> list[Pass]:
        if self._size != (h, w):
            self.close()
            t, shape, pixels = self._tensors, self.shape, h * w
            self._passes = [
                self.device.compile(before(shape, t, h, w), context=16, width=1),
                self.device.compile(attention(shape, t), context=pixels, width=pixels),
                self.device.compile(after(shape, t, h, w), context=16, width=1),
            ]
            self._size = h, w
        return self._passes


def _columns(count: int, **inputs: np.ndarray) -> Columns:
    return Columns(token=np.zeros(count), position=np.arange(count), slot=np.zeros(count), inputs=inputs)
