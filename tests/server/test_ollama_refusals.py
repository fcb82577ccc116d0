"""What ollama's routes refuse and how: an error in its envelope, or a line of the stream."""

from __future__ import annotations

import pytest
from ollama_helpers import TOOL, USER, lines

BOTH = ("/api/chat", "/api/generate")


@pytest.mark.parametrize(
    ("paths", "fields", "words"),
    [
        (BOTH, {"options": {"temperature": "hot"}}, ["options.temperature", "hot"]),
        (BOTH, {"options": {"num_predict": 1.5}}, ["num_predict", "1.5"]),
        (BOTH, {"options": {"stop": 5}}, ["options.stop"]),
        (BOTH, {"options": []}, ["options"]),
        (BOTH, {"think": "maybe"}, ["think", "maybe"]),
        (BOTH, {"think": 1}, ["think", "1"]),
        (BOTH, {"keep_alive": "soon"}, ["keep_alive", "soon"]),
        (BOTH, {"keep_alive": True}, ["keep_alive", "true"]),
        (BOTH, {"format": "yaml"}, ["format", "yaml"]),
        (BOTH, {"format": 5}, ["format", "5"]),
        (BOTH, {"format": {"type": "string", "pattern": "["}}, ["format", "pattern"]),
        (BOTH, {"logprobs": True}, ["logprobs"]),
        (BOTH, {"stream": "no"}, ["stream"]),
        (BOTH[1:], {"images": ["aGk="]}, ["images", "-mmproj"]),
        (BOTH[1:], {"suffix": "."}, ["suffix"]),
        (BOTH[1:], {"template": "{{ .Prompt }}"}, ["template", "raw"]),
        (BOTH[1:], {"context": [1, "a"]}, ["context[1]"]),
        (BOTH[1:], {"context": [1 << 40]}, ["context[0]"]),
        (BOTH[:1], {"tools": [{"type": "function"}]}, ["tools[0].function.name"]),
        (BOTH[:1], {"tools": [TOOL]}, ["tools", "tiny-echo"]),
        (
            BOTH[:1],
            {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]},
            ["messages[0].images", "-mmproj"],
        ),
        (BOTH[:1], {"messages": [{"role": "robot"}]}, ["messages[0].role", "robot"]),
        (BOTH[:1], {"messages": [{"role": "tool", "content": "x"}]}, ["messages[0]", "call"]),
    ],
)
def test_what_cannot_be_done_is_named_in_ollama_s_envelope(module_live, paths, fields, words) -> None:
    for path in paths:
        usual = {"messages": [USER]} if path == "/api/chat" else {"prompt": "hi"}
        response = module_live.client.post(path, json=usual | fields)
        assert response.status_code == 400, response.text
        assert list(response.json()) == ["error"]
        for word in words:
            assert word in response.json()["error"]


def test_a_model_that_cannot_think_is_not_asked_to(live, monkeypatch) -> None:
    monkeypatch.setattr(live.server.chat.template, "takes", lambda variable: False)
    answer = live.client.post("/api/chat", json={"messages": [USER], "think": True})
    assert answer.status_code == 400 and "thinking" in answer.json()["error"]
    assert live.client.post("/api/chat", json={"messages": [USER], "think": False}).status_code == 200


def test_a_conversation_that_does_not_fit_is_refused_and_not_cut(start) -> None:
    live = start(context=8)
    answer = live.client.post("/api/chat", json={"messages": [USER], "truncate": True, "shift": True})
    assert answer.status_code == 400 and "10" in answer.json()["error"] and "-context" in answer.json()["error"]


def test_what_the_framework_refuses_has_the_same_envelope(start, monkeypatch) -> None:
    monkeypatch.setattr("golem_core.server.web.BODY_LIMIT", 1000)
    live = start()
    large = {"messages": [{"role": "user", "content": "x" * 2000}]}
    for response, status in [
        (live.client.post("/api/chat", json=large), 413),
        (live.client.get("/api/chat"), 405),
        (live.client.post("/api/pull", json={}), 404),
        (live.client.post("/api/chat", content=b"{"), 400),
    ]:
        assert response.status_code == status
        assert isinstance(response.json()["error"], str)


def test_a_failure_before_the_first_piece_is_a_status_and_after_it_a_line(live) -> None:
    live.engine.fail_at = 0
    early = live.client.post("/api/chat", json={"messages": [USER]})
    assert early.status_code == 500 and isinstance(early.json()["error"], str)
    live.engine.fail_at = 3
    *pieces, last = lines(live.client.post("/api/chat", json={"messages": [USER]}))
    assert [piece["message"]["content"] for piece in pieces] == list("use")
    assert list(last) == ["error"]
    assert live.idle()


def test_a_client_that_hangs_up_frees_its_slot(live) -> None:
    live.engine.token_delay = 0.05
    with live.client.stream("POST", "/api/generate", json={"prompt": "hi" * 200}) as response:
        next(response.iter_lines())
    assert live.idle()
    assert live.engine.generations[-1].drawn < 100
