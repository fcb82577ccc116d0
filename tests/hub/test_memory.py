"""What is remembered across conversations, and which model finds it again."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest
from hub_fakes import echo

from golem_core.hub.errors import CallbackFailed
from golem_core.hub.memory import memories_in
from golem_core.hub.messages import Message


def letters(body):
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return {"vectors": [[text.lower().count(letter) + 0.01 for letter in alphabet] for text in body["texts"]]}


def test_facts_are_kept_once_and_told_when_they_matter(start, extension) -> None:
    model = {"provider": "p", "model": "m"}
    live = start(conf={"default_model": model, "memory": {"embedding": model, "min_similarity": 0.6}})
    facts = {"data": {"memories": ["The user keeps bees.", " "]}}
    found = extension(answers={"/v1/chat": echo, "/v1/chat/structured": lambda body: facts, "/v1/embed": letters})
    live.register(found, providers=[{"id": "p", "structured": True, "embed": True}])
    assert live.say("I keep bees.", "one") == ("done", {"text": "echo: I keep bees."})
    until = time.monotonic() + 10
    while time.monotonic() < until and not live.hub.memory.recall("the user keeps bees"):
        time.sleep(0.01)
    assert live.say("Who keeps bees, the user?", "two")[0] == "done"
    asked = [body["messages"] for path, body, _ in found.calls if path == "/v1/chat"]
    assert [each["role"] for each in asked[0]] == ["user"]
    assert asked[1][0]["role"] == "system" and "- The user keeps bees." in asked[1][0]["content"]
    assert live.say("xyz qqq zzz", "three")[0] == "done"
    assert [m["role"] for m in [b["messages"] for p, b, _ in found.calls if p == "/v1/chat"][-1]] == ["user"]
    assert live.hub.memory.extract("two", [Message("user", "again")]) == [], "it is known already"


def backwards(body):
    return {"vectors": [each[::-1] for each in letters(body)["vectors"]]}


def test_facts_of_another_embedding_model_are_not_compared_but_embedded_anew(start, extension) -> None:
    embedding = {"provider": "p", "model": "letters"}
    live = start(conf={"memory": {"embedding": embedding, "min_similarity": 0.0}, "default_model": embedding})
    facts = [f"{letter * 8}." for letter in "bcdefgh" * 20]
    answers = {
        "/v1/chat/structured": {"data": facts},
        "/v1/embed": lambda body: (letters if body["model"] == "letters" else backwards)(body),
    }
    found = extension(answers=answers)
    live.register(found, providers=[{"id": "p", "structured": True, "embed": True}])
    memory, said = live.hub.memory, [Message("user", "x")]
    kept = memory.extract("one", said)
    assert kept == facts[:7]
    assert memory.recall("bb")[0] == "bbbbbbbb."

    def use(model: str) -> None:
        values = live.hub.home.config().values
        values["memory"]["embedding"]["model"] = model
        live.hub.home.conf.write_text(json.dumps(values))

    use("backwards")
    assert memory.recall("bb") == []
    found.answers["/v1/chat/structured"] = {"data": []}
    assert memory.extract("two", said) == []
    assert memory.recall("bb")[0] == "bbbbbbbb." and len(memory.recall("bb")) == 7
    calls = len(found.calls)
    assert memory.extract("three", said) == []
    assert [path for path, _, _ in found.calls[calls:]] == ["/v1/chat/structured"], "nothing is left to embed anew"
    use("letters")
    assert memory.recall("bb") == []


def test_facts_kept_by_an_earlier_version_are_embedded_anew(start, extension) -> None:
    model = {"provider": "p", "model": "m"}
    live = start(conf={"default_model": model, "memory": {"embedding": model}})
    path = live.hub.home.memories
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE memories (id INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, "
            "fact TEXT NOT NULL, width INTEGER NOT NULL, vector BLOB NOT NULL, created_at REAL NOT NULL)"
        )
        row = "INSERT INTO memories (conversation_id, fact, width, vector, created_at) VALUES ('c', ?, 2, ?, 1.0)"
        database.executemany(row, [(f"{'abcdefghijklmnopqrstuvwxyz'[n % 26] * 9} {n}", bytes(8)) for n in range(150)])
    database.close()
    found = extension(answers={"/v1/chat/structured": {"data": []}, "/v1/embed": letters})
    live.register(found, providers=[{"id": "p", "structured": True, "embed": True}])
    assert live.hub.memory.recall("ccc") == []
    live.hub.memory.extract("x", [Message("user", "x")])
    assert sorted(live.hub.memory.recall("ccc")) == sorted(f"{'c' * 9} {n}" for n in range(2, 150, 26))
    assert [len(body["texts"]) for path, body, _ in found.calls if path == "/v1/embed"] == [1, 64, 64, 22, 1]


def test_an_embedding_that_fails_is_said_and_the_turn_goes_on(start, extension, capfd) -> None:
    model = {"provider": "p", "model": "m"}
    live = start(conf={"default_model": model, "memory": {"embedding": model}})
    answers = {"/v1/chat": echo, "/v1/chat/structured": {"data": ["A fact."]}, "/v1/embed": letters}
    found = extension(answers=answers)
    live.register(found, providers=[{"id": "p", "structured": True, "embed": True}])
    live.hub.memory.extract("x", [Message("user", "x")])
    found.answers["/v1/embed"] = (500, {"error": {"message": "no vectors"}})
    assert live.say("hello") == ("done", {"text": "echo: hello"})
    assert "memory: echo-ext: no vectors" in capfd.readouterr().err


def test_memories_may_be_listed_in_several_ways() -> None:
    assert memories_in(["a", {"text": "b  c"}, ""]) == ["a", "b c"]
    assert memories_in({"memories": ["a"]}) == ["a"]
    with pytest.raises(CallbackFailed):
        memories_in({"facts": []})
