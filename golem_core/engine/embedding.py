"""Embedding texts: one thread owns the compiled pass and carries the texts of many requests in each.

As many texts as fit share a pass: all of a request where it has room for them, and those of every request that came
while the pass before was at work.  They lie end to end, without padding, and each has a slot of its own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.errors import BadRequest, GolemError, Unavailable
from golem_core.graph import Columns

if TYPE_CHECKING:
    from golem_core.engine.roles import Embedder

__all__ = ["Embedded", "EmbeddingEngine"]

WIDTH = 4096
"""Positions of a pass, unless the caller or the device wants fewer."""
FEW = 256
"""A pass of fewer positions waits for company, because its cost is mostly fixed."""
PATIENCE = 0.003
"""Seconds for which it waits."""
COUNTED = 16
"""How many times the limit a text may be too long and still have its tokens counted."""


@dataclass(frozen=True)
class Embedded:
    """What a request gets: float32 (texts, dimensions), not normalized; the positions that were read; the seconds for
    which the request waited and was worked on, passes that it shared with others included; and whether a pass was
    running when it came."""

    vectors: np.ndarray
    positions: int
    queued: float
    seconds: float
    waited: bool = False


@dataclass(eq=False)
class _Request:
    texts: Sequence[Sequence[int]]
    vectors: np.ndarray
    future: Future[Embedded] = field(default_factory=Future)
    """Pending until the answer is there, so that it can be cancelled at any time."""
    begun: int = 0  # texts that were given to a pass
    waited: bool = False
    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0

    @property
    def left(self) -> int:
        """Positions that no pass has carried yet."""
        return sum(map(len, self.texts[self.begun :]))


class EmbeddingEngine:
    """Gives vectors to texts of token ids with `model` on `device`.

    `width` is the most positions of a pass, at least the model's limit.  `progress(done, total)` counts bytes of
    weights as the device takes them over.  Close it to end its thread.
    """

    def __init__(
        self,
        model: Embedder,
        device: Any,
        *,
        width: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ):
        self.model = model
        width = max(model.limit, width or WIDTH)
        self._pass = device.compile(model.build(), slots=width, context=model.limit, width=width, progress=progress)
        self.width: int = min(width, self._pass.width)
        if self.width < model.limit:
            raise GolemError(
                f"{model.name}: the device takes {self.width} columns a pass, and a text may have {model.limit}"
            )
        self._debug = bool(os.environ.get("GOLEM_DEBUG_BATCHES"))
        self.passes = 0
        self.positions = 0
        self.texts = 0
        self.seconds = 0.0

        # Everything below is shared between threads and guarded by this condition.
        self._changed = threading.Condition()
        self._queue: deque[_Request] = deque()
        self._under_way: list[_Request] = []  # requests with texts in the running pass
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="golem-embed", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ called from any thread

    def submit(self, texts: Sequence[Sequence[int]]) -> Future[Embedded]:
        """Queue texts of token ids, special tokens included, and return their answer at once.

        Cancelling it takes the texts out of the queue.  Raises BadRequest for no text, one without ids, one over the
        model's limit (code "context_length_exceeded") and ids outside the vocabulary; GolemError when the engine is
        closed.  The answer raises GolemError where a pass failed or gave a vector that is not finite.
        """
        self._check(texts)
        request = _Request(texts, np.empty((len(texts), self.model.dimensions), np.float32))
        with self._changed:
            if self._failure is not None:
                raise GolemError(f"the engine has failed: {self._failure}") from self._failure
            if self._closed:
                raise Unavailable("the engine is closed")
            request.waited = bool(self._under_way)
            self._queue.append(request)
            self._changed.notify()
        return request.future

    @property
    def waiting(self) -> int:
        """How many requests wait for a pass."""
        with self._changed:
            return sum(not request.future.done() for request in self._queue)

    def cancel_all(self) -> None:
        """Cancel every request that is queued or under way; the engine goes on."""
        with self._changed:
            requests = (*self._queue, *self._under_way)
        for request in requests:
            request.future.cancel()

    def close(self) -> None:
        """Cancel what is queued and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self.cancel_all()

    def __enter__(self) -> EmbeddingEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check(self, texts: Sequence[Sequence[int]]) -> None:
        if not texts:
            raise BadRequest("there is no text to embed", param="input")
        limit, vocabulary = self.model.limit, self.model.vocab_size
        for index, ids in enumerate(texts):
            if not ids:
                raise BadRequest(f"text {index} has no tokens", param="input")
            if len(ids) > limit:
                count = len(ids) if len(ids) <= COUNTED * limit else f"over {COUNTED * limit}"
                raise BadRequest(
                    f"text {index} has {count} tokens, and the model takes {limit}",
                    param="input",
                    code="context_length_exceeded",
                    n_prompt_tokens=len(ids),
                    n_ctx=limit,
                )
            if min(ids) < 0 or max(ids) >= vocabulary:
                wrong = next(id for id in ids if not 0 <= id < vocabulary)
                raise BadRequest(
                    f"text {index} has the token {wrong}; the vocabulary ends at {vocabulary - 1}", param="input"
                )

    # ------------------------------------------------------------ the thread that owns the pass

    def _work(self) -> None:
        try:
            while parts := self._next_pass():
                self._run(parts)
        except BaseException as error:  # a defect; nobody must wait for ever
            with self._changed:
                self._failure = error
                requests = {*self._queue, *self._under_way}
            for request in requests:
                _fail(request, GolemError(f"the engine has failed: {error}"))
            raise

    def _next_pass(self) -> list[tuple[_Request, range]] | None:
        """The texts of the next pass by request; None when the engine is to stop."""
        began: float | None = None
        with self._changed:
            while not self._closed:
                self._queue = deque(each for each in self._queue if not each.future.done())
                if not self._queue:
                    began = None
                    self._changed.wait()
                    continue
                now = time.perf_counter()
                began = began or now
                wait = began + PATIENCE - now
                if wait <= 0 or sum(request.left for request in self._queue) >= FEW:
                    parts = self._take()
                    self._under_way = [request for request, _ in parts]
                    return parts
                self._changed.wait(wait)
        return None

    def _take(self) -> list[tuple[_Request, range]]:
        """Whole requests, first come first served, as long as they fit.

        One that is larger than a pass is cut into several, and lets those that came after it go before what is left
        of it.
        """
        parts: list[tuple[_Request, range]] = []
        room = self.width
        later: list[_Request] = []
        while self._queue and room:
            request = self._queue[0]
            if request.begun == 0 and room < request.left <= self.width and parts:
                break
            self._queue.popleft()
            first, end = request.begun, request.begun
            while end < len(request.texts) and len(request.texts[end]) <= room:
                room -= len(request.texts[end])
                end += 1
            if end > first:
                request.begun = end
                parts.append((request, range(first, end)))
            if end < len(request.texts):
                later.append(request)
                if first == end:
                    break
        self._queue.extend(later)
        return parts

    def _run(self, parts: list[tuple[_Request, range]]) -> None:
        texts = [request.texts[index] for request, indices in parts for index in indices]
        lengths = np.array([len(ids) for ids in texts])
        start = time.perf_counter()
        for request, _ in parts:
            request.started = request.started or start
        try:
            columns = Columns(
                token=np.concatenate([np.asarray(ids, np.int64) for ids in texts]),
                position=np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths),
                slot=np.repeat(np.arange(len(texts)), lengths),
            )
            rows = self._pass.run(columns)["embedding"]
            if rows.shape != (len(texts), self.model.dimensions):
                raise ValueError(f"the pass gave {rows.shape}, for {len(texts)} texts of {self.model.dimensions}")
        except Exception as error:  # whatever a device raises concerns the requests in this pass only
            failure = GolemError(f"the pass failed on the device: {error}")
            failure.__cause__ = error
            with self._changed:
                self._under_way = []
            for request, _ in parts:
                _fail(request, failure)
            return
        ended = time.perf_counter()
        self._count(len(texts), int(lengths.sum()), len(parts), ended - start)
        at = 0
        for request, indices in parts:
            found = rows[at : at + len(indices)]
            request.vectors[indices.start : indices.stop] = found
            at += len(indices)
            if not np.isfinite(found).all():
                _fail(request, GolemError(f"{self.model.name} gave a vector that is not finite"))
        with self._changed:
            self._under_way = []
        for request, indices in parts:
            if indices.stop == len(request.texts) and _claim(request.future):
                positions = sum(map(len, request.texts))
                queued, seconds = request.started - request.submitted, ended - request.started
                request.future.set_result(Embedded(request.vectors, positions, queued, seconds, request.waited))

    def _count(self, texts: int, positions: int, requests: int, seconds: float) -> None:
        self.passes += 1
        self.texts += texts
        self.positions += positions
        self.seconds += seconds
        if self._debug:
            print(
                f"embedding pass: {positions} positions, {texts} texts, {requests} requests, {seconds * 1e3:.3f} ms",
                file=sys.stderr,
                flush=True,
            )


def _fail(request: _Request, error: GolemError) -> None:
    if _claim(request.future):
        request.future.set_exception(error)


def _claim(future: Future[Embedded]) -> bool:
    """Whether the answer is still waited for; it cannot be cancelled from now on."""
    return not future.done() and future.set_running_or_notify_cancel()
