"""Slots: the shares of a compiled pass's state, one conversation at a time in each, and what they remember.

A slot keeps the tokens that its caches hold after a conversation has left it, so that the next one with the
same beginning needs to read only the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from golem_core.engine.checkpoints import Checkpoints, RecurrentStates
from golem_core.engine.media import Span, inside
from golem_core.engine.prefix import RingOwners, common_prefix, present, resume_position

_WORTH_SHARING = 0.1  # the least part of a prompt for which a slot's contents are given preference


class Ring(Protocol):
    """What the engine needs to know of a pass's KV ring: its length, and its window (None: it sees everything)."""

    @property
    def length(self) -> int: ...

    @property
    def window(self) -> int | None: ...


@dataclass(frozen=True)
class SlotState:
    """What a slot is at: whether a conversation has it, and how many positions it remembers."""

    index: int
    busy: bool
    positions: int


class Slot:
    """One share of the state: `tokens` are those that its caches hold, by position.

    `checkpoints` is given where the state is a recurrent one, which can't be rewound.
    """

    def __init__(self, index: int, rings: Sequence[Ring], checkpoints: Checkpoints | None = None):
        self.index = index
        self.tokens: list[int] = []
        self.busy = False
        self.last_used = 0.0
        windowed = {(ring.length, ring.window) for ring in rings if ring.window is not None}
        self._rings = [RingOwners(length, window) for length, window in sorted(windowed)]
        self._checkpoints = checkpoints
        self._stops: list[int] = []  # positions that a pass must end at, to save the states there

    def resume(self, prompt: Sequence[int], whole: Sequence[Span] = ()) -> int:
        """Keep what serves `prompt` and return the first position to feed, which is not inside a span of `whole`."""
        if self._checkpoints is None:
            start = resume_position(self.tokens, prompt, self._rings, whole)
        else:
            shared = common_prefix(self.tokens, prompt)
            limit = min(shared, len(prompt) - 1)

            def serves(length: int) -> bool:
                return present(self._rings, length) and inside(length, whole) == length

            start = self._checkpoints.resume(len(self.tokens), limit, serves)
            stops = self._checkpoints.stops(start, shared, len(prompt))
            self._stops = [stop for stop in stops if inside(stop, whole) == stop]
        del self.tokens[start:]
        return start

    @property
    def room(self) -> int | None:
        """How many tokens the next pass may feed at most; None: any number."""
        return self._stops[0] - len(self.tokens) if self._stops else None

    def wrote(self, tokens: Sequence[int]) -> None:
        """A pass has fed `tokens` at the positions after those held."""
        for ring in self._rings:
            ring.record(len(self.tokens), len(tokens))
        self.tokens += tokens
        if self._checkpoints is not None and self._stops and len(self.tokens) == self._stops[0]:
            self._checkpoints.save(self._stops.pop(0))

    def overwrote(self, count: int) -> None:
        """A pass has also fed `count` tokens after those held, which do not count."""
        for ring in self._rings:
            ring.record(len(self.tokens), count)

    def forget(self) -> None:
        """Hold nothing: the caches' contents are unknown or no longer wanted."""
        self.tokens.clear()
        self._stops.clear()
        for ring in self._rings:
            ring.forget()
        if self._checkpoints is not None:
            self._checkpoints.forget()


class SlotPool:
    """The slots of an engine.  A slot idle for `ttl` seconds forgets what it holds; 0 is for ever.

    `recurrent` are the recurrent states of the pass if it has any; each slot keeps `checkpoints` copies of its own.
    """

    def __init__(
        self,
        count: int,
        rings: Sequence[Ring] = (),
        ttl: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        recurrent: RecurrentStates | None = None,
        checkpoints: int = 0,
    ):
        kept = [None if recurrent is None else Checkpoints(recurrent, index, checkpoints) for index in range(count)]
        self.slots = [Slot(index, rings, kept[index]) for index in range(count)]
        self._ttl = ttl
        self._clock = clock

    def acquire(self, prompt: Sequence[int]) -> Slot | None:
        """The best free slot for `prompt`, now busy; None where there is none.

        First the one that shares most with the prompt, at least a tenth of it; else an empty one; else the least
        recently used.
        """
        now = self._clock()
        free = [slot for slot in self.slots if not slot.busy]
        if not free:
            return None
        if self._ttl > 0:
            for slot in free:
                if slot.tokens and now - slot.last_used >= self._ttl:
                    slot.forget()
        slot, shared = max(((slot, common_prefix(slot.tokens, prompt)) for slot in free), key=lambda pair: pair[1])
        if shared == 0 or shared < _WORTH_SHARING * len(prompt):
            slot = min(free, key=lambda slot: (len(slot.tokens) > 0, slot.last_used))
        slot.busy = True
        slot.last_used = now
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; what it holds stays."""
        slot.busy = False
        slot.last_used = self._clock()
