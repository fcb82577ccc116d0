"""The engine: one thread owns the compiled pass and batches whatever conversations are ready into it.

Requests come in through `submit` from any thread, answers leave through their `Generation`s.  Drawing from logits and
making text of tokens happen on another thread, so that they don't hold up the pass, except for a lone conversation:
nothing else can be held up then, and changing threads would only cost time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from golem_core.engine.conversation import Conversation
from golem_core.engine.drafting import prepare
from golem_core.engine.drawers import STUCK, Drawers
from golem_core.engine.lending import Lent
from golem_core.engine.request import FinishReason, Generation, GenerationRequest, check, check_media
from golem_core.engine.runner import Row, Runner
from golem_core.engine.scheduler import Chunk, patience, plan, reading_room
from golem_core.engine.slots import SlotPool, SlotState
from golem_core.errors import GolemError, Unavailable
from golem_core.sampling import SamplerChain, SamplerContext, SamplerStage, Shortlist

if TYPE_CHECKING:
    from golem_core.engine.roles import ChatModel


@dataclass(frozen=True)
class _End:
    """How an answer ends."""

    reason: FinishReason | None
    error: BaseException | None = None


class Engine:
    """Continues token sequences with `model` on `device`, `slots` of them at a time.

    `context` is the number of positions held in all; each slot has an equal share, `slot_context`.  `cache_ttl` is
    after how many idle seconds a slot forgets what it holds (0: never).  `checkpoints` is how many copies of a slot's
    recurrent states are kept, for models that have any.  `width` is the most columns of a pass, at most and by default
    what the device takes.  `draft_n` is how many tokens are guessed ahead while a conversation is alone: 0 none; None
    one, where the model can and that pays on the device.  `stages` are the sampler stages, by default those of every
    plugin.
    `progress(done, total)` counts bytes of weights as the device takes them over; with `wait` False that goes on
    when the engine is there, requests wait for it, and `ready()` has to be called for its errors.

    Raises GolemError where a slot would have fewer than two positions, Unsupported where guessing is asked for and
    impossible or of no use.  Close it to end its threads.
    """

    def __init__(
        self,
        model: ChatModel,
        device: Any,
        *,
        context: int = 4096,
        slots: int = 1,
        cache_ttl: float = 0.0,
        checkpoints: int = 3,
        width: int | None = None,
        draft_n: int | None = None,
        stages: Sequence[SamplerStage] | None = None,
        progress: Callable[[int, int], None] | None = None,
        wait: bool = True,
    ):
        if slots < 1:
            raise GolemError(f"slots={slots}: expected at least 1")
        if context // slots < 2:
            raise GolemError(f"context={context}: expected at least {2 * slots}, 2 positions for each of slots={slots}")
        if stages is None:
            from golem_core import plugins

            stages = plugins.sampler_stages()
        self.model = model
        self.context = context
        self.slots = slots
        self.slot_context = context // slots
        self._stages = list(stages)
        self._cache_ttl, self._checkpoints = cache_ttl, checkpoints
        take_over = partial(self._take_over, device, width, draft_n, progress)
        if wait:
            take_over()
        self._taken_over = threading.Event()

        # Everything below is shared between threads and guarded by this condition.
        self._changed = threading.Condition()
        self._queue: deque[Conversation] = deque()  # waiting for a slot, first come first served
        self._active: set[Conversation] = set()  # holding a slot
        self._ready: list[Conversation] = []  # those of the active with tokens to feed, the longest waiting first
        self._arrived = 0.0  # when the last of them was drawn for
        self._cancelled = False  # some conversation may have been cancelled
        self._running = False  # a pass is
        self._asleep: list[Generation] = []  # whose readers are woken when the next pass starts
        self._closed = False
        self._failure: BaseException | None = None

        self._drawers = Drawers(slots - 1)
        self._thread = threading.Thread(
            target=self._work, args=(None if wait else take_over,), name="golem-engine", daemon=True
        )
        self._thread.start()

    # ------------------------------------------------------------ called from any thread

    def ready(self) -> None:
        """Wait until the device has taken over the weights.  Raises what it raised instead."""
        self._taken_over.wait()
        if self._failure is not None:
            raise self._failure

    def submit(self, request: GenerationRequest) -> Generation:
        """Queue a request and return its answer at once.

        Raises BadRequest for an empty prompt, one that doesn't fit a slot (code "context_length_exceeded"), ids
        outside the vocabulary, a budget below 1, and sampling values that a stage refuses; GolemError when the
        engine is closed.
        """
        check(request, self.model.vocab_size, self.context, self.slots)
        check_media(request, self.model.media)
        context = SamplerContext(self.model.vocab_size, request.tokens, self.model.tokenizer)
        chain = SamplerChain.build(self._stages, request.sampling, context)
        generation = Generation(len(request.prompt), self._notice)
        conversation = Conversation(self.model, request, generation, chain, self.slot_context)
        with self._changed:
            if self._failure is not None:
                raise GolemError(f"the engine has failed: {self._failure}") from self._failure
            if self._closed:
                raise Unavailable("the engine is closed")
            generation.waited = len(self._active) + len(self._queue) >= self.slots
            self._queue.append(conversation)
            self._changed.notify()
        return generation

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        with self._changed:
            return sum(not conversation.generation.ended for conversation in self._queue)

    def slot_states(self) -> list[SlotState]:
        """What each slot is at now."""
        self.ready()
        with self._changed:
            return [SlotState(slot.index, slot.busy, len(slot.tokens)) for slot in self._pool.slots]

    def cancel_all(self) -> None:
        """Cancel every answer that is queued or under way; the engine goes on."""
        with self._changed:
            under_way = (*self._queue, *self._active)
        for conversation in under_way:
            conversation.generation.cancel()

    def close(self) -> None:
        """End the running answers as cancelled and stop the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._drawers.close()
        for conversation in (*self._queue, *self._active):
            conversation.generation.end("cancelled")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _notice(self) -> None:
        """A conversation was cancelled, perhaps by the garbage collector in the middle of anything on any thread, so
        this must not wait for a lock.  Whoever holds it finds the flag when the next token or timeout comes."""
        self._cancelled = True
        if self._changed.acquire(blocking=False):
            self._changed.notify()
            self._changed.release()

    # ------------------------------------------------------------ the thread that owns the pass

    def _take_over(
        self, device: Any, width: int | None, draft_n: int | None, progress: Callable[[int, int], None] | None
    ) -> None:
        sizes: dict[str, Any] = {"slots": self.slots, "context": self.slot_context, "width": width}
        sizes |= {"progress": progress}
        sizes = {name: value for name, value in sizes.items() if value is not None}
        media = self.model.media
        if media is not None and media.together:  # and everybody else may draw meanwhile
            sizes["width"] = max(width or 0, media.together + self.slots)
        compiled, self._drafter = prepare(self.model, device, draft_n, sizes)
        self.width: int = min(sizes.get("width") or compiled.width, compiled.width)
        given, axes = (media.width, media.axes) if media else (None, 0)
        self._runner = Runner(compiled, self.slots, self.model.vocab_size, given, self.model.suppress, axes)
        self.draft_n = self._drafter.most if self._drafter else 0
        recurrent = compiled if compiled.saved_bytes else None
        self._pool = SlotPool(
            self.slots, compiled.rings, self._cache_ttl, recurrent=recurrent, checkpoints=self._checkpoints
        )

    def _work(self, take_over: Callable[[], None] | None) -> None:
        try:
            if take_over is not None:
                take_over()
            self._taken_over.set()
            while chunks := self._next_chunks():
                self._run(*chunks)
        except BaseException as error:  # a defect; the readers must not wait for ever
            with self._changed:
                self._failure = error
                conversations = [*self._queue, *self._active]
            for conversation in conversations:
                conversation.generation.end(None, GolemError(f"the engine has failed: {error}"))
            if self._taken_over.is_set():
                raise
            self._taken_over.set()  # whoever waits in `ready` is given the error

    def _next_chunks(self) -> tuple[list[Chunk], float] | None:
        """What to run next, and for how long company was waited for; None when the engine is to stop."""
        began: float | None = None
        with self._changed:
            while not self._closed:
                if self._cancelled:
                    self._drop_cancelled()
                self._admit()
                timeout = STUCK if self._active else None
                if self._ready:
                    now = time.perf_counter()
                    began = began or now
                    since = now - began, now - max(began, self._arrived)
                    timeout = patience(len(self._ready), len(self._active), self._runner.last_seconds, *since)
                    if timeout <= 0:
                        self._drawers.call_for_help()
                        self._running = True
                        return self._take(), now - began
                if not self._changed.wait(timeout):
                    self._drawers.call_for_help()
        return None

    def _take(self) -> list[Chunk]:
        drawing = any(not each.reading for each in self._active)
        room = reading_room(self.width, self._runner.column_seconds) if drawing else None
        chunks = plan(self._ready, self.width, room)
        taken = {chunk.conversation for chunk in chunks}
        self._ready = [each for each in self._ready if each not in taken]
        return chunks

    def _drop_cancelled(self) -> None:
        self._cancelled = False
        self._queue = deque(each for each in self._queue if not each.generation.ended)
        for conversation in [each for each in self._ready if each.generation.ended]:
            self._ready.remove(conversation)
            self._release(conversation)
        # One that is being drawn for is released when its token comes.

    def _admit(self) -> None:
        while self._queue:
            slot = self._pool.acquire(self._queue[0].request.prompt)
            if slot is None:
                return
            conversation = self._queue.popleft()
            self._active.add(conversation)
            try:
                conversation.begin(slot)
                if self._drafter is not None:
                    self._drafter.resume(slot.index, conversation.position)
            except Exception as error:
                self._fail(conversation, "a saved state could not be restored", error)
                continue
            self._ready.append(conversation)

    def _run(self, chunks: list[Chunk], waited: float) -> None:
        scored = [chunk.conversation for chunk in chunks if chunk.scored]
        self._wake_readers()  # now, because a running pass leaves the interpreter to them
        try:
            guesses = self._guess(chunks)
            rows, outputs = self._runner.run(chunks, waited, guesses)
            if not guesses:
                self._have_fed(chunks, outputs)
        except Exception as error:  # whatever a device raises concerns the conversations in this pass only
            for chunk in chunks:
                self._fail(chunk.conversation, "the pass failed on the device", error)
            with self._changed:
                self._running = False
            return
        with self._changed:
            self._running = False
            if not guesses:  # a prompt that has begun is read to its end before the next one
                self._ready = [chunk.conversation for chunk in chunks if chunk.conversation.waiting] + self._ready
        self._drawers.expect()
        if guesses:
            self._draw_along(scored[0], guesses, rows, outputs["hidden"])
            return
        if len(self._active) == 1:  # no other conversation is held up, so there is no hurry
            for conversation, row in zip(scored, rows, strict=True):
                self._draw(conversation, _writable(row))
            return
        slots = [conversation.slot.index for conversation in scored if conversation.slot is not None]
        for work in zip(scored, self._runner.lend(rows, slots), strict=True):
            self._drawers.put(partial(self._draw_lent, *work))

    def _guess(self, chunks: list[Chunk]) -> list[int]:
        """What may follow the one token of the pass at hand, if that is all it has and nobody waits for more room."""
        if self._drafter is None or len(self._active) > 1 or chunks[0].conversation.reading:
            return []
        conversation = chunks[0].conversation
        count = min(self._drafter.most, conversation.left - 1, self.width - 1)
        return self._drafter.guess(conversation, count) if count > 0 else []

    def _have_fed(self, chunks: list[Chunk], outputs: dict[str, np.ndarray]) -> None:
        first = 0
        for chunk in chunks:
            chunk.conversation.fed(chunk.count)
            if self._drafter is not None:
                self._drafter.note(chunk.conversation, outputs["hidden"][first : first + chunk.count])
            first += chunk.count

    def _draw_along(self, conversation: Conversation, guesses: list[int], rows: list[Row], hidden: np.ndarray) -> None:
        """Draw token after token for as long as each is the one that was guessed; the columns after that do not count.

        What is drawn is what would have been drawn without guesses: every token comes from its own row of logits.
        """
        assert conversation.slot is not None and self._drafter is not None
        slot, kept = conversation.slot, 0
        for row, guess in zip(rows, [*guesses, None], strict=True):
            conversation.fed(1)
            kept += 1
            end = self._draw_one(conversation, _writable(row))
            if end is not None or conversation.upcoming(1) != [guess]:
                break
        try:
            self._runner.keep(slot.index, kept)
            slot.overwrote(len(rows) - kept)
            self._drafter.note(conversation, hidden[:kept])
        except Exception as error:
            self._fail(conversation, "the pass failed on the device", error)
            return
        conversation.generation.checked(len(guesses), kept - 1)
        self._settle(conversation, end)

    def _fail(self, conversation: Conversation, what: str, error: Exception) -> None:
        """End a conversation whose slot's contents are anybody's guess."""
        assert conversation.slot is not None
        conversation.slot.forget()
        failure = GolemError(f"{what}: {error}")
        failure.__cause__ = error
        self._finish(conversation, None, failure)

    def _wake_readers(self) -> None:
        with self._changed:
            asleep, self._asleep = self._asleep, []
        if len(asleep) > 1:  # each may take a call to the system, and the pass need not wait for that
            self._drawers.put(partial(_wake, asleep))
        else:
            _wake(asleep)

    # ------------------------------------------------------------ drawing, on whichever thread

    def _draw_lent(self, conversation: Conversation, lent: Lent) -> None:
        logits, done = lent
        try:
            self._draw(conversation, logits)
        finally:
            done()

    def _draw(self, conversation: Conversation, logits: Row) -> None:
        self._settle(conversation, self._draw_one(conversation, logits))

    def _draw_one(self, conversation: Conversation, logits: Row) -> _End | None:
        """Draw and deliver a token; how the answer ends if it does."""
        generation = conversation.generation
        try:
            if generation.ended:
                return _End("cancelled")
            token, reason = conversation.draw(logits)
        except Exception as error:  # a sampler's error, a stranger's among them, concerns this conversation only
            return _End(None, error)
        generation.deliver(token)
        return _End(reason) if reason else None

    def _settle(self, conversation: Conversation, end: _End | None) -> None:
        """Have the conversation go on, or end it."""
        if end is not None:
            self._finish(conversation, end.reason, end.error)
            return
        generation = conversation.generation
        with self._changed:
            self._cancelled |= generation.ended
            self._ready.append(conversation)
            self._arrived = time.perf_counter()
            # in between the first and the last, the engine would only wake up to wait on
            if len(self._ready) == 1 or len(self._ready) >= len(self._active) or self._cancelled:
                self._changed.notify()
            later = not self._running
            if later:
                self._asleep.append(generation)
        if not later:
            generation.wake()

    def _finish(
        self, conversation: Conversation, reason: FinishReason | None, error: BaseException | None = None
    ) -> None:
        with self._changed:
            self._release(conversation)
            self._changed.notify()
        conversation.generation.end(reason, error)

    def _release(self, conversation: Conversation) -> None:
        assert conversation.slot is not None
        self._pool.release(conversation.slot)
        self._active.discard(conversation)


def _wake(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.wake()


def _writable(row: Row) -> Row:
    return row if isinstance(row, Shortlist) or row.flags.writeable else row.copy()
