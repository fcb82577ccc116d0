"""Conversations on disk: what is accepted stays, in order, and what was cut off is taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_core.hub.environment import make_environment
from golem_core.hub.errors import Refused
from golem_core.hub.messages import FunctionCall, Message, ToolCall
from golem_core.hub.store import Conversation, Store
from golem_core.hub.turns import Turn, Turns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "conversations.db"


def test_messages_come_back_as_they_were_from_another_process_s_file(path) -> None:
    store = Store(path, clock=lambda: 5.0)
    store.accept("t", "c", "test", "what is\0it? 😀")
    store.begin("t", "a title")
    calls = [ToolCall(FunctionCall("roll", '{"n":\n6}'), name) for name in ("b", "a")]
    messages = [Message("assistant", tool_calls=calls), Message("tool", "6", tool_call_id="b")]
    store.append("c", *messages)
    store.finish("t", "c", Message("assistant", "six"))
    store.close()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    again = Store(path)
    assert again.messages("c") == [Message("user", "what is\0it? 😀"), *messages, Message("assistant", "six")]
    assert again.conversation("c") == Conversation("c", "test", "a title", 5.0)
    assert again.waiting() == []
    with pytest.raises(Refused, match="conversation not found"):
        again.conversation("d")


def test_a_refused_turn_leaves_nothing_behind(path) -> None:
    store = Store(path)
    store.accept("t1", "c", "one", "x")
    with pytest.raises(Refused, match="belongs to another channel: one"):
        store.accept("t2", "c", "two", "x")
    assert [each.id for each in store.waiting()] == ["t1"]
    assert [each.channel for each in store.conversations()] == ["one"]


def run_until_empty(store: Store, turns: Turns) -> None:
    for worker in list(turns._workers):
        worker.join(5)


def test_what_was_accepted_is_taken_up_in_its_order(path) -> None:
    store = Store(path)
    for number in range(5):
        store.accept(f"t{number}", "c", "test", f"text {number}")
    store.begin("t0", "")
    seen: list[tuple[str, bool, bool]] = []

    def run(turn: Turn) -> None:
        seen.append((turn.text, turn.resumed, turn.begun))
        store.finish(turn.id, turn.conversation, Message("assistant", "yes"))
        turn.add("done", text="yes")

    turns = Turns(store, run)
    assert turns.resume() == 5
    run_until_empty(store, turns)
    assert seen == [(f"text {number}", True, number == 0) for number in range(5)]
    assert store.waiting() == [] and turns.find("t3").ended


def test_a_turn_that_takes_the_server_down_is_not_tried_for_ever(path) -> None:
    store = Store(path)
    store.accept("t", "c", "test", "boom")
    store.begin("t", "")
    counts = []
    for _ in range(4):
        turns = Turns(store, lambda turn: None)  # as if the process ended here: nothing is finished
        counts.append(turns.resume())
        run_until_empty(store, turns)
    assert counts == [1, 1, 0, 0]
    assert store.messages("c")[-1] == Message("assistant", "the server ended 3 times during this turn")


def test_a_defect_in_one_turn_does_not_stop_the_others(path, capfd) -> None:
    store = Store(path)

    def run(turn: Turn) -> None:
        if turn.text == "bad":
            raise ZeroDivisionError
        turn.add("done", text="good")

    turns = Turns(store, run)
    bad, good = turns.accept("c", "test", "bad"), turns.accept("c", "test", "good")
    run_until_empty(store, turns)
    assert bad.events[-1].data == {"error": "the turn ended without an answer"}
    assert good.events[-1].data == {"text": "good"}
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize(("lock", "extra"), [(True, ["--frozen"]), (False, [])])
def test_uv_makes_the_environment_where_it_is_installed(tmp_path, monkeypatch, lock, extra) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr("golem_core.hub.environment._run", lambda command, folder: ran.append(command))
    monkeypatch.setattr("golem_core.hub.environment._sdk", lambda: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    if lock:
        (tmp_path / "uv.lock").write_text("")
    make_environment(tmp_path, lambda line: None)
    assert ran == [["/bin/uv", "sync", "--no-dev", "--no-editable", *extra]]
