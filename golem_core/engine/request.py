"""What is asked of the engine, and what it hands back: a request, its tokens, and the stream of them.

A `Generation` is written by the engine's threads and read by one reader, from a thread or from an asyncio task.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Literal

from golem_core.engine.media import Span
from golem_core.errors import BadRequest
from golem_core.sampling import SamplingParams

if TYPE_CHECKING:
    from golem_core.engine.roles import Media

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass
class GenerationRequest:
    """A prompt and how to continue it.

    `prompt` is token ids, and negative numbers where the rows of `media` stand (`row_numbers`); `max_tokens` bounds the
    answer.  `ignore_eos` goes on past the tokens that end an answer.  `logprobs` asks for the log-probability of each
    token, and `top_logprobs` > 0 for that and the likeliest ones beside it.  `shown` are control tokens whose names are
    part of the answer's text; other control tokens have no text.
    """

    prompt: list[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    shown: frozenset[int] = frozenset()
    media: tuple[Span, ...] = ()

    @property
    def tokens(self) -> list[int]:
        """The prompt without what stands for media."""
        return [token for token in self.prompt if token >= 0] if self.media else self.prompt


def check(request: GenerationRequest, vocabulary: int, context: int, slots: int) -> None:
    """Raises BadRequest for what `Engine.submit` refuses, `context` positions being divided among `slots`."""
    prompt = request.prompt
    if isinstance(prompt, str):
        raise BadRequest("the prompt is text; a request of the engine has its tokens", param="prompt")
    if not prompt:
        raise BadRequest("the prompt is empty", param="prompt")
    check_room(len(prompt), context, slots)
    text, last = prompt, 0
    for span in request.media:
        if not last <= span.start < span.stop <= len(prompt) or max(prompt[span.start : span.stop], default=0) >= 0:
            raise BadRequest(f"the rows at position {span.start} of the prompt have no place there", param="prompt")
        last = span.stop
    if request.media:
        rows = {at for span in request.media for at in range(span.start, span.stop)}
        text = [token for at, token in enumerate(prompt) if at not in rows]
        if last == len(prompt):
            raise BadRequest("the prompt ends in a picture or a recording, with no token after it", param="prompt")
    if min(text) < 0 or max(text) >= vocabulary:
        wrong = next(token for token in text if not 0 <= token < vocabulary)
        raise BadRequest(f"the prompt has the token {wrong}; the vocabulary ends at {vocabulary - 1}", param="prompt")
    if not isinstance(request.max_tokens, Integral):
        raise BadRequest(f"max_tokens={request.max_tokens!r}: expected a whole number", param="max_tokens")
    if request.max_tokens < 1:
        raise BadRequest(f"max_tokens must be at least 1, not {request.max_tokens}", param="max_tokens")


def check_room(tokens: int, context: int, slots: int) -> None:
    """Raises BadRequest for a prompt of so many tokens that none of the `slots` holds."""
    limit = context // slots
    if tokens >= limit:
        share = f" (-context {context} divided among {slots})" if slots > 1 else ""
        raise BadRequest(
            f"the prompt has {tokens} tokens, and a conversation holds fewer than {limit}{share}; "
            "shorten it or start with a larger -context",
            code="context_length_exceeded",
            n_prompt_tokens=tokens,
            n_ctx=limit,
        )


def check_media(request: GenerationRequest, media: Media | None) -> None:
    """Raises BadRequest for rows of media that a model with `media` does not take."""
    if request.media and media is None:
        raise BadRequest("the prompt has media, and the model was opened without a projector", param="prompt")
    for span in request.media:
        assert media is not None
        if span.rows.shape[1:] != (media.width,):
            raise BadRequest(f"rows of {list(span.rows.shape[1:])}; the model takes {media.width}", param="prompt")
        if span.places is not None and span.places.shape != (len(span.rows), media.axes):
            raise BadRequest(
                f"places of {list(span.places.shape)}; the model takes {[len(span.rows), media.axes]}", param="prompt"
            )
        if span.whole and len(span.rows) > media.together:
            raise BadRequest(f"{len(span.rows)} rows go together; the model takes {media.together}", param="prompt")


@dataclass(frozen=True, slots=True)
class Token:
    """One drawn token.

    `text` is what it adds to the answer: only complete characters, nothing of a stop string, and "" while either
    is undecided.  `logprob` and the pairs (id, log-probability) of `top_logprobs` are natural logarithms under the
    model's own distribution, before bias, truncation and temperature; None and () where not asked for.
    """

    id: int
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class Generation:
    """The answer to a request as it is drawn: iterate over it for its tokens, with `for` or with `async for`.

    Every drawn token comes once, the one that ends the answer included; their texts joined are the answer.
    Iterating raises what made the conversation fail, after the tokens drawn until then.  `cancel` ends it early;
    leaving a `with` block does the same.  One reader at a time.

    Facts, complete once it has ended: `slot` (None while queued), `queued` seconds before it had one, `waited`
    whether all slots were taken when it came, `prompt_tokens`, of which `cached_tokens` were held already and `fed`
    were read in `prompt_seconds`, `drawn` tokens in `draw_seconds`, and `finish_reason`, None until the end and after a
    failure.  Of the `guessed` tokens that were guessed ahead, `confirmed` were drawn.
    """

    def __init__(self, prompt_tokens: int, notice: Callable[[], None] = lambda: None):
        self.slot: int | None = None
        self.queued = 0.0
        self.waited = False
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self.fed = 0
        self.drawn = 0
        self.guessed = 0
        self.confirmed = 0
        self.prompt_seconds = 0.0
        self.draw_seconds = 0.0
        self.finish_reason: FinishReason | None = None
        self._notice = notice
        self._lock = threading.RLock()  # `cancel` may be called by the garbage collector, in the middle of anything
        self._tokens: deque[Token] = deque()
        self._wake: Callable[[], object] | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._submitted = time.perf_counter()
        self._started: float | None = None
        self._first_logits: float | None = None

    # ------------------------------------------------------------ the reader's side

    def cancel(self) -> None:
        """End the answer here.  The slot is given back before the next pass; what was read stays cached."""
        with self._lock:
            self._tokens.clear()
        if self.end("cancelled"):
            self._notice()

    @property
    def ended(self) -> bool:
        """Whether no further token will be drawn."""
        return self._ended

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        while True:
            with self._lock:
                if (token := self._pop()) is not None:
                    return token
                if self._ended:
                    raise StopIteration
                gate = threading.Lock()
                gate.acquire()
                self._wake = gate.release
            gate.acquire()

    def __aiter__(self) -> AsyncIterator[Token]:
        return self

    async def __anext__(self) -> Token:
        while True:
            with self._lock:
                if (token := self._pop()) is not None:
                    return token
                if self._ended:
                    raise StopAsyncIteration
                arrived = asyncio.get_running_loop().create_future()
                self._wake = _setter(arrived)
            await arrived

    def _pop(self) -> Token | None:
        if self._tokens:
            return self._tokens.popleft()
        if self._error is not None:
            raise self._error
        return None

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cancel()

    # ------------------------------------------------------------ the engine's side

    def start(self, slot: int, cached_tokens: int) -> None:
        """A slot was taken that holds the first `cached_tokens` of the prompt."""
        with self._lock:
            if not self._ended:
                self._started = time.perf_counter()
                self.queued = self._started - self._submitted
                self.slot = slot
                self.cached_tokens = cached_tokens

    def read(self, count: int, whole: bool) -> None:
        """`count` positions of the prompt were fed; `whole` when they were the last ones."""
        with self._lock:
            if not self._ended:
                self.fed += count
                if whole:
                    self._first_logits = time.perf_counter()

    def deliver(self, token: Token) -> None:
        """Leave one token for the reader, who sees it at once unless asleep."""
        with self._lock:
            if not self._ended:
                self.drawn += 1
                self._tokens.append(token)

    def checked(self, guessed: int, confirmed: int) -> None:
        """A pass has checked guesses of further tokens; `confirmed` of them were drawn."""
        with self._lock:
            if not self._ended:
                self.guessed += guessed
                self.confirmed += confirmed

    def wake(self) -> None:
        """Wake the reader if it sleeps."""
        with self._lock:
            wake, self._wake = self._wake, None
        if wake is None:
            return
        try:
            wake()
        except RuntimeError:  # the reader's event loop is closed: nobody is there to read on
            self.end("cancelled")

    def end(self, reason: FinishReason | None, error: BaseException | None = None) -> bool:
        """No token follows.  The first end counts; returns whether this was it."""
        with self._lock:
            if self._ended:
                return False
            now = time.perf_counter()
            if self._started is None:
                self.queued = now - self._submitted
            else:
                self.prompt_seconds = (self._first_logits or now) - self._started
                self.draw_seconds = now - (self._first_logits or now)
            self.finish_reason = reason
            self._error = error
            self._ended = True
        self.wake()
        return True


def _setter(arrived: asyncio.Future[None]) -> Callable[[], object]:
    """What to call from another thread to let a task go on that awaits the future."""

    def set_if_waiting() -> None:
        if not arrived.done():
            arrived.set_result(None)

    return lambda: arrived.get_loop().call_soon_threadsafe(set_if_waiting)
