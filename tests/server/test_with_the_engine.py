"""The server over the real engine, on a device that says again what it heard: bytes are tokens, and each token
repeats the one sixteen positions before it."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from server_fakes import FakeTemplate, row_graph

from golem_core.engine import ChatModel, Engine, SamplingDefaults
from golem_core.sampling import STAGES
from golem_core.server.loading import LoadedChat

END = 256
LAG = 16


class Bytes:
    vocab_size, bos, eos, eog, add_bos = 257, None, END, frozenset({END}), False

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return list(text.encode())

    def at_least(self, text: str) -> int:
        return 0

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"" if token == END else bytes([token])


class Parrot:
    """A compiled pass: takes `seconds`, remembers tokens by slot and position, fails when told to."""

    saved_bytes = 0

    def __init__(self, slots: int, context: int, width: int):
        self.width = min(width, 32)
        self.rings = (SimpleNamespace(length=context, window=None),)
        self.heard = np.zeros((slots, context), int)
        self.seconds = 0.0
        self.fails = False
        self.passes = 0

    def run(self, columns: Any) -> dict[str, np.ndarray]:
        self.passes += 1
        time.sleep(self.seconds)
        if self.fails:
            raise RuntimeError("the device is gone")
        self.heard[columns.slot, columns.position] = columns.token
        logits = np.zeros((len(columns.scored), 257), np.float32)
        for row, index in enumerate(columns.scored):
            slot, position = columns.slot[index], columns.position[index]
            logits[row, self.heard[slot, max(0, position + 1 - LAG)]] = 7.0
        return {"logits": logits}


class Device:
    def compile(self, graph: Any, *, slots: int, context: int, width: int = 32) -> Parrot:
        self.parrot = Parrot(slots, context, width)
        return self.parrot


@pytest.fixture
def talk(start):
    """Start a server over the engine: talk(slots) → (live, engine, parrot)."""
    engines: list[Engine] = []

    def launch(slots: int = 1, context: int = 4096) -> tuple[Any, Engine, Parrot]:
        file: Any = SimpleNamespace(metadata={})
        tokenizer: Any = Bytes()
        model = ChatModel("parrot", "parrot", 257, 4096, lambda: row_graph(257), tokenizer, None, None, file)
        model.sampling = SamplingDefaults(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        device = Device()
        engine = Engine(model, device, context=context, slots=slots, stages=STAGES)
        engines.append(engine)
        template: Any = FakeTemplate()
        chat = LoadedChat("parrot", model, engine, engine.close, slots, engine.slot_context, 24, template, "a test")

        def use(server: Any) -> None:
            server.chat = chat

        return start(prepare=use), engine, device.parrot

    yield launch
    for engine in engines:
        engine.close()


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def joined(response: httpx.Response) -> tuple[str, str, str]:
    """The text, the reason, and the last event's data of a stream."""
    data = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block.startswith("data: ")]
    choices = [json.loads(each)["choices"][0] for each in data[:-1]]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"], data[-1]


@pytest.mark.parametrize("stop", [None, ["€x"], ["7", "nothing"], "ä€"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_stream_joins_to_the_whole_answer(talk, seed, stop) -> None:
    live, _, _ = talk()
    fields = {"messages": user("0123456789abcdef 67ä€xyzab"), "seed": seed, "stop": stop, "max_tokens": 60}
    whole = live.chat(**fields).json()["choices"][0]
    text, reason, done = joined(live.chat(**fields, stream=True))
    assert text == whole["message"]["content"]
    assert reason == whole["finish_reason"]
    assert done == "[DONE]"


def test_stop_strings_never_leave_not_even_half(talk) -> None:
    live, _, _ = talk()
    fields = {"messages": user("abcdefghijklmnop"), "temperature": 0, "stop": ["ghX", "klm"]}
    text, reason, _ = joined(live.chat(**fields, stream=True))
    assert (text, reason) == ("abcdefghij", "stop")


def test_what_a_conversation_shares_with_the_last_is_not_read_again(talk) -> None:
    live, _, _ = talk()
    first = live.chat(messages=user("a long beginning of a conversation"), temperature=0).json()
    second = live.chat(messages=user("a long beginning of a conversation, and more"), temperature=0).json()
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == len("user:a long beginning of a conversation")
    timings = second["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == second["usage"]["prompt_tokens"]


def test_many_clients_share_the_slots_and_none_gets_anothers_answer(talk) -> None:
    live, engine, parrot = talk(slots=3, context=600)
    parrot.seconds = 0.001
    wrong: list[Any] = []

    def ask(index: int) -> None:
        text = f"question no. {index:03}"  # sixteen bytes, so that it is the answer
        with httpx.Client(base_url=live.url, timeout=30) as client:
            body = {"messages": user(text), "temperature": 0, "max_tokens": 32, "stream": index % 2 == 0}
            response = client.post("/v1/chat/completions", json=body)
        said = joined(response)[0] if index % 2 == 0 else response.json()["choices"][0]["message"]["content"]
        if said != text * 2:
            wrong.append((text, said))

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not engine._active and not engine._queue


def test_each_of_two_slots_keeps_its_conversation_and_the_log_says_what_was_read(talk, printed) -> None:
    live, _, _ = talk(slots=2)
    turns = {name: user(f"{name} tells a long story of her own, {name} does") for name in ("Alice", "Robert")}

    def turn(name: str) -> dict[str, Any]:
        reply = live.chat(messages=turns[name], temperature=0).json()
        said = reply["choices"][0]["message"]["content"]
        turns[name] += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
        return reply["usage"]

    first = turn("Alice")
    assert turn("Robert")["prompt_tokens_details"]["cached_tokens"] <= len("user:")
    second = turn("Alice")
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["prompt_tokens"]
    lines = printed.lines(3, "POST")
    assert [line.split(" — ")[1] for line in lines] == ["slot 0", "slot 1", "slot 0"]
    assert lines[2].split(" — ")[2].startswith(f"{second['prompt_tokens'] - cached} prompt in ")


def test_only_who_finds_all_slots_taken_is_said_to_have_queued(talk, printed) -> None:
    live, engine, parrot = talk(slots=2)
    parrot.seconds = 0.05  # a slot is given only between passes
    threads = [threading.Thread(target=live.chat, kwargs={"max_tokens": 6, "temperature": 0}) for _ in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        assert until(lambda number=number: len(engine._active) + len(engine._queue) == number + 1)
    for thread in threads:
        thread.join()
    lines = printed.lines(3, "POST")
    assert ["queued" in line for line in lines] == [False, False, True]


def test_two_hundred_clients_at_once_are_all_answered_in_the_order_in_which_they_came(talk) -> None:
    live, engine, _ = talk(slots=4, context=1024)
    came: list[Any] = []
    submit = engine.submit

    def noted(request: Any) -> Any:
        generation = submit(request)
        came.append(generation)
        return generation

    engine.submit = noted  # type: ignore[method-assign]

    async def ask(client: httpx.AsyncClient, index: int) -> httpx.Response:
        fields = {"messages": user(f"question {index:03}"), "temperature": 0, "max_tokens": 3, "stream": index % 2 == 0}
        return await client.post("/v1/chat/completions", json=fields)

    async def all_at_once() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=live.url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(ask(client, index) for index in range(200)))

    assert [response.status_code for response in asyncio.run(all_at_once())] == [200] * 200
    started = [generation._started for generation in came]
    assert len(started) == 200 and started == sorted(started)
    assert {generation.slot for generation in came} == {0, 1, 2, 3}


def test_hanging_up_at_random_moments_leaves_no_slot_taken_and_no_thread(talk) -> None:
    live, engine, parrot = talk(slots=3, context=1536)
    parrot.seconds = 0.001
    assert live.chat(messages=user("0123456789abcdef"), temperature=0, max_tokens=2).status_code == 200

    def threads() -> list[str]:
        """All but the pool that the framework keeps for files and slow handlers."""
        return sorted(each.name for each in threading.enumerate() if not each.name.startswith(("asyncio_", "AnyIO")))

    before = threads()
    dice = random.Random(5)

    async def ask(index: int, stop: asyncio.Semaphore) -> bytes:
        body = json.dumps({"messages": user("x" * dice.randrange(1, 400)), "max_tokens": 12, "stream": index % 2 == 0})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        async with stop:
            reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            patience = dice.uniform(0, 0.06) if index % 3 == 0 else 30
            try:
                async with asyncio.timeout(patience):
                    return await reader.read(-1)
            except TimeoutError:
                return b""
            finally:
                writer.transport.abort()

    async def storm() -> list[bytes]:
        stop = asyncio.Semaphore(12)
        return await asyncio.gather(*(ask(index, stop) for index in range(240)))

    replies = asyncio.run(storm())
    assert all(reply.startswith(b"HTTP/1.1 200") for index, reply in enumerate(replies) if index % 3)
    assert b"" in replies
    assert until(lambda: not engine._active and not engine._queue)
    assert not any(slot.busy for slot in engine._pool.slots)
    assert threads() == before
    slots = {live.chat(messages=user(f"{n}" * 16), temperature=0, max_tokens=2).status_code for n in range(4)}
    assert slots == {200}


def hang_up(live: Any, stream: bool, after: Any, text: str = "0123456789abcdef") -> None:
    """Ask, wait until after() holds, and close the connection."""
    body = json.dumps({"messages": user(text), "max_tokens": 3000, "stream": stream, "temperature": 0}).encode()
    with socket.create_connection(("127.0.0.1", live.port)) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert until(after)


def until(condition: Any, within: float = 5.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return False


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("text", "passes"), [("x" * 3000, 3), ("0123456789abcdef", 20)], ids=["reading", "drawing"])
def test_a_client_that_hangs_up_frees_its_slot(talk, stream, text, passes) -> None:
    live, engine, parrot = talk()
    parrot.seconds = 0.01
    hang_up(live, stream, lambda: parrot.passes >= passes, text)
    assert until(lambda: not engine._active, 1.0)
    ran = parrot.passes
    time.sleep(0.1)
    assert parrot.passes == ran, "nothing is drawn for nobody"
    assert live.chat(messages=user("0123456789abcdef"), temperature=0, max_tokens=2).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_in_the_queue_never_reaches_a_slot(talk, stream, printed) -> None:
    live, engine, parrot = talk()
    parrot.seconds = 0.02
    answers: list[httpx.Response] = []
    first = threading.Thread(target=lambda: answers.append(live.chat(messages=user("0123456789abcdef"), temperature=0)))
    first.start()
    assert until(lambda: len(engine._active) == 1)
    hang_up(live, stream, lambda: len(engine._queue) == 1)
    assert until(lambda: not engine._queue, 0.5)
    assert engine._active, "the answer under way goes on"
    first.join()
    assert answers[0].json()["choices"][0]["message"]["content"] == "0123456789abcdef01234567"
    printed.until("cancelled while queued")


@pytest.mark.parametrize("stream", [False, True])
def test_a_pass_that_fails_fails_its_requests_and_no_others(talk, stream) -> None:
    live, _, parrot = talk()
    parrot.fails = True
    response = live.chat(stream=stream)
    assert response.status_code == 500
    assert "the device is gone" in response.json()["error"]["message"]
    assert response.headers["x-should-retry"] == "false"
    parrot.fails = False
    assert live.chat(stream=stream).status_code == 200


def test_the_prompt_is_held_to_the_slots_share_of_the_context(talk) -> None:
    live, _, _ = talk(slots=2, context=128)
    error = live.chat(messages=user("x" * 64)).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (69, 64)
    answer = live.chat(messages=user("x" * 40), max_tokens=500, temperature=0).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] <= 65
