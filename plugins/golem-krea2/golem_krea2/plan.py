"""How much of a device's memory the networks take, and which of them stay there between pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from golem_core import GolemError, TensorSpec
from golem_krea2.checkpoint import Files
from golem_krea2.request import PIXELS
from golem_krea2.tensors import Tensors
from golem_krea2.tokens import LIMIT

FLOAT = 4


@dataclass(frozen=True)
class Need:
    """Bytes that a network takes: its weights, and about as much as a pass for the largest picture works in."""

    name: str
    weights: int
    work: int

    @property
    def total(self) -> int:
        return self.weights + self.work


@dataclass(frozen=True)
class Plan:
    """What stays on the device between pictures: nothing, the DiT's weights, or all that was opened."""

    encoder: Need
    dit: Need
    decoder: Need
    keep: bool
    everything: bool

    @classmethod
    def make(cls, files: Files, device: str, free: int | None, keep: bool) -> Plan:
        """The plan for a device with so many bytes for them, None if it does not tell.

        Raises GolemError with the numbers where the networks don't fit even one at a time, or not beside a kept DiT.
        """
        needs = encoder, dit, decoder = needs_of(files)
        largest = max(needs, key=lambda need: need.total)
        if free is not None and largest.total > free:
            raise GolemError(
                f"the {largest.name} needs {giga(largest.total)} ({giga(largest.weights)} of weights, about "
                f"{giga(largest.work)} to work in), and {device} has {giga(free)} for it"
            )
        beside = max(dit.work, encoder.total, decoder.total)
        if keep and free is not None and dit.weights + beside > free:
            raise GolemError(
                f"-krea2-keep: the {dit.name}'s {giga(dit.weights)} and {giga(beside)} for what runs beside it are "
                f"more than the {giga(free)} that {device} has for them; start without it"
            )
        everything = keep and (free is None or sum(need.total for need in needs) <= free)
        return cls(encoder, dit, decoder, keep, everything)

    def told(self, device: str, free: int | None) -> str:
        """A line for whoever starts it."""
        sizes = ", ".join(f"{need.name} {giga(need.weights)}" for need in (self.encoder, self.dit, self.decoder))
        stay = "all stay" if self.everything else "the DiT stays" if self.keep else "one at a time"
        work = giga(max(need.work for need in (self.encoder, self.dit, self.decoder)))
        there = "" if free is None else f"; {device} has {giga(free)} for them"
        return f"krea2: {sizes} on {device}, {stay}, with about {work} to work in{there}"


def needs_of(files: Files) -> tuple[Need, Need, Need]:
    """Of the text encoder, the DiT and the decoder."""
    e, d, v = files.encoder_shape, files.dit_shape, files.vae_shape
    columns = LIMIT + PIXELS // (16 * 16)
    return (
        Need(
            "encoder",
            _bytes(files.encoder, e.tensors()),
            LIMIT * FLOAT * (6 * e.width + 2 * e.ffn + 2 * e.heads * e.dim),
        ),
        Need("DiT", _bytes(files.dit, d.tensors()), columns * FLOAT * (4 * d.main.width + 2 * d.main.ffn)),
        Need("decoder", _bytes(files.vae, v.tensors()), PIXELS * FLOAT * 4 * v.base),
    )


def _bytes(tensors: Tensors, specs: Iterable[TensorSpec]) -> int:
    """Of what is read: of a convolution over time, one slice."""
    return sum(tensors[s.name].nbytes // (s.shape[2] if len(s.shape) == 5 else 1) for s in specs)


def giga(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
