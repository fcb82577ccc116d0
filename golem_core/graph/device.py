"""What a device is to the rest of the system: it compiles graphs, and what it makes of one runs passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from golem_core.files.weights import Weight
from golem_core.graph.graph import Columns, Graph


@dataclass(frozen=True)
class Ring:
    """A KV ring as the engine sees it: position p of a slot lies at p modulo `length`.

    `window` positions back, the own one included, are read; None: all of them.
    """

    length: int
    window: int | None


class Pass(Protocol):
    """A compiled graph with its states.  One thread runs it at a time.

    A pass may have several buffers for its outputs, so that they are read while it runs again: then `buffers` is how
    many, and `run(columns, buffer)` writes the one of that number, which stays valid until it is written again.
    """

    width: int
    """Most columns that one run takes."""

    @property
    def rings(self) -> Sequence[Ring]:
        """What every slot has of the graph's rings of keys and values, in the order of `Graph.rings`."""
        ...

    def run(self, columns: Columns) -> dict[str, np.ndarray]:
        """Output name -> float32 (rows, *shape), the caller's to overwrite, valid until the next run into the same
        buffer."""
        ...

    @property
    def saved_bytes(self) -> int:
        """Bytes of one copy that `save` makes; 0: the graph has no recurrent state, and slots can be rewound."""
        ...

    def save(self, slot: int) -> Any:
        """A copy of the slot's recurrent states, as they are after the columns run so far."""
        ...

    def restore(self, slot: int, saved: Any | None) -> None:
        """Puts the slot's recurrent states back to what `save` returned; None: to the beginning, all zeros."""
        ...

    def keep(self, slot: int, count: int) -> None:
        """After a run of tentative columns: the slot's recurrent states stand after the first `count` of them.

        Without it they stand after all of them.
        """
        ...

    def close(self) -> None:
        """Gives the pass's own memory back, after which it doesn't run any more; the weights stay with the device."""
        ...


class ListingPass(Pass, Protocol):
    """A pass that finds the largest numbers of rows by itself, so that whole rows need not leave the device.

    No pass has to be one.  One with an attribute `log_totals` that is False leaves out "log_total", and whole rows are
    asked for where log-probabilities are wanted.
    """

    def prepare_lists(self, most: int, without: Sequence[int]) -> int:
        """Get ready to list the `most` largest of the rows of "logits", leaving out the entries `without`.

        Called once, before lists are asked for.  Returns how many it will list: `most` or fewer, 0 where the rows are
        such that it cannot.
        """
        ...

    def run(self, columns: Columns, *, lists: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """As every pass does.  `lists` has a number for each scored column: how many of the largest of its row are
        wanted, or 0 for the whole row.

        Then "logits" has the whole rows only; and for each of the others, in their order, "list_ids" int32 (n, at
        least the most asked for), "list_values" float32 likewise, and "log_total" float32 (n,) with what `Shortlist`
        says of them: descending, equal ones in ascending order of id, a NaN before every number.
        """
        ...


class Device(Protocol):
    """Something that runs graphs.  Weights that several graphs read are taken over once."""

    name: str

    def compile(
        self,
        graph: Graph,
        *,
        slots: int = 1,
        context: int = 4096,
        width: int = 512,
        scored: int | None = None,
        tentative: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Pass:
        """Makes a pass for `slots` conversations of `context` positions, at most `width` columns a run.

        At most `scored` (default: one per slot) of them are scored.  A run may have as many as `tentative` tentative
        columns, for which the device keeps further copies of recurrent states.  `progress(done, total)` counts bytes
        of weights.  Raises Unsupported naming the op or the weight that the device cannot run.
        """
        ...

    def round_input(self, weight: Weight, x: np.ndarray) -> np.ndarray:
        """What a product with `weight` sees of float32 activations x (rows, width), for comparison with `Reference`."""
        ...

    def close(self) -> None:
        """Lets go of the weights."""
        ...


def free_memory(device: Device) -> int | None:
    """Bytes that weights and passes may have on a device; None where it has no `free_memory()` that tells."""
    tell = getattr(device, "free_memory", None)
    return None if tell is None else tell()
