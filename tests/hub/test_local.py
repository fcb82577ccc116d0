"""The server's own model as a provider: what channels talk to when nothing is configured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from hub_fakes import echo
from server_fakes import fake_chat

from golem_core.errors import BadRequest
from golem_core.hub.local import Local
from golem_core.hub.messages import Message, ToolDef
from golem_core.server.embedding import ServedEmbedder


def test_a_channel_talks_to_the_served_model_with_nothing_configured(start) -> None:
    live = start(chat=fake_chat())
    assert live.say("hello") == ("done", {"text": "user:hello"})
    assert live.say("again") == ("done", {"text": "user:hello|assistant:user:hello|user:again"})
    assert live.client.get("/v1/extensions").json() == {"extensions": []}


class Letters:
    """An embedding model whose vectors count letters."""

    model = SimpleNamespace(name="letters", architecture="letters", limit=512, dimensions=26)
    engine = SimpleNamespace(cancel_all=lambda: None)

    def embed(self, texts: Sequence[str], *, truncate: bool = False) -> np.ndarray:
        found = np.array([[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts], np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def close(self) -> None:
        pass


def test_with_an_embedding_model_served_too_facts_are_remembered_with_nothing_configured(start, monkeypatch) -> None:
    chat = fake_chat()
    template: Any = chat.template
    render = template.render

    def rendered(messages: list[dict[str, Any]], **settings: Any) -> str:
        facts = messages[0]["content"].startswith("Below is the end of a conversation")
        return '{"memories": ["The user keeps bees."]}' if facts else render(messages, **settings)

    template.render = rendered
    monkeypatch.setattr("golem_core.server.chat_request.asked_grammar", lambda model, request: None)
    live = start(chat=chat, parts={"embed": ServedEmbedder("letters", cast(Any, Letters()), "cpu", 0.0)})
    assert live.hub.memory.active() and live.hub.home.conf.exists(), "conf.json was made with its defaults"
    assert live.say("I keep bees.", "one")[0] == "done"
    until = time.monotonic() + 10
    while time.monotonic() < until and not live.hub.memory.recall("the user keeps bees"):
        time.sleep(0.01)
    name, said = live.say("Who keeps bees, the user?", "two")
    assert name == "done" and "- The user keeps bees." in said["text"], "the model, which repeats all, was told"


def test_without_an_embedding_model_nothing_is_remembered(start) -> None:
    live = start(chat=fake_chat())
    assert live.say("I keep bees.")[0] == "done"
    assert not live.hub.memory.active() and not live.hub.home.memories.exists()


def test_without_a_chat_model_the_provider_says_so(start) -> None:
    assert start().say("hello") == ("error", {"error": 'provider "golem" does not support chat'})


def test_a_conversation_that_outgrew_the_context_goes_on_with_its_latest_turns() -> None:
    chat = fake_chat(context=60)
    local = Local(chat, lambda line: None)
    messages = [Message("system", "S")]
    for number in range(20):
        messages += [Message("user", f"question {number}"), Message("assistant", "yes")]
    messages.append(Message("user", "the last"))
    text = local.chat(messages, []).content
    assert text.startswith("system:S|user:question 19|") and text.endswith("user:the last")
    try:
        local.chat([Message("user", "x" * 100)], [])
    except BadRequest as error:
        assert error.code == "context_length_exceeded"
    else:
        raise AssertionError("a text that does not fit by itself was answered")


def test_a_model_without_tool_calls_is_told_of_none_and_the_operator_hears_it_once() -> None:
    said: list[str] = []
    chat = fake_chat()
    local = Local(chat, said.append)
    tool = ToolDef("roll", "roll dice", {"type": "object"})
    for _ in range(2):
        assert local.chat([Message("user", "x")], [tool]).content == "user:x"
    assert said == ["tiny-echo has no tool calls, so it is told of no tools (roll and others)"]


def test_an_answer_under_way_ends_when_the_server_stops(start) -> None:
    chat = fake_chat()
    chat.engine.token_delay = 0.05
    live = start(chat=chat)
    turn = live.post("x" * 1000)
    while not chat.engine.active:
        time.sleep(0.005)
    began = time.monotonic()
    live.stop()
    assert time.monotonic() - began < 5
    assert chat.engine.generations[0].finish_reason == "cancelled"
    assert turn


def test_many_turns_of_many_conversations_are_all_answered_in_order(start, extension) -> None:
    live = start(conf={"default_model": {"provider": "echo", "model": "m"}, "memory": {}})
    live.register(extension(answers={"/v1/chat": echo}), providers=[{"id": "echo", "chat": True}])
    turns = [(f"c{n % 20}", f"t{n}", live.post(f"t{n}", f"c{n % 20}")) for n in range(200)]
    assert all(live.events(turn)[-1] == ("done", {"text": f"echo: {text}"}) for _, text, turn in turns)
    for number in range(20):
        said = [m["content"] for m in live.client.get(f"/v1/conversations/c{number}").json()["messages"]]
        assert said == [each for _, text, _ in turns[number::20] for each in (text, f"echo: {text}")]
