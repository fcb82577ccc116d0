"""Guessing the tokens that may follow a conversation's last one, so that one pass can check several at once.

A guess decides only how many columns a pass gets; what is drawn comes from the model's own logits.  The small graph
that guesses (`golem_core.engine.roles.Drafting`) reads what the model's passes left of each position; those rows wait
here until a guess is wanted or there is no more room for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.errors import GolemError, Unsupported
from golem_core.graph import SCORED, Columns, Graph, GraphError, Pass

if TYPE_CHECKING:
    from golem_core.engine.conversation import Conversation
    from golem_core.engine.roles import ChatModel, Drafting

WORTH_A_COLUMN = 0.5
"""The most that a further column may cost, in passes of one, for guesses to pay: more than half of them hold."""
_MEASURED = 0.2  # seconds
_ROUNDS = (3, 20)


class Drafter:
    """Guesses at most `most` tokens ahead with `compiled`, the graph `Drafting.guess` made for `slots` conversations.

    Raises GolemError for a graph that this cannot work with.
    """

    def __init__(self, compiled: Pass, slots: int, most: int, suppress: tuple[int, ...] = ()):
        if compiled.saved_bytes:
            raise GolemError("a graph that guesses must not have recurrent states")
        self.most = most
        self._pass = compiled
        self._suppress = np.array(suppress, np.int64)
        self._trails = [_Trail() for _ in range(slots)]

    def resume(self, slot: int, start: int) -> None:
        """The next tokens of a slot are fed from position `start` on."""
        self._trails[slot].cut(start)

    def note(self, conversation: Conversation, rows: np.ndarray) -> None:
        """A pass has fed the last `len(rows)` tokens before the conversation's position; `rows` is what it left."""
        trail = self._trail(conversation)
        if len(trail.rows) + len(rows) > self._pass.width:
            self._read(conversation, trail)
        trail.rows.extend(rows.copy())

    def guess(self, conversation: Conversation, count: int) -> list[int]:
        """The `count` tokens that may follow the one to be fed next."""
        trail = self._trail(conversation)
        found = self._read(conversation, trail)
        guesses: list[int] = []
        while found is not None:
            logits = found["logits"][0]
            logits[self._suppress] = -np.inf
            guesses.append(int(logits.argmax()))
            if len(guesses) == count:
                break
            at = conversation.position + len(guesses) - 1
            found = self._run(conversation, [guesses[-1]], at, found["hidden"], scored=True)
        return guesses

    def _trail(self, conversation: Conversation) -> _Trail:
        assert conversation.slot is not None
        return self._trails[conversation.slot.index]

    def _read(self, conversation: Conversation, trail: _Trail) -> dict[str, np.ndarray] | None:
        """Feed the positions that wait, all of them followed by a known token; what the last gives, if there is any."""
        found = None
        stop = trail.start + len(trail.rows)
        for first in range(trail.read, stop, self._pass.width):
            last = min(first + self._pass.width, stop)
            tokens = conversation.tokens(first + 1, last + 1)
            rows = np.stack(trail.rows[first - trail.start : last - trail.start])
            found = self._run(conversation, tokens, first, rows, scored=last == stop)
        trail.reached(stop)
        return found

    def _run(
        self, conversation: Conversation, tokens: list[int], first: int, rows: np.ndarray, *, scored: bool
    ) -> dict[str, np.ndarray]:
        """Tokens behind the positions from `first` on, the last of which may be scored."""
        assert conversation.slot is not None
        places = np.arange(len(tokens))
        slot = np.full_like(places, conversation.slot.index)
        last = places[len(tokens) - 1 :] if scored else places[:0]
        return self._pass.run(Columns(np.array(tokens), first + places, slot, last, inputs={"hidden": rows}))


class _Trail:
    """What waits to be read of a slot: `rows` are those of the positions from `start` on.

    Positions before `read` are in the caches of the graph that guesses; the last of them keeps its row, because another
    token may follow it after all.
    """

    def __init__(self) -> None:
        self.start = 0
        self.read = 0
        self.rows: list[np.ndarray] = []

    def cut(self, start: int) -> None:
        """Tokens from position `start` on are others than before.

        Where the row of the position before them is gone, zeros stand in for it: guesses get a little worse.
        """
        last = max(start - 1, 0)
        if start <= self.start and self.rows:
            self.rows, self.start = [np.zeros_like(self.rows[0])], last
        del self.rows[start - self.start :]
        self.read = min(self.read, last)

    def reached(self, stop: int) -> None:
        """All positions before `stop` have been read."""
        del self.rows[:-1]
        self.start, self.read = stop - len(self.rows), stop


def cost(compiled: Pass, columns: int) -> float:
    """What a pass of so many tentative columns takes, in passes of a single one: the best times of several rounds.

    The first slot must not be in use; its states are at their beginning afterwards.
    """
    best = [float("inf")] * 2
    began = time.perf_counter()
    for number in range(_ROUNDS[1]):
        for i, n in enumerate((1, columns)):
            places = np.arange(n)
            facts = Columns(places % 2, places, np.zeros_like(places), places, tentative=True)
            start = time.perf_counter()
            compiled.run(facts)
            best[i] = min(best[i], time.perf_counter() - start)
        if number + 1 >= _ROUNDS[0] and time.perf_counter() - began > _MEASURED:
            break
    if compiled.saved_bytes:
        compiled.restore(0, None)
    return best[1] / best[0]


def prepare(model: ChatModel, device: Any, draft_n: int | None, sizes: dict[str, Any]) -> tuple[Pass, Drafter | None]:
    """The model's pass on a device, and what guesses for it, if anything does.

    `draft_n` is how many tokens to guess: 0 none; None one, if the model can guess and that pays on the device.
    `sizes` are for `Device.compile`.  Raises Unsupported where tokens are to be guessed that cannot be, or that would
    cost more than they bring.
    """

    def plain() -> Pass:
        return device.compile(_graph(model, model.build), **sizes)

    if draft_n is None and model.drafting is not None:
        try:
            return _with_guesses(model, model.drafting, device, 1, sizes)
        except Unsupported:
            return plain(), None
    if not draft_n:
        return plain(), None
    if model.drafting is None:
        raise Unsupported(f"-draft-n {draft_n}: {model.name} has nothing to guess its next tokens with")
    try:
        return _with_guesses(model, model.drafting, device, draft_n, sizes)
    except Unsupported as error:
        raise Unsupported(f"-draft-n {draft_n}: {error}") from error


def _graph(model: ChatModel, build: Callable[[], Graph]) -> Graph:
    graph = build()
    if not isinstance(graph, Graph):
        raise GraphError(f"the graph of {model.architecture!r} is no Graph but a {type(graph).__name__}")
    logits = graph.outputs.get("logits")
    if logits is None:
        raise GraphError(f"the graph of {model.architecture!r} has no output 'logits'; it has {sorted(graph.outputs)}")
    if logits.shape != (model.vocab_size,):
        shape = list(logits.shape)
        raise GraphError(
            f"the graph of {model.architecture!r}: the output 'logits' has the shape {shape}, and the model "
            f"a vocabulary of {model.vocab_size}"
        )
    if logits.rows != SCORED:
        raise GraphError(
            f"the graph of {model.architecture!r}: the output 'logits' has the rows {logits.rows!r} and not only those "
            "that are scored: it is to be made of what take(x) gives"
        )
    beyond = [token for token in model.suppress if not 0 <= token < model.vocab_size]
    if beyond:
        raise GolemError(f"{model.name}: the token {beyond[0]} to suppress lies outside its {model.vocab_size} tokens")
    return graph


def _with_guesses(
    model: ChatModel, drafting: Drafting, device: Any, most: int, sizes: dict[str, Any]
) -> tuple[Pass, Drafter]:
    columns, slots = most + 1, sizes["slots"]
    compiled = device.compile(_graph(model, drafting.build), **sizes, scored=max(slots, columns), tentative=columns)
    room = min(compiled.width, sizes["context"] - 1)
    if columns > room:
        raise Unsupported(f"{columns} tokens are more than the {room} that fit a pass")
    price = cost(compiled, columns)
    if price > 1 + WORTH_A_COLUMN * most:
        raise Unsupported(
            f"on this device a pass of {columns} tokens takes {price:.1f} times as long as one of a single token, so "
            "guessing ahead would make answers slower"
        )
    own = {name: value for name, value in sizes.items() if name != "progress"}
    return compiled, Drafter(device.compile(drafting.guess(), **own, scored=1), slots, most, model.suppress)
