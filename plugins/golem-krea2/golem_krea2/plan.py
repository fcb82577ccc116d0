"""How much of a device's memory the networks take, which of them stay there between pictures, and what is too large."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from golem_core import BadRequest, GolemError, TensorSpec
from golem_krea2.checkpoint import Files
from golem_krea2.request import LEAST, PIXELS, Settings
from golem_krea2.tensors import Tensors
from golem_krea2.tokens import LIMIT

FLOAT = 4
PATCH = 16 * 16
"""Pixels that are one column of the DiT."""


@dataclass(frozen=True)
class Need:
    """Bytes that a network takes: its weights, and about as much as its passes work in, whatever the picture and for
    each of its pixels."""

    name: str
    weights: int
    fixed: int
    pixel: float = 0.0

    def work(self, pixels: int) -> int:
        return self.fixed + round(self.pixel * pixels)

    def total(self, pixels: int) -> int:
        return self.weights + self.work(pixels)


@dataclass(frozen=True)
class Plan:
    """What stays on a device with `free` bytes (None: it does not tell) between pictures.

    Nothing does, unless `keep`: then the DiT's weights do, or `everything` that was opened.  Where the encoder does not
    fit beside the DiT that stays, it stays on the CPU: `aside`.
    """

    needs: tuple[Need, Need, Need]
    """Of the text encoder, the DiT and the decoder."""
    device: str
    free: int | None
    keep: bool
    everything: bool
    aside: bool

    @classmethod
    def make(cls, needs: tuple[Need, Need, Need], device: str, free: int | None, keep: bool) -> Plan:
        """Raises GolemError with the numbers where the smallest picture does not fit, or not beside a kept DiT."""
        smallest, aside = LEAST * LEAST, False
        if free is not None:
            largest = max(needs, key=lambda need: need.total(smallest))
            if largest.total(smallest) > free:
                raise GolemError(f"the {_told(largest, smallest)}, and {device} has {giga(free)} for it")
            aside = keep and device != "cpu" and _beside(needs, smallest) > free
            if keep and (beside := _beside(needs, smallest, aside)) > free:
                raise GolemError(
                    f"-krea2-keep: {giga(beside)} are needed for the DiT and what runs beside it, and {device} has "
                    f"{giga(free)} for them; start without it"
                )
        everything = keep and (free is None or sum(need.total(PIXELS) for need in needs) <= free)
        return cls(needs, device, free, keep, everything, aside)

    def check(self, settings: Settings) -> None:
        """Raises BadRequest with the numbers for a picture that is too large for the device."""
        pixels = settings.width * settings.height
        largest = max(self.needs, key=lambda need: need.total(pixels))
        if self.free is not None and largest.total(pixels) > self.free:
            raise BadRequest(
                f"size: for {settings.width}x{settings.height} the {_told(largest, pixels)}, and {self.device} has "
                f"{giga(self.free)} for it",
                param="size",
            )

    def stays_beside(self, settings: Settings) -> bool:
        """Whether the DiT's weights stay while the others work on a picture."""
        return self.free is None or _beside(self.needs, settings.width * settings.height, self.aside) <= self.free

    @property
    def told(self) -> str:
        """A line for whoever starts it."""
        sizes = ", ".join(f"{need.name} {giga(need.weights)}" for need in self.needs)
        stay = "all stay" if self.everything else "the DiT stays" if self.keep else "one at a time"
        stay += ", the encoder on the CPU" if self.aside else ""
        work = giga(max(need.work(PIXELS) for need in self.needs))
        there = "" if self.free is None else f"; {self.device} has {giga(self.free)} for them"
        return f"krea2: {sizes} on {self.device}, {stay}, with up to about {work} to work in{there}"


def needs_of(files: Files) -> tuple[Need, Need, Need]:
    """Of the text encoder, the DiT and the decoder.

    How many rows a pass holds at once was counted in the plans that the CPU and Vulkan make of these networks.
    """
    e, d, v = files.encoder_shape, files.dit_shape, files.vae_shape
    token = FLOAT * (18 * e.width + 2 * e.ffn + 2 * e.heads * e.dim + e.layers * e.kv * e.dim)
    column = FLOAT * (10 * d.main.width + 2 * d.main.ffn)
    return (
        Need("encoder", _bytes(files.encoder, e.tensors()), LIMIT * token),
        Need("DiT", _bytes(files.dit, d.tensors()), LIMIT * column, column / PATCH),
        Need("decoder", _bytes(files.vae, v.tensors()), 0, FLOAT * 6.5 * v.base),
    )


def _beside(needs: tuple[Need, Need, Need], pixels: int, aside: bool = False) -> int:
    """Bytes where the DiT's weights stay; `aside`: the encoder runs elsewhere."""
    encoder, dit, decoder = needs
    return dit.weights + max(0 if aside else encoder.total(pixels), dit.work(pixels), decoder.total(pixels))


def _told(need: Need, pixels: int) -> str:
    return (
        f"{need.name} needs {giga(need.total(pixels))} ({giga(need.weights)} of weights, about "
        f"{giga(need.work(pixels))} to work in)"
    )


def _bytes(tensors: Tensors, specs: Iterable[TensorSpec]) -> int:
    """Of what is read: of a convolution over time, one slice."""
    return sum(tensors[s.name].nbytes // (s.shape[2] if len(s.shape) == 5 else 1) for s in specs)


def giga(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
