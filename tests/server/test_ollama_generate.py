"""ollama's /api/generate: a prompt with a system text, or continued as it stands."""

from __future__ import annotations

from ollama_helpers import echoing, lines


def test_a_prompt_is_a_conversation_of_one_message_with_a_system_text_before_it(live) -> None:
    *pieces, last = lines(live.client.post("/api/generate", json={"prompt": "hi", "system": "be brief"}))
    assert "".join(piece["response"] for piece in pieces) == "system:be brief|user:hi"
    assert last["response"] == "" and last["done"] and last["done_reason"] == "stop"
    whole = live.client.post("/api/generate", json={"prompt": "hi", "stream": False}).json()
    assert whole["response"] == "user:hi"
    assert whole["context"] == [ord(letter) for letter in "user:hi" + "user:hi"], "the prompt and the answer"


def test_a_raw_prompt_is_continued_as_it_stands(live) -> None:
    echoing(live)
    text = "a <think>b</think>"
    whole = live.client.post("/api/generate", json={"prompt": text, "raw": True, "stream": False}).json()
    assert whole["response"] == text, "nothing is sorted out of it"
    assert "context" not in whole
    assert not live.server.chat.template.calls


def test_a_context_is_gone_on_from(live) -> None:
    first = live.client.post("/api/generate", json={"prompt": "hi", "stream": False}).json()
    body = {"prompt": "more", "context": first["context"], "stream": False}
    second = live.client.post("/api/generate", json=body).json()
    assert second["response"] == "user:hiuser:hiuser:more"
    assert live.engine.requests[-1].prompt[: len(first["context"])] == first["context"]


def test_the_token_that_begins_a_text_stands_there_once(live, monkeypatch) -> None:
    tokenizer = live.server.chat.model.tokenizer
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "bos", ord("^"))
    monkeypatch.setattr(tokenizer, "encode", lambda text, add_special=False, **_: encode("^" * add_special + text))
    post = live.client.post
    post("/api/generate", json={"prompt": "hi", "raw": True})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("h"), ord("i")]
    post("/api/generate", json={"prompt": "^hi", "raw": True})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("h"), ord("i")]
    post("/api/generate", json={"prompt": "^hi", "raw": True, "context": [ord("^"), ord("a")]})
    assert live.engine.requests[-1].prompt == [ord("^"), ord("a"), ord("h"), ord("i")]


def test_a_model_without_a_template_continues_the_prompt(live) -> None:
    live.server.chat.template = None
    whole = live.client.post("/api/generate", json={"prompt": "once", "stream": False}).json()
    assert whole["response"] == "once"
