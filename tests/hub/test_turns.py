"""Turns from the post to the last event: order, replay, slow readers, settings, and the end of the server."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from hub_fakes import BEARER, CHATS, Clock, calling, echo, roll

from golem_core.hub import turns
from golem_core.hub.store import Store


def test_a_turn_runs_on_without_its_poster_and_is_replayed_whole(live, extension) -> None:
    tool = extension("dice", {"/v1/tools/roll": lambda body: {"result": str(body["n"] * 2)}})
    live.register(tool, tools=[roll()])
    live.register(extension(answers={"/v1/chat": calling("roll", '{"n": 2}', ' {"n":\n3}')}), providers=CHATS)
    host = live.url.removeprefix("http://")
    body = json.dumps({"channel": "test", "text": "roll"})
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2]))) as raw:
        lines = [
            "POST /v1/conversations/c/turns HTTP/1.1",
            f"Host: {host}",
            f"Authorization: {BEARER['Authorization']}",
        ]
        raw.sendall(("\r\n".join([*lines, f"Content-Length: {len(body)}", "", body])).encode())
        turn = json.loads(raw.recv(65536).partition(b"\r\n\r\n")[2] or raw.recv(65536))["id"]
    expected = [
        ("log", {"line": '[roll] {"n": 2}', "name": "roll", "args": '{"n": 2}', "result": "4"}),
        ("log", {"line": '[roll] {"n": 3}', "name": "roll", "args": ' {"n":\n3}', "result": "6"}),
        ("done", {"text": "4 6"}),
    ]
    assert live.events(turn) == expected
    assert live.events(turn) == expected
    assert [tool["name"] for tool in live.hub.registry.tools().values() for tool in [tool[1]]] == ["roll"]
    roles = [message["role"] for message in live.client.get("/v1/conversations/c").json()["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_finished_turn_is_kept_for_five_minutes(live, extension) -> None:
    clock = Clock()
    live.hub.turns._clock = clock
    live.register(extension(answers={"/v1/chat": echo}), providers=CHATS)
    turn = live.post("hello")
    assert live.events(turn)[-1][0] == "done"
    while live.hub.turns.find(turn).ended_at is None:
        time.sleep(0.001)
    clock.now += 299.9
    assert live.client.get(f"/v1/turns/{turn}").status_code == 200
    clock.now += 0.1
    refused = live.client.get(f"/v1/turns/{turn}")
    assert (refused.status_code, refused.json()) == (404, {"error": "turn not found"})


def test_turns_of_one_conversation_take_their_turn_and_others_do_not_wait(live, extension) -> None:
    gate, running, most = threading.Event(), [], []

    def slow(body):
        text = body["messages"][-1]["content"]
        running.append(text)
        most.append(set(running))
        if text != "free":
            gate.wait(10)
        running.remove(text)
        return echo(body)

    live.register(extension(answers={"/v1/chat": slow}), providers=CHATS)
    turns = [live.post(f"turn {index}", "one") for index in range(4)]
    assert live.say("free", "two") == ("done", {"text": "echo: free"})
    gate.set()
    assert [live.events(turn)[-1] for turn in turns] == [("done", {"text": f"echo: turn {n}"}) for n in range(4)]
    assert all(len(each & {f"turn {n}" for n in range(4)}) <= 1 for each in most)
    said = [m["content"] for m in live.client.get("/v1/conversations/one").json()["messages"]]
    assert said == [text for n in range(4) for text in (f"turn {n}", f"echo: turn {n}")]


def test_a_slow_reader_misses_nothing(live, extension) -> None:
    live.register(extension("dice", {"/v1/tools/roll": {"result": "x" * 20000}}), tools=[roll()])
    live.register(extension(answers={"/v1/chat": calling("roll", *["{}"] * 100)}), providers=CHATS)
    turn = live.post("roll")
    with live.client.stream("GET", f"/v1/turns/{turn}") as answer:
        pieces = answer.iter_text()
        first = next(pieces)
        while not live.hub.turns.find(turn).ended:
            time.sleep(0.01)
        text = first + "".join(pieces)
    assert text.count("event: log") == 100 and text.count("event: done") == 1


def test_more_conversations_than_are_answered_at_once_wait_and_are_answered(live, extension, monkeypatch) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 3)
    gate, asked = threading.Event(), []

    def slow(body):
        asked.append(body["messages"][-1]["content"])
        gate.wait(10)
        return echo(body)

    live.register(extension(answers={"/v1/chat": slow}), providers=CHATS)
    posted = [live.post(f"{turn} of {conversation}", conversation) for turn in (1, 2) for conversation in "abcdef"]
    while len(asked) < 3:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(asked) == ["1 of a", "1 of b", "1 of c"]
    gate.set()
    assert all(live.events(turn)[-1][0] == "done" for turn in posted)
    for conversation in "abcdef":
        said = [each.content for each in live.hub.store.messages(conversation)]
        assert said == [f"{start}{turn} of {conversation}" for turn in (1, 2) for start in ("", "echo: ")]


def test_the_default_model_may_change_between_two_turns(live, extension) -> None:
    live.register(extension(answers={"/v1/chat": echo}), providers=CHATS)
    other = extension("other", {"/v1/chat": lambda body: {"content": body["model"]}})
    live.register(other, providers=[{"id": "other", "chat": True}])
    assert live.say("x")[1] == {"text": "echo: x"}
    live.hub.home.write({"default_model": {"provider": "other", "model": "o-2"}})
    assert live.say("x")[1] == {"text": "o-2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected an object"),
        ('{"default_model": 5}', 'default_model: expected {"provider": …, "model": …}'),
        ('{DEFAULT, "max_tool_rounds": NaN}', "max_tool_rounds: expected a number of at least 0, got nan"),
        ('{DEFAULT, "max_tool_rounds": 1e999}', "max_tool_rounds: expected a number of at least 0, got inf"),
    ],
)
def test_settings_that_cannot_be_read_are_told_by_turns(live, extension, text, reason) -> None:
    live.register(extension(answers={"/v1/chat": calling("x", "{}")}), providers=CHATS)
    live.hub.home.conf.write_text(text.replace("DEFAULT", '"default_model": {"provider": "echo", "model": "m"}'))
    name, data = live.say("x")
    assert name == "error" and str(live.hub.home.conf) in data["error"] and reason in data["error"]


@pytest.mark.parametrize("other", ["c", "another"])  # the conversation of the turn that waits
def test_a_server_that_stops_ends_the_streams_and_keeps_what_waits(start, extension, monkeypatch, other) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    conf = {"default_model": {"provider": "echo", "model": "m"}}
    live = start(conf=conf)
    entered, release = threading.Event(), threading.Event()

    def wait(body):
        entered.set()
        release.wait(10)
        return echo(body)

    provider = extension(answers={"/v1/chat": wait})
    live.register(provider, providers=CHATS)
    first, second = live.post("one"), live.post("two", other)
    assert entered.wait(5)
    streams = {}
    readers = []
    for turn in (first, second):
        reading = threading.Thread(target=lambda turn=turn: streams.update({turn: live.events(turn)}))
        reading.start()
        readers.append(reading)
    time.sleep(0.2)
    began = time.monotonic()
    live.stop()
    assert time.monotonic() - began < 5
    for reading in readers:
        reading.join(5)
    assert streams == {turn: [("error", {"error": "the server is stopping"})] for turn in (first, second)}
    store = Store(live.hub.home.conversations)
    assert [(each.id, each.begun) for each in store.waiting()] == [(first, 1), (second, 0)]
    store.close()
    release.set()

    provider.answers["/v1/chat"] = echo
    again = start(conf=conf)
    again.register(provider, providers=CHATS)
    end = time.monotonic() + 10
    while time.monotonic() < end and again.hub.store.waiting():
        time.sleep(0.02)
    said = [m.content for name in dict.fromkeys(("c", other)) for m in again.hub.store.messages(name)]
    assert said == ["one", "echo: one", "two", "echo: two"]
