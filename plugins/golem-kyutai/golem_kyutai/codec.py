"""The codec at work: frames of several streams in, their codes out, each stream's state in a slot of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from golem_core import Columns, Device, GolemError, Graph, Pass
from golem_kyutai.mimi import Mimi, convolutions, quantizer, transformer

FOREVER = 1 << 40
"""Positions of a stream: what looks back has a window, so that a stream may go on as long as it likes."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive frames of a stream: its slot, how many frames came before, and samples float32 (frames, frame)."""

    slot: int
    first: int
    samples: np.ndarray


class Codec:
    """Encodes at most `width` frames at once, of at most `slots` streams."""

    def __init__(self, mimi: Mimi, device: Device, *, slots: int, width: int):
        self.mimi, self.width = mimi, max(width, slots)

        def compile(graph: Graph, per_frame: int = 1) -> Pass:
            most = self.width * per_frame
            return device.compile(graph, slots=slots, context=FOREVER, width=most, scored=most)

        self._convolutions = compile(convolutions(mimi))
        self._transformer = compile(transformer(mimi), mimi.positions)
        self._quantizer = compile(quantizer(mimi))

    def begin(self, slot: int) -> None:
        """Nothing has been heard in this slot yet."""
        self._convolutions.restore(slot, None)
        self._quantizer.restore(slot, None)

    def encode(self, stretches: Sequence[Stretch]) -> list[np.ndarray]:
        """The codes of each stretch, float32 (frames, codebooks) of whole numbers.  A slot occurs once.

        Raises GolemError where the codec comes to what is no number.
        """
        positions, width = self.mimi.positions, self.mimi.width
        samples = np.concatenate([each.samples for each in stretches])
        frames = self._columns(stretches, 1, samples=samples[:, :, None])
        x = self._convolutions.run(frames)["y"].reshape(-1, width)
        x = self._transformer.run(self._columns(stretches, positions, x=x))["y"]
        out = self._quantizer.run(self._columns(stretches, 1, x=x.reshape(-1, positions, width)))
        if not np.isfinite(out["latent"]).all():
            raise GolemError("the codec gave numbers that are not finite")
        ends = np.cumsum([len(each.samples) for each in stretches])
        return np.split(out["codes"].copy(), ends[:-1])

    @staticmethod
    def _columns(stretches: Sequence[Stretch], per_frame: int, **inputs: np.ndarray) -> Columns:
        counts = [len(each.samples) * per_frame for each in stretches]
        return Columns(
            token=np.zeros(sum(counts)),
            position=np.concatenate(
                [each.first * per_frame + np.arange(n) for each, n in zip(stretches, counts, strict=True)]
            ),
            slot=np.repeat([each.slot for each in stretches], counts),
            inputs=inputs,
        )
