"""Reasoning and tool calls over HTTP: the real engine on a device that draws a given text, read by OpenAI's client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from server_fakes import row_graph

from golem_core.engine import ChatModel, Engine
from golem_core.server.loading import LoadedChat
from golem_core.text import ChatTemplate, JsonCalls, Markers, TaggedCalls

MARKERS = Markers(("<think>", "</think>"), ("<tool_call>", "</tool_call>"), (JsonCalls(), TaggedCalls()))
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
END = 256
WIDTH = END + 1 + len(MARKS)

# Writes a conversation so that a test can read back what reached the template.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}:{{ m.reasoning_content }}:{{ m.content }}"
    "{% for call in m.tool_calls %}<{{ call.id }} {{ call.function.name }} "
    "{% for key, value in call.function.arguments.items() %}{{ key }}={{ value | tojson }};{% endfor %}>{% endfor %}"
    "{{ m.tool_call_id }}]{% endfor %}{% if enable_thinking %}<think>\n{% endif %}"
)
TOOLS: Any = [
    {"type": "function", "function": {"name": "tide", "parameters": {"properties": {"port": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now"}},
]
TIDE = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "at": [1, 2.5, null, "é"]}}\n</tool_call>'
NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
ASK: Any = [{"role": "user", "content": "When is high tide?"}]


class Bytes:
    """Bytes are tokens; the marks are spelled, or are control tokens of their own."""

    vocab_size, bos, eos, eog, add_bos = WIDTH, None, END, frozenset({END}), False

    def __init__(self, control: bool):
        self.control = control

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        parts = re.split(f"({'|'.join(MARKS)})", text) if self.control and parse_special else [text]
        return [id for part in parts for id in ([END + 1 + MARKS.index(part)] if part in MARKS else part.encode())]

    def at_least(self, text: str) -> int:
        return 0

    def piece(self, id: int, *, special: bool = False) -> bytes:
        if id < END:
            return bytes([id])
        return MARKS[id - END - 1].encode() if special and id > END else b""

    def decode(self, ids: list[int], *, special: bool = False) -> str:
        return b"".join(self.piece(id, special=special) for id in ids).decode(errors="replace")


class Script:
    """A compiled pass that draws `tokens` after whatever prompt comes next; `fed` is what it was fed, by position."""

    def __init__(self, slots: int, context: int):
        self.width = 32
        self.saved_bytes = 0
        self.rings = (SimpleNamespace(length=context, window=None),)
        self.fed: dict[int, int] = {}
        self.tokens: list[int] = []
        self.start: int | None = None

    def run(self, columns: Any) -> dict[str, np.ndarray]:
        self.fed |= dict(zip(columns.position.tolist(), columns.token.tolist(), strict=True))
        logits = np.zeros((len(columns.scored), WIDTH), np.float32)
        for row, index in enumerate(columns.scored):
            position = int(columns.position[index])
            self.start = position if self.start is None else self.start
            drawn = position - self.start
            logits[row, self.tokens[drawn] if drawn < len(self.tokens) else END] = 99
        return {"logits": logits}


class Stage:
    """A server whose model answers with what it is told to."""

    def __init__(self, live: Any, script: Script, tokenizer: Bytes):
        self.live, self.script, self.tokenizer = live, script, tokenizer
        self.client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)

    def says(self, text: str, messages: Any = ASK, **fields: Any) -> dict[str, Any]:
        """Have the model draw `text`; the request."""
        self.script.tokens = self.tokenizer.encode(text, parse_special=True)
        self.script.start = None
        return {"messages": messages, "temperature": 0, **fields}

    def both(self, text: str, **fields: Any) -> tuple[dict[str, Any], str]:
        """The message and the finish reason, after comparing the streamed with the whole answer."""
        body = self.says(text, **fields)
        choice = self.live.chat(**body).json()["choices"][0]
        self.script.start = None
        chunks = events(self.live.chat(**body, stream=True))
        assert chunks.pop() == "[DONE]"
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for delta in deltas[1:-1]:
            (field,) = delta
            assert delta[field], "an empty piece"
            if field == "tool_calls":
                assert field not in message, "all calls leave at once"
                assert [each.pop("index") for each in delta[field]] == list(range(len(delta[field])))
            message[field] = message.get(field, type(delta[field])()) + delta[field]
        whole = choice["message"]
        assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
        assert without_ids(message) == without_ids(whole)
        return whole, choice["finish_reason"]


def events(response: httpx.Response) -> list[Any]:
    found = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in found]


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "id": None} for call in message.get("tool_calls", [])]
    return message | ({"tool_calls": calls} if calls else {})


@pytest.fixture(params=["spelled marks", "control tokens"])
def stage(request, start) -> Iterator[Stage]:
    tokenizer: Any = Bytes(request.param == "control tokens")
    template = ChatTemplate(TEMPLATE, bos_token="", eos_token="")
    file: Any = SimpleNamespace(metadata={})
    model = ChatModel(
        "acted", "acted", WIDTH, 4096, lambda: row_graph(WIDTH), tokenizer, template, None, file, markers=MARKERS
    )
    passes: list[Script] = []

    def compile(graph: Any, *, slots: int, context: int, **settings: Any) -> Script:
        passes.append(Script(slots, context))
        return passes[-1]

    device: Any = SimpleNamespace(compile=compile)
    engine = Engine(model, device, context=4096)
    chat = LoadedChat("acted", model, engine, engine.close, 1, engine.slot_context, 1024, template, "a test")

    def use(server: Any) -> None:
        server.chat = chat

    yield Stage(start(prepare=use), passes[0], tokenizer)
    engine.close()


@pytest.mark.parametrize(
    ("text", "fields", "expected", "reason"),
    [
        ("Six.", {}, {"content": "Six."}, "stop"),
        ("<think>\nhm é\n</think>\n\nSix.", {}, {"content": "Six.", "reasoning_content": "hm é"}, "stop"),
        ("<think>\n\n</think>\n\nSix.", {}, {"content": "Six."}, "stop"),
        ("<think>never closed", {}, {"content": "", "reasoning_content": "never closed"}, "stop"),
        ("hm</think>Six.", {"chat_template_kwargs": {"enable_thinking": True}},
         {"content": "Six.", "reasoning_content": "hm"}, "stop"),
        ("<think>hm</think>Six.", {"max_tokens": 9}, {"content": "", "reasoning_content": "hm"}, "length"),
        ("Six <thi", {}, {"content": "Six <thi"}, "stop"),
        ("<think>hm</think>At six o'clock", {"stop": "six"}, {"content": "At ", "reasoning_content": "hm"}, "stop"),
        ("<think>at six</think>Six", {"stop": "six"}, {"content": "", "reasoning_content": "at "}, "stop"),
    ],
)  # fmt: skip
def test_reasoning_and_content_leave_apart(stage, text, fields, expected, reason) -> None:
    if stage.tokenizer.control and "max_tokens" in fields:
        fields = {"max_tokens": 3}  # a mark and two letters
    assert stage.both(text, **fields) == ({"role": "assistant"} | expected, reason)


def test_calls_leave_together_with_ids_of_their_own(stage) -> None:
    message, reason = stage.both(f"<think>tide and now</think>\n\nLook.\n\n{TIDE}\n{NOW}", tools=TOOLS)
    assert reason == "tool_calls"
    assert (message["content"], message["reasoning_content"]) == ("Look.", "tide and now")
    tide, now = message["tool_calls"]
    assert tide["type"] == now["type"] == "function"
    assert tide["function"] == {"name": "tide", "arguments": '{"port":"Brest","at":[1,2.5,null,"é"]}'}
    assert now["function"] == {"name": "now", "arguments": "{}"}
    again, _ = stage.both(NOW, tools=TOOLS)
    numbers = [int(call["id"].removeprefix("call_")) for call in (tide, now, *again["tool_calls"])]
    assert numbers == sorted(set(numbers)), "an id is never given twice"


def test_openais_client_reads_calls_whole_and_streamed(stage) -> None:
    body = stage.says(f"<think>hm</think>{TIDE}{NOW}", tools=TOOLS)
    answer = stage.client.chat.completions.create(model="any", **body)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].message.reasoning_content == "hm"
    calls = answer.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["tide", "now"]
    assert json.loads(calls[0].function.arguments)["port"] == "Brest"
    stage.script.start = None
    with stage.client.chat.completions.stream(model="any", **body) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls"
    for one, other in zip(streamed.message.tool_calls, calls, strict=True):
        assert (one.function.name, one.function.arguments) == (other.function.name, other.function.arguments)
    assert len({call.id for call in [*calls, *streamed.message.tool_calls]}) == 4


def test_a_whole_loop_of_call_result_and_answer(stage) -> None:
    body = stage.says(f"<think>hm</think>{TIDE}{NOW}", tools=TOOLS)
    said = stage.client.chat.completions.create(model="any", **body).choices[0].message
    tide, now = said.tool_calls
    messages = [
        *ASK,
        said.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": now.id, "content": "18:00"},
        {"role": "tool", "tool_call_id": tide.id, "content": "at six"},
    ]
    message, reason = stage.both("At six.", messages=messages, tools=TOOLS)
    assert (message["content"], reason) == ("At six.", "stop")
    fed = stage.tokenizer.decode([stage.script.fed[at] for at in sorted(stage.script.fed)], special=True)
    assert fed.startswith(f"{json.dumps(TOOLS)}[user::When is high tide?]")
    assert f'[assistant:hm:<{tide.id} tide port="Brest";at=[1, 2.5, null, "é"];><{now.id} now >]' in fed
    assert f"[tool::18:00{now.id}][tool::at six{tide.id}]" in fed


@pytest.mark.parametrize("spelling", [{}, {"tool_call_id": None}, {"tool_call_id": ""}])
def test_results_without_an_id_answer_the_calls_in_order(stage, spelling) -> None:
    calls = [{"type": "function", "function": {"name": name, "arguments": None}} for name in ("tide", "now")]
    results = [{"role": "tool", "content": content, **spelling} for content in ("at six", "18:00")]
    messages = [*ASK, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    stage.both("At six.", messages=messages, tools=TOOLS)
    fed = stage.tokenizer.decode([stage.script.fed[at] for at in sorted(stage.script.fed)], special=True)
    found = re.search(r"<(\S+) tide ><(\S+) now >\]\[tool::at six(\S+)\]\[tool::18:00(\S+)\]", fed)
    assert found and found[1] == found[3] != found[2] == found[4]


def test_calls_are_text_while_no_tools_are_declared(stage) -> None:
    control = stage.tokenizer.control  # then the marks have no text
    shown = re.sub("</?tool_call>", "", TIDE) if control else TIDE
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        assert stage.both(TIDE, **fields) == ({"role": "assistant", "content": shown}, "stop")


def test_a_call_that_the_budget_cut_is_dropped(stage) -> None:
    for text in (f"Look. {TIDE}", f"Look. {NOW}{TIDE}"):
        count = len(stage.tokenizer.encode(text, parse_special=True)) - 3
        message, reason = stage.both(text, tools=TOOLS, max_tokens=count)
        assert (message, reason) == ({"role": "assistant", "content": "Look."}, "length")


@pytest.mark.parametrize(
    "text", [TIDE.replace(":", ";"), TIDE[:-3], TIDE + "and", "<tool_call>tide(Brest)</tool_call>"]
)
def test_an_unreadable_call_is_an_error(stage, text) -> None:
    if text == TIDE[:-3] and stage.tokenizer.control:
        text = TIDE.replace("</tool_call>", "")
    body = stage.says(f"Look. {text}", tools=TOOLS)
    whole = stage.live.chat(**body)
    assert whole.status_code == 400
    error = whole.json()["error"]
    assert error["code"] == "unreadable_call"
    assert "unreadable tool call: expected" in error["message"]
    stage.script.start = None
    response = stage.live.chat(**body, stream=True)
    assert response.status_code == 200
    *chunks, last = events(response)
    assert last["error"]["message"] == error["message"]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Look."
    stage.script.start = None
    with pytest.raises(openai.APIError, match="unreadable"):
        list(stage.client.chat.completions.create(model="any", **body, stream=True))


def test_nothing_leaves_between_the_first_mark_and_the_calls(stage) -> None:
    *chunks, _ = events(stage.live.chat(**stage.says(f"Look.{TIDE}\n{NOW}\n", tools=TOOLS), stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [list(delta) for delta in deltas[-3:]] == [["content"], ["tool_calls"], []]
    assert "".join(delta.get("content", "") for delta in deltas) == "Look."
    assert len(deltas[-2]["tool_calls"]) == 2


def test_a_model_whose_template_declares_no_tools_refuses_them_by_name(stage) -> None:
    stage.live.server.chat.template = ChatTemplate("{{ messages[0].content }}", bos_token="", eos_token="")
    response = stage.live.chat(messages=ASK, tools=TOOLS)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "tools"
    assert all(part in error["message"] for part in ("acted", "no tool calls", "chat template (a test)"))
    assert stage.live.chat(messages=ASK, tools=TOOLS, tool_choice="none").status_code == 200


def test_a_parameter_that_is_a_text_stays_one(stage) -> None:
    parameters = "<parameter=port>29200</parameter><parameter=day>7</parameter>"
    message, _ = stage.both(f"<tool_call><function=tide>{parameters}</function></tool_call>", tools=TOOLS)
    assert message["tool_calls"][0]["function"]["arguments"] == '{"port":"29200","day":7}'
