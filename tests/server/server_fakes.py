"""An engine and a tokenizer for the server's tests: tokens are code points, and an answer repeats its prompt.

The engine keeps the contract of the real one: slots that requests wait for, tokens that arrive over time, answers
that can be iterated over in a thread or in an event loop and cancelled at any moment.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from golem_core import Graph
from golem_core.engine.slots import SlotState
from golem_core.errors import BadRequest
from golem_core.server.loading import LoadedChat
from golem_core.text import Markers


@dataclass
class FakeToken:
    id: int
    text: str
    logprob: float = 0.0
    top_logprobs: list[Any] = field(default_factory=list)


class FakeGeneration:
    def __init__(self, engine: FakeEngine, request: Any):
        self.engine, self.request = engine, request
        self.slot: int | None = None
        self.queued = 0.0
        self.waited = engine.active >= engine.slots
        self.prompt_tokens = len(request.prompt)
        self.cached_tokens = self.fed = self.drawn = self.guessed = self.confirmed = 0
        self.prompt_seconds = self.draw_seconds = 0.0
        self.finish_reason: str | None = None
        self.cancelled = threading.Event()
        self.items: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def cancel(self) -> None:
        self.finish_reason = self.finish_reason or "cancelled"
        self.cancelled.set()

    def _work(self) -> None:
        start = time.perf_counter()
        while not self.engine.free.acquire(timeout=0.005):
            if self.cancelled.is_set():
                self.items.put(StopIteration())
                return
        try:
            self.queued = time.perf_counter() - start
            self.slot = 0
            self.engine.active += 1
            self._draw()
        except Exception as error:
            self.items.put(error)
        finally:
            self.engine.active -= 1
            self.engine.free.release()
            self.items.put(StopIteration())

    def _draw(self) -> None:
        start = time.perf_counter()
        self.cancelled.wait(self.engine.prompt_delay)
        self.fed = self.prompt_tokens
        self.prompt_seconds = time.perf_counter() - start
        prompt, seed = self.request.prompt, self.request.sampling.seed or 0
        answer = [*prompt[seed % len(prompt) :], None]
        for token in answer:
            if self.cancelled.wait(self.engine.token_delay):
                return
            if self.engine.fail_at is not None and self.drawn >= self.engine.fail_at:
                raise RuntimeError("the pass failed")
            self.drawn += 1
            self.draw_seconds = time.perf_counter() - start - self.prompt_seconds
            if token is None:
                self.finish_reason = "stop"
                return
            self.items.put(FakeToken(token, chr(token)))
            if self.drawn >= self.request.max_tokens:
                self.finish_reason = "length"
                return

    def __iter__(self) -> FakeGeneration:
        return self

    def __next__(self) -> FakeToken:
        item = self.items.get()
        if isinstance(item, Exception):
            raise item
        return item

    def __aiter__(self) -> FakeGeneration:
        return self

    async def __anext__(self) -> FakeToken:
        while self.items.empty():
            await asyncio.sleep(0.001)
        item = self.items.get()
        if isinstance(item, StopIteration):
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item


class FakeEngine:
    def __init__(self, slots: int = 1, context: int = 4096):
        self.free = threading.Semaphore(slots)
        self.slots = slots
        self.context = context
        self.draft_n = 0
        self.active = 0
        self.token_delay = self.prompt_delay = 0.0
        self.fail_at: int | None = None
        self.requests: list[Any] = []
        self.generations: list[FakeGeneration] = []
        self.closed = False

    def submit(self, request: Any) -> FakeGeneration:
        count = len(request.prompt)
        if count >= self.context:
            message = f"prompt has {count} positions, this slot holds {self.context}; raise -context"
            code = "context_length_exceeded"
            raise BadRequest(message, param="messages", code=code, n_prompt_tokens=count, n_ctx=self.context)
        self.requests.append(request)
        self.generations.append(FakeGeneration(self, request))
        return self.generations[-1]

    @property
    def waiting(self) -> int:
        return sum(each.slot is None and not each.finish_reason for each in self.generations)

    def slot_states(self) -> list[SlotState]:
        return [SlotState(index, index < self.active, 0) for index in range(self.slots)]

    def cancel_all(self) -> None:
        for each in self.generations:
            each.cancel()

    def close(self) -> None:
        self.closed = True


class FakeTokenizer:
    bos = eos = None
    eog: frozenset[int] = frozenset()
    vocab_size = 0x110000

    def prepare(self):
        pass

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return [ord(character) for character in text]

    def encode_many(self, texts: Sequence[str], *, parse_special: bool = False) -> Iterator[list[int]]:
        return (self.encode(text, add_special=False, parse_special=parse_special) for text in texts)

    def at_least(self, text: str) -> int:
        return len(text)

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return chr(id).encode("utf-8", "surrogatepass")

    def decode(self, ids: list[int], *, special: bool = False) -> str:
        return "".join(map(chr, ids))


class FakeTemplate:
    """Renders the contents one after another, so that a test can predict the prompt."""

    source = "{# a test #}"

    def __init__(self) -> None:
        self.calls: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = []

    def takes(self, variable: str) -> bool:
        return True

    def render(self, messages: list[dict[str, Any]], **settings: Any) -> str:
        self.calls.append((messages, settings, threading.current_thread().name))
        return "|".join(f"{message['role']}:{message['content']}" for message in messages)


def fake_chat(slots: int = 1, context: int = 4096, answer_budget: int = 1024) -> LoadedChat:
    model: Any = SimpleNamespace(
        name="tiny",
        architecture="echo",
        vocab_size=0x110000,
        media=None,
        context_train=8192,
        tokenizer=FakeTokenizer(),
        sampling=SimpleNamespace(temperature=0.7, top_k=40, top_p=0.9, min_p=0.0),
        markers=Markers(),
        file=SimpleNamespace(metadata={"echo.block_count": 2}, path=Path("tiny-echo.gguf")),
    )
    engine: Any = FakeEngine(slots, context)
    template: Any = FakeTemplate()
    return LoadedChat(
        name="tiny-echo",
        model=model,
        engine=engine,
        release=engine.close,
        slots=slots,
        slot_context=context,
        answer_budget=answer_budget,
        template=template,
        template_origin="a test",
    )


def row_graph(size: int) -> Graph:
    """A graph whose logits, `size` numbers for each column, are what a pass is given: for devices that ignore it."""
    g = Graph()
    g.output("logits", g.take(g.input("logits", (size,))))
    return g
