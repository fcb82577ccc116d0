"""Tools that a turn calls, those of extensions and the hub's own, and what goes wrong with them."""

from __future__ import annotations

import json
import os
import time

import pytest
from hub_fakes import CHATS, alive, calling, echo, roll


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
