"""ollama's API through ollama's own client."""

from __future__ import annotations

import ollama
import pytest
from ollama_helpers import USER, echoing, filed


def test_ollamas_client_chats_generates_and_lists(live, tmp_path) -> None:
    filed(live, tmp_path)
    client = ollama.Client(host=live.url)
    answer = client.chat("tiny-echo", messages=[USER], options={"num_predict": 5})
    assert (answer.message.content, answer.done_reason, answer.eval_count) == ("user:", "length", 5)
    pieces = list(client.chat("tiny-echo", messages=[USER], stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "user:hello"
    assert pieces[-1].done and pieces[-1].total_duration
    first = client.generate("tiny-echo", "hi")
    assert first.response == "user:hi"
    assert client.generate("tiny-echo", "more", context=first.context).response.endswith("user:more")
    assert client.list().models[0].details.family == "echo"
    assert client.ps().models[0].context_length == 4096
    assert client.show("tiny-echo").modelinfo["general.architecture"] == "echo"


def test_ollamas_client_reads_calls_and_thoughts(live) -> None:
    echoing(live)

    def tide(at: str) -> str:
        """When the tide comes.

        Args:
            at: the harbour
        """
        return at

    text = '<think>why</think><call>{"name": "tide", "arguments": {"at": "Brest"}}</call>'
    client = ollama.Client(host=live.url)
    answer = client.chat("m", messages=[{"role": "user", "content": text}], tools=[tide], think=True)
    assert answer.message.thinking == "why"
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("tide", {"at": "Brest"})
    told = {"role": "tool", "tool_name": "tide", "content": "at noon"}
    again = client.chat("m", messages=[{"role": "user", "content": text}, answer.message, told], tools=[tide])
    assert again.message.content == "at noon"


def test_ollamas_client_is_told_what_went_wrong(live) -> None:
    client = ollama.Client(host=live.url)
    with pytest.raises(ollama.ResponseError, match="suffix") as refusal:
        client.generate("m", "hi", suffix=".")
    assert refusal.value.status_code == 400
    with pytest.raises(ollama.ResponseError) as missing:
        client.show("other")
    assert missing.value.status_code == 404
    live.engine.fail_at = 3
    seen = []
    with pytest.raises(ollama.ResponseError, match="internal error"):
        seen += [piece.message.content for piece in client.chat("m", messages=[USER], stream=True)]
    with pytest.raises(ollama.ResponseError):
        for piece in client.chat("m", messages=[USER], stream=True):
            seen.append(piece.message.content)
    assert seen == list("use")
