"""Turns: a text that was accepted, the events on the way to its answer, and who follows them.

A turn runs apart from the request that posted it.  Turns of one conversation run one after another, in the order in
which they were accepted; those of different conversations run at once, each conversation on a thread of its own, up to
`AT_ONCE`; further conversations wait for one of these threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from golem_core.hub.errors import Refused
from golem_core.hub.messages import Message
from golem_core.hub.store import Store
from golem_core.server.log import say_defect

__all__ = ["KEPT", "Turn", "TurnEvent", "Turns", "follow"]

KEPT = 300.0
"""Seconds that a turn can be asked for after its end."""

ATTEMPTS = 3
"""How many processes may begin a turn: one that takes the server down with it is not tried for ever."""

AT_ONCE = 256
"""How many conversations are answered at once; each may hold a connection to a provider, and processes have few."""

STOPPING = "the server is stopping"


@dataclass(frozen=True)
class TurnEvent:
    """One event of a turn: "log" for each tool call, and one "done" or "error" at the end."""

    name: str
    data: dict[str, Any]

    @property
    def last(self) -> bool:
        """Whether nothing follows."""
        return self.name in ("done", "error")


class Turn:
    """One turn.  `resumed` marks one that an earlier process accepted; `begun`, that its message is in the store."""

    def __init__(
        self, identity: str, conversation: str, channel: str, text: str, *, resumed: bool = False, begun: bool = False
    ):
        self.id = identity
        self.conversation = conversation
        self.channel = channel
        self.text = text
        self.resumed = resumed
        self.begun = begun
        self.events: list[TurnEvent] = []
        self.ended_at: float | None = None
        self._lock = threading.Lock()
        self._listeners: set[Callable[[], object]] = set()

    def add(self, name: str, /, **data: Any) -> None:
        """Add an event.  After the last one, others are ignored."""
        with self._lock:
            if self.ended:
                return
            self.events.append(TurnEvent(name, data))
            listeners = list(self._listeners)
        for wake in listeners:
            with contextlib.suppress(RuntimeError):  # the loop of a follower is closed: nobody is there to wake
                wake()

    @property
    def ended(self) -> bool:
        """Whether the last event is there."""
        return bool(self.events) and self.events[-1].last

    def listen(self, wake: Callable[[], object]) -> None:
        """Have `wake` called at every event to come."""
        with self._lock:
            self._listeners.add(wake)

    def unlisten(self, wake: Callable[[], object]) -> None:
        """Have `wake` called no more."""
        with self._lock:
            self._listeners.discard(wake)


async def follow(turn: Turn) -> AsyncGenerator[TurnEvent, None]:
    """Every event of a turn from the first, as they come, up to the last.  A slow reader misses none."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(news.set)

    turn.listen(wake)
    try:
        seen = 0
        while True:
            news.clear()
            for event in turn.events[seen:]:
                seen += 1
                yield event
                if event.last:
                    return
            await news.wait()
    finally:
        turn.unlisten(wake)


class Turns:
    """The turns of all conversations.  `run` answers one and adds its last event; it may take as long as it likes."""

    def __init__(self, store: Store, run: Callable[[Turn], None], clock: Callable[[], float] = time.monotonic):
        self._store = store
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, Turn] = {}
        self._ended: deque[tuple[Turn, float]] = deque()  # in the order of their ends
        self._queues: dict[str, deque[Turn]] = {}
        self._ready: deque[str] = deque()  # conversations that have a queue and no thread yet
        self._workers: set[threading.Thread] = set()
        self._stopping = False

    def accept(self, conversation: str, channel: str, text: str) -> Turn:
        """Take a turn, which is on disk when this returns.  Refused (409, 503) when it cannot be taken."""
        turn = Turn(str(uuid.uuid4()), conversation, channel, text)
        with self._lock:
            if self._stopping:
                raise Refused(503, STOPPING)
            self._store.accept(turn.id, conversation, channel, text)
            self._enqueue(turn)
        return turn

    def resume(self) -> int:
        """Go on with what an earlier process accepted and did not answer; returns how many turns that are."""
        waiting = []
        for each in self._store.waiting():
            if each.begun >= ATTEMPTS:
                lost = f"the server ended {each.begun} times during this turn"
                self._store.finish(each.id, each.conversation, Message("assistant", lost))
                continue
            if each.begun:
                self._store.begin_again(each.id)
            waiting.append(each)
        with self._lock:
            for each in waiting:
                begun = each.begun > 0
                self._enqueue(Turn(each.id, each.conversation, each.channel, each.text, resumed=True, begun=begun))
        return len(waiting)

    def find(self, identity: str) -> Turn:
        """The turn of that id; Refused (404) for one that is unknown or ended too long ago."""
        with self._lock:
            self._forget()
            found = self._turns.get(identity)
        if found is None:
            raise Refused(404, "turn not found")
        return found

    def stop(self, within: float = 5.0) -> None:
        """Take no more turns and end the streams of those that have no answer.

        A turn that has not begun stays in the store, for the next process.
        """
        with self._lock:
            self._stopping = True
            while self._ready:
                del self._queues[self._ready.pop()]
            for queue in self._queues.values():
                while len(queue) > 1:
                    queue.pop()
            turns, workers = list(self._turns.values()), list(self._workers)
        for turn in turns:
            turn.add("error", error=STOPPING)
        until = time.monotonic() + within
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def _enqueue(self, turn: Turn) -> None:
        self._forget()
        self._turns[turn.id] = turn
        queue = self._queues.get(turn.conversation)
        if queue is not None:
            queue.append(turn)
            return
        self._queues[turn.conversation] = deque([turn])
        if len(self._workers) >= AT_ONCE:
            self._ready.append(turn.conversation)
            return
        worker = threading.Thread(target=self._work, args=(turn.conversation,), name="conversations", daemon=True)
        self._workers.add(worker)
        worker.start()

    def _work(self, conversation: str | None) -> None:
        """Run the turns of conversations until none is left; the first of a queue is the one that runs."""
        while conversation is not None:
            turn = self._queues[conversation][0]
            try:
                self._run(turn)
            except Exception as error:  # a defect; the conversation's other turns go on
                say_defect(error)
            finally:
                turn.add("error", error="the turn ended without an answer")
                conversation = self._after(turn)

    def _after(self, turn: Turn) -> str | None:
        """Take a turn that has ended out of its queue; returns the conversation that its thread goes on with."""
        with self._lock:
            turn.ended_at = self._clock()
            self._ended.append((turn, turn.ended_at))
            queue = self._queues[turn.conversation]
            queue.popleft()
            if queue:
                return turn.conversation
            del self._queues[turn.conversation]
            if self._ready:
                return self._ready.popleft()
            self._workers.discard(threading.current_thread())
            return None

    def _forget(self) -> None:
        now = self._clock()
        while self._ended and now >= self._ended[0][1] + KEPT:
            del self._turns[self._ended.popleft()[0].id]
