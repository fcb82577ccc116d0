"""Turns from the post to the last event: order, replay, slow readers, tools, and what goes wrong on the way."""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import pytest
from hub_fakes import BEARER, Clock, alive, echo

from golem_core.hub import callbacks, turns

CHATS = [{"id": "echo", "chat": True}]


def calling(name: str, *arguments: str):
    """A provider's answer: first these calls of a tool, and then the results."""

    def answer(body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if results:
            return {"role": "assistant", "content": " ".join(results)}
        calls = [
            {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": each}}
            for index, each in enumerate(arguments)
        ]
        return {"role": "assistant", "tool_calls": calls}

    return answer


def roll(**fields):
    return {"name": "roll", "description": "roll dice", "parameters": {"type": "object"}, **fields}


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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": {"message": "no credit"}}, "echo-ext: no credit"),
        ((500, {"error": {"code": "broken", "message": "oh"}}), "echo-ext: oh"),
        ((400, {"error": {"code": "unsupported_format"}}), "echo-ext: unsupported_format"),
        ((503, b"busy"), "echo-ext: unexpected status 503"),
        ((302, {}), "echo-ext: unexpected status 302"),
        (b"[]", "echo-ext: the answer is not a JSON object"),
        (b"", "echo-ext: the answer is not a JSON object"),
        (
            {"role": "assistant", "content": 7},
            "echo-ext: the answer is not a message: Expected `str`, got `int` - at `$.content`",
        ),
    ],
)
def test_a_provider_that_fails_ends_the_turn_and_not_the_conversation(live, extension, answer, reason) -> None:
    provider = extension(answers={"/v1/chat": answer})
    live.register(provider, providers=CHATS)
    assert live.say("hello") == ("error", {"error": reason})
    provider.answers["/v1/chat"] = lambda body: {"role": "assistant", "content": str(len(body["messages"]))}
    assert live.say("again") == ("done", {"text": "3"}), "the error is a message of the conversation"


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        (b'{"content": "a\\ud83d"}', ("done", {"text": "a\ufffd"})),
        (b'{"content": "a\xed\xa0\x80"}', ("error", {"error": "echo-ext: the answer is not a JSON object"})),
        (b'{"error": {"message": "a\\ud83d"}}', ("error", {"error": "echo-ext: a\ufffd"})),
        (b'{"content": "\\ud83d\\ude00 \\u0000"}', ("done", {"text": "😀 \0"})),
    ],
)
def test_half_of_a_surrogate_pair_is_no_character(live, extension, answer, last) -> None:
    live.register(extension(answers={"/v1/chat": answer}), providers=CHATS)
    assert live.say("hello") == last
    assert not live.hub.store.waiting()


def test_arguments_and_results_with_half_of_a_surrogate_pair_do_not_fail_a_turn(live, extension) -> None:
    dice = extension("dice", {"/v1/tools/roll": b'{"result": "\\udc00 6"}'})
    live.register(dice, tools=[roll()])
    live.register(extension(answers={"/v1/chat": calling("roll", '{"n": "\\ud83d"}')}), providers=CHATS)
    assert live.say("x") == ("done", {"text": "\ufffd 6"})
    assert dice.calls[0][1] == {"n": "\ufffd"}


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("read", {"path": "a\0b"}, "error: embedded null byte"),
        ("shell", {"command": "a\0b"}, "error: embedded null byte"),
        ("edit", {"path": "binary", "old": "x", "new": "y"}, "error: binary is no UTF-8 text"),
        ("read", {"path": "pipe"}, "error: pipe is no file"),
        ("read", {"path": "."}, "error: . is no file"),
        ("write", {"path": "new", "content": "\ud83d"}, "wrote new"),
    ],
)
def test_a_tool_of_the_hubs_own_that_fails_does_not_fail_the_turn(
    start, extension, tmp_path, monkeypatch, name, arguments, result
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    live = start(conf={"default_model": {"provider": "echo", "model": "m"}}, options={"tools": (name,)})
    live.register(extension(answers={"/v1/chat": calling(name, json.dumps(arguments))}), providers=CHATS)
    assert live.say("x") == ("done", {"text": result})


def test_a_command_under_way_ends_when_the_server_stops(start, extension, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    live = start(conf={"default_model": {"provider": "echo", "model": "m"}}, options={"tools": ("shell",)})
    command = json.dumps({"command": "sleep 60 & echo $! > pid; wait"})
    live.register(extension(answers={"/v1/chat": calling("shell", command)}), providers=CHATS)
    live.post("x")
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    began = time.monotonic()
    live.stop()
    assert time.monotonic() - began < 5
    assert not alive(int((tmp_path / "pid").read_text()))


def test_without_a_name_no_tool_of_the_hubs_own_is_told_or_called(live, extension) -> None:
    provider = extension(answers={"/v1/chat": calling("shell", '{"command": "true"}')})
    live.register(provider, providers=CHATS)
    assert live.say("x") == ("done", {"text": "unknown tool: shell"})
    assert all("tools" not in body for _, body, _ in provider.calls)


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


def test_an_unknown_provider_and_one_that_cannot_chat_are_told_by_name(live, extension) -> None:
    assert live.say("x") == ("error", {"error": 'unknown provider "echo"'})
    live.register(extension(), providers=[{"id": "echo", "embed": True}])
    assert live.say("x") == ("error", {"error": 'provider "echo" does not support chat'})


def test_a_provider_that_only_has_structured_answers_counts_as_one_that_chats(live, extension) -> None:
    live.register(
        extension(answers={"/v1/chat": echo}), capabilities=[{"kind": "provider", "id": "echo", "structured": True}]
    )
    assert live.say("x") == ("done", {"text": "echo: x"})


def test_a_provider_that_hangs_is_given_up_and_others_do_not_notice(start, extension) -> None:
    release = threading.Event()
    conf = {"default_model": {"provider": "echo", "model": "m"}}
    live = start(conf=conf, prepare=lambda hub: setattr(hub.callbacks, "timeout", 0.5))

    def hang(body):
        if body["messages"][-1]["content"] == "hang":
            release.wait(10)
        return echo(body)

    live.register(extension(answers={"/v1/chat": hang}), providers=CHATS)
    hanging = live.post("hang", "one")
    assert live.say("hello", "two") == ("done", {"text": "echo: hello"})
    assert live.events(hanging) == [("error", {"error": "echo-ext: no answer within 0.5 s"})]
    release.set()


def test_an_answer_that_drips_is_given_up_too(start) -> None:
    live = start(
        conf={"default_model": {"provider": "drip", "model": "m"}},
        prepare=lambda hub: setattr(hub.callbacks, "timeout", 0.6),
    )
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.1)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    body = {"name": "drip", "callback_url": url, "providers": [{"id": "drip", "chat": True}]}
    live.client.post("/v1/extensions/register", json=body)
    began = time.monotonic()
    assert live.say("x") == ("error", {"error": "drip: no answer within 0.6 s"})
    assert time.monotonic() - began < 3
    listener.close()


def test_an_answer_that_is_too_large_is_refused(live, extension, monkeypatch) -> None:
    monkeypatch.setattr(callbacks, "ANSWER_LIMIT", 1000)
    live.register(extension(answers={"/v1/chat": {"content": "x" * 1000}}), providers=CHATS)
    assert live.say("x") == ("error", {"error": "echo-ext: the answer is larger than 1000 bytes"})


def test_a_closed_port_is_told(live, extension) -> None:
    gone = extension("gone")
    live.register(gone, providers=CHATS)
    gone.close()
    assert live.say("x") == ("error", {"error": "gone: nothing listens at its callback_url"})
    assert live.hub.registry.provider("echo"), "a failing provider stays registered"


def test_localhost_is_either_loopback_address_of_this_machine(live) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{"content": "six"}')

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://localhost:{listener.getsockname()[1]}"
        live.client.post("/v1/extensions/register", json={"name": "x", "callback_url": url, "providers": CHATS})
        assert live.say("hello") == ("done", {"text": "six"})


def test_a_provider_that_died_during_a_call_is_waited_for(live, extension) -> None:
    first = extension("echo-ext")
    first.close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        live.register(first, providers=CHATS)
        turn = live.post("hello")
        connection, _ = listener.accept()
        connection.recv(100)
        connection.close()
    live.hub.registry.drop("echo-ext")
    time.sleep(0.3)
    live.register(extension("echo-ext", {"/v1/chat": echo}), providers=CHATS)
    assert live.events(turn) == [("done", {"text": "echo: hello"})]


def test_a_tool_that_appears_during_a_turn_can_be_called(live, extension) -> None:
    dice = extension("dice", {"/v1/tools/roll": {"result": "6"}})
    offered = []

    def answer(body):
        offered.append([tool["name"] for tool in body.get("tools", [])])
        if len(offered) == 1:
            assert "tools" not in body
            live.register(dice, tools=[roll()])
            return calling("missing", "{}")(body)
        if len(offered) == 2:
            call = {"id": "c9", "type": "function", "function": {"name": "roll", "arguments": ""}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"role": "assistant", "content": body["messages"][-1]["content"]}

    live.register(extension(answers={"/v1/chat": answer}), providers=CHATS)
    assert live.events(live.post("x")) == [
        ("log", {"line": "[missing] {}", "name": "missing", "args": "{}", "result": "unknown tool: missing"}),
        ("log", {"line": "[roll]", "name": "roll", "args": "", "result": "6"}),
        ("done", {"text": "6"}),
    ]
    assert offered == [[], ["roll"], ["roll"]]
    assert dice.calls[0][1] == {}, "empty arguments are an empty object"


@pytest.mark.parametrize(
    ("arguments", "answer", "result"),
    [
        ("{", {"result": "x"}, "invalid arguments"),
        ("[1]", {"result": "x"}, "invalid arguments"),
        ("{}", (500, {"error": {"message": "no dice"}}), "error: dice: no dice"),
        ("{}", {}, "error: dice: the answer has no result"),
    ],
)
def test_a_tool_that_fails_does_not_fail_the_turn(live, extension, arguments, answer, result) -> None:
    live.register(extension("dice", {"/v1/tools/roll": answer}), tools=[roll()])
    live.register(extension(answers={"/v1/chat": calling("roll", arguments)}), providers=CHATS)
    assert live.say("x") == ("done", {"text": result})


def test_rounds_of_tools_are_capped_and_the_conversation_goes_on(start, extension) -> None:
    live = start(conf={"default_model": {"provider": "echo", "model": "m"}, "max_tool_rounds": 2})
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    provider = extension(answers={"/v1/chat": {"role": "assistant", "tool_calls": [call]}})
    live.register(provider, providers=CHATS)
    events = live.events(live.post("x"))
    assert [name for name, _ in events] == ["log", "log", "error"]
    assert events[-1][1] == {"error": "exceeded 2 tool rounds"}
    provider.answers["/v1/chat"] = echo
    assert live.say("hello") == ("done", {"text": "echo: hello"})


def test_without_a_cap_rounds_of_tools_go_on(start, extension) -> None:
    live = start(conf={"default_model": {"provider": "echo", "model": "m"}, "max_tool_rounds": 0})
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    rounds = [0]

    def answer(body):
        rounds[0] += 1
        return {"role": "assistant", "tool_calls": [call]} if rounds[0] < 30 else {"content": "enough"}

    live.register(extension(answers={"/v1/chat": answer}), providers=CHATS)
    assert live.say("x") == ("done", {"text": "enough"})


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


def test_a_server_that_stops_ends_the_streams_and_keeps_what_waits(start, extension) -> None:
    conf = {"default_model": {"provider": "echo", "model": "m"}}
    live = start(conf=conf)
    entered, release = threading.Event(), threading.Event()

    def wait(body):
        entered.set()
        release.wait(10)
        return echo(body)

    provider = extension(answers={"/v1/chat": wait})
    live.register(provider, providers=CHATS)
    first, second = live.post("one"), live.post("two")
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
    release.set()

    provider.answers["/v1/chat"] = echo
    again = start(conf=conf)
    again.register(provider, providers=CHATS)
    end = time.monotonic() + 10
    while time.monotonic() < end and again.hub.store.waiting():
        time.sleep(0.02)
    said = [m["content"] for m in again.client.get("/v1/conversations/c").json()["messages"]]
    assert said == ["one", "echo: one", "two", "echo: two"]
