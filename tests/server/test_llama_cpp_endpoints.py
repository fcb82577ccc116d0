"""What llama.cpp's server tells about itself, and its endpoints for those who count tokens."""

from __future__ import annotations

import re
import threading

import pytest

USER = {"role": "user", "content": "hello"}


def test_props_say_what_is_loaded_and_how_it_answers(start) -> None:
    body = start(slots=2, context=64, answer_budget=7).client.get("/props").json()
    assert body["total_slots"] == 2
    assert body["model_alias"] == "tiny-echo"
    assert body["model_path"].endswith(".gguf")
    assert body["modalities"] == {"vision": False, "audio": False}
    assert body["build_info"].startswith("golem")
    assert body["chat_template"] == "{# a test #}"
    settings = body["default_generation_settings"]
    assert settings["n_ctx"] == 64
    params = settings["params"]
    assert (params["temperature"], params["top_k"], params["top_p"], params["n_predict"]) == (0.7, 40, 0.9, 7)
    assert params["seed"] == -1


def test_slots_tell_who_is_busy_and_a_full_server_is_a_503_when_asked(start) -> None:
    live = start(slots=2)
    idle = live.client.get("/slots?fail_on_no_slot=1")
    assert idle.status_code == 200
    assert [(slot["id"], slot["n_ctx"], slot["is_processing"]) for slot in idle.json()] == [
        (0, 4096, False),
        (1, 4096, False),
    ]
    live.engine.prompt_delay = 30
    waiting = [threading.Thread(target=live.chat) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while live.engine.active < 2:
        pass
    assert all(slot["is_processing"] for slot in live.client.get("/slots").json())
    full = live.client.get("/slots?fail_on_no_slot=1")
    assert full.status_code == 503
    assert full.json()["error"]["type"] == "unavailable_error"
    for generation in live.engine.generations:
        generation.cancel()
    for thread in waiting:
        thread.join()


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    assert found, name
    return float(found[1])


def test_metrics_count_answers_and_are_off_unless_turned_on(start) -> None:
    refused = start().client.get("/metrics")
    assert refused.status_code == 501
    assert refused.json()["error"]["type"] == "not_supported_error"
    assert "-metrics" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"

    live = start(options={"metrics": True})
    live.chat()
    live.chat(stream=True, max_tokens=3)
    live.chat(n=3)
    answer = live.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert metric(answer.text, "llamacpp:prompt_tokens_total") == 20
    assert metric(answer.text, "llamacpp:tokens_predicted_total") == 11 + 3
    assert metric(answer.text, "golem:answers_total") == 2
    assert metric(answer.text, "llamacpp:requests_processing") == 0
    assert metric(answer.text, "llamacpp:requests_deferred") == 0
    names = re.findall(r"^(\S+) \S+$", answer.text, re.M)
    assert re.findall(r"^# TYPE (\S+) (?:counter|gauge)$", answer.text, re.M) == names
    assert re.findall(r"^# HELP (\S+) \S", answer.text, re.M) == names


def test_a_text_is_cut_into_tokens_and_joined_again(module_live) -> None:
    post = module_live.client.post
    tokens = post("/tokenize", json={"content": "hé"}).json()
    assert tokens == {"tokens": [ord("h"), ord("é")]}
    assert post("/detokenize", json=tokens).json() == {"content": "hé"}
    assert post("/tokenize", json={"content": ""}).json() == {"tokens": []}
    assert post("/tokenize", json={"content": []}).json() == {"tokens": []}
    assert post("/tokenize", json={"content": ["a", 98, 99.0, "de"]}).json() == {"tokens": [97, 98, 99, 100, 101]}
    assert post("/detokenize", json={"tokens": []}).json() == {"content": ""}


def test_pieces_that_are_no_text_are_bytes(start, monkeypatch) -> None:
    live = start()
    pieces = {ord("a"): b"a", ord("b"): b"\xe2\x82"}
    monkeypatch.setattr(live.server.chat.model.tokenizer, "piece", lambda id, special: pieces[id])
    body = {"content": "ab", "with_pieces": True}
    assert live.client.post("/tokenize", json=body).json() == {
        "tokens": [{"id": 97, "piece": "a"}, {"id": 98, "piece": [0xE2, 0x82]}]
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, (False, True)),
        ({"add_special": True, "parse_special": False}, (True, False)),
        ({"add_special": None, "parse_special": None}, (False, True)),
    ],
)
def test_special_tokens_are_read_but_not_added_unless_asked_for(start, monkeypatch, given, wanted) -> None:
    live = start()
    seen = []

    def encode(text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        seen.append((add_special, parse_special))
        return []

    monkeypatch.setattr(live.server.chat.model.tokenizer, "encode", encode)
    live.client.post("/tokenize", json={"content": "a"} | given)
    assert seen == [wanted]
    live.client.post("/tokenize", json={"content": ["a", 5, "b"]} | given)
    assert seen[1:] == [wanted, (False, wanted[1])], "what is put around a text goes before an array's first one"


def test_a_conversation_is_written_down(module_live) -> None:
    messages = [{"role": "system", "content": "be brief"}, USER]
    answer = module_live.client.post("/apply-template", json={"messages": messages})
    assert answer.json() == {"prompt": "system:be brief|user:hello"}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 5}, "content"),
        ("/tokenize", {"content": ["a", -1]}, "content[1]"),
        ("/tokenize", {"content": ["a", None]}, "content[1]"),
        ("/tokenize", {"content": [["a"]]}, "content[0]"),
        ("/tokenize", {"content": "a", "add_special": "x"}, "add_special"),
        (
            "/tokenize",
            {"content": ["a" * (3 << 20), 5, "b" * (2 << 20)]},
            "content: 5242880 characters; 4194304 at most",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, "a"]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1 << 40]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1.5]}, "tokens[0]"),
        ("/detokenize", {"tokens": [None]}, "tokens[0]"),
        ("/apply-template", {}, "messages"),
        ("/apply-template", {"messages": [{"role": "robot"}]}, "messages[0].role"),
    ],
)
def test_what_cannot_be_read_is_named(module_live, path, body, named) -> None:
    answer = module_live.client.post(path, json=body)
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]
