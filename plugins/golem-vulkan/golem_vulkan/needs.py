"""What a graph needs of a device's memory, worked out before anything is uploaded."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from golem_core import GolemError, Graph, Plan, Weight
from golem_vulkan.adapters import Adapter
from golem_vulkan.formats import device_bytes
from golem_vulkan.passes import BEHIND
from golem_vulkan.states import shares
from golem_vulkan.weights import STAGING


@dataclass(frozen=True)
class Needs:
    """Bytes."""

    weights: int
    """In the device's own memory."""
    host_weights: int
    """In the host's, where the device reads them."""
    experts: int
    """Of `weights`, what are experts'."""
    states: int
    """Keys, values and recurrent states."""
    work: int
    """Activations, results, and what uploading takes."""

    @property
    def total(self) -> int:
        """Of the device's own memory."""
        return self.weights + self.states + self.work

    def told(self, adapter: Adapter, free: int) -> str:
        """A line for whoever waits for the upload."""
        return (
            f"{self.named(adapter)}, {giga(self.states)} of states, {giga(self.work)} to work in; {giga(free)} are free"
        )

    def named(self, adapter: Adapter) -> str:
        """The adapter and the weights."""
        host = f" ({giga(self.host_weights)} more in the host's memory)" if self.host_weights else ""
        return f"vulkan:{adapter.index} {adapter.name}: {giga(self.weights)} of weights{host}"

    def check(self, adapter: Adapter, free: int) -> None:
        """Raises GolemError, with the numbers and what would help, where it doesn't fit."""
        if self.total <= free:
            return
        advice = ["a smaller -context"] if self.total - self.states <= free else []
        if self.experts and self.total - self.experts <= free:
            advice.append("-host-experts")
        help_text = f"; {' or '.join(advice)} would do" if advice else ""
        raise GolemError(
            f"vulkan:{adapter.index}: {giga(self.total)} are needed ({giga(self.weights)} of weights, "
            f"{giga(self.states)} of states, {giga(self.work)} to work in), and {adapter.name} has {giga(free)} free"
            f"{help_text}"
        )


def giga(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def work_out(
    graph: Graph,
    plans: dict[int, Plan],
    new: list[Weight],
    in_host: set[Weight],
    ring_bytes: int,
    slots: int,
    tentative: int,
) -> Needs:
    """`new` are the weights to be uploaded, `ring_bytes` the keys and values of all slots."""
    own = [w for w in new if w not in in_host]
    recurrent = sum(4 * prod(state.shape) for state in graph.recurrent)
    outputs = sum(p.buffer.size for p in next(reversed(plans.values())).outputs.values() if p.buffer.output)
    return Needs(
        weights=sum(device_bytes(w) for w in own),
        host_weights=sum(device_bytes(w) for w in new if w in in_host),
        experts=sum(device_bytes(w) for w in own if len(w.shape) == 3),
        states=ring_bytes + shares(slots, tentative) * recurrent,
        work=max(plan.arena for plan in plans.values()) + BEHIND + outputs + (2 * STAGING if new else 0),
    )
