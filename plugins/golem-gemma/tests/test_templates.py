"""The built-in chat templates: what a conversation becomes when the file brings no template of its own.

What is expected of Gemma 4 was compared with renderings of the template published with the 31B model.  It differs
where later templates do: `null` for None, mappings as results, a thought begun after a result while thinking.
"""

from __future__ import annotations

import pytest
from golem_gemma import templates
from golem_gemma.older_templates import Gemma4Template

from golem_core import BadRequest, ChatTemplate


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def gemma3(*messages, **options):
    return ChatTemplate(templates.GEMMA3, bos_token="<bos>", eos_token="<eos>").render(list(messages), **options)


def gemma4(*messages, empty_thought=True, **options):
    source = templates.gemma4(empty_thought=empty_thought)
    return ChatTemplate(source, bos_token="<bos>", eos_token="<eos>").render(list(messages), **options)


PARTS = [{"type": "text", "text": " One. "}, {"type": "text", "text": "Two.\n"}]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Get it.",
        "parameters": {
            "type": "object",
            "properties": {
                "tags": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
                "city": {"type": "string", "description": "Where", "enum": ["a", "b"]},
                "Days": {"type": "integer", "nullable": True},
                "more": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            },
            "required": ["city"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "description": "Time"}}
DECLARED = (
    '<|tool>declaration:weather{description:<|"|>Get it.<|"|>,parameters:{properties:{'
    'city:{description:<|"|>Where<|"|>,enum:[<|"|>a<|"|>,<|"|>b<|"|>],type:<|"|>STRING<|"|>},'
    'Days:{nullable:true,type:<|"|>INTEGER<|"|>},'
    'more:{properties:{x:{type:<|"|>NUMBER<|"|>}},required:[<|"|>x<|"|>],type:<|"|>OBJECT<|"|>},'
    'tags:{items:{enum:[<|"|>x<|"|>],type:<|"|>STRING<|"|>},type:<|"|>ARRAY<|"|>}},'
    'required:[<|"|>city<|"|>],type:<|"|>OBJECT<|"|>}}<tool|>'
    '<|tool>declaration:now{description:<|"|>Time<|"|>}<tool|>'
)


def calls(*arguments, thought=None):
    """An assistant message that calls `weather` with each of the arguments, under the ids c0, c1, ..."""
    made = [
        {"type": "function", "id": f"c{i}", "function": {"name": "weather", "arguments": each}}
        for i, each in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, "reasoning_content": thought}


def tool(content, call):
    return {"role": "tool", "tool_call_id": call, "content": content}


class TestGemma3:
    def test_turns(self):
        assert gemma3(user(" Hi \n"), assistant("Hello!"), user("Bye")) == (
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
        )

    def test_the_system_message_stands_before_the_first_user_text(self):
        assert gemma3(system("Be brief. "), user("Hi"), assistant("Yo"), user("Bye")) == (
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
        )

    def test_without_generation_prompt(self):
        assert gemma3(user("Hi"), add_generation_prompt=False) == "<bos><start_of_turn>user\nHi<end_of_turn>\n"

    def test_text_parts(self):
        assert gemma3(user(PARTS), add_generation_prompt=False) == "<bos><start_of_turn>user\nOne.Two.<end_of_turn>\n"

    def test_a_picture_stands_where_it_was_sent(self):
        assert gemma3(user([{"type": "image"}, *PARTS]), add_generation_prompt=False) == (
            "<bos><start_of_turn>user\n<start_of_image>One.Two.<end_of_turn>\n"
        )

    @pytest.mark.parametrize(
        "messages",
        [
            [user("a"), user("b")],
            [assistant("a")],
            [user("a"), system("b")],
            [user("a"), assistant("b"), {"role": "tool", "content": "c"}],
            [system("alone")],
            [],
            [user([{"type": "audio"}])],
        ],
    )
    def test_what_it_cannot_write_is_refused(self, messages):
        with pytest.raises(BadRequest):
            gemma3(*messages)

    def test_tools_are_refused(self):
        with pytest.raises(BadRequest, match="tool"):
            gemma3(user("a"), tools=[{"type": "function", "function": {"name": "f"}}])


class TestGemma4:
    def test_turns(self):
        assert gemma4(user(" Hi \n"), assistant("Hello!"), user("Bye")) == (
            "<bos><|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n<|turn>user\nBye<turn|>\n"
            "<|turn>model\n<|channel>thought\n<channel|>"
        )

    def test_some_models_begin_without_an_empty_thought(self):
        assert gemma4(user("Hi"), empty_thought=False) == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"

    def test_thinking_is_asked_for_in_a_system_turn(self):
        assert gemma4(user("Hi"), enable_thinking=True) == (
            "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
        )

    def test_the_system_turn_takes_both(self):
        assert gemma4(system(" Be brief. "), user("Hi"), enable_thinking=True) == (
            "<bos><|turn>system\n<|think|>\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
        )

    @pytest.mark.parametrize("role", ["system", "developer"])
    def test_system_text_in_parts_is_spaced(self, role):
        assert gemma4({"role": role, "content": PARTS}, user("Hi"), empty_thought=False) == (
            "<bos><|turn>system\nOne. Two. <turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
        )

    def test_old_thoughts_are_left_out(self):
        said = "<|channel>thought\nhm<channel|> Four.<|channel>thought\nunfinished"
        assert gemma4(user("2+2?"), assistant(said), user("Sure?"), add_generation_prompt=False) == (
            "<bos><|turn>user\n2+2?<turn|>\n<|turn>model\nFour.<turn|>\n<|turn>user\nSure?<turn|>\n"
        )

    def test_a_thought_after_the_last_question_is_kept(self):
        turns = [user("a"), assistant("b", reasoning_content="old"), user("c"), assistant("d", reasoning_content="new")]
        assert gemma4(*turns, add_generation_prompt=False) == (
            "<bos><|turn>user\na<turn|>\n<|turn>model\nb<turn|>\n<|turn>user\nc<turn|>\n"
            "<|turn>model\n<|channel>thought\nnew\n<channel|>d<turn|>\n"
        )

    def test_answers_in_a_row_share_one_header(self):
        assert gemma4(user("a"), assistant("b"), assistant("c"), add_generation_prompt=False) == (
            "<bos><|turn>user\na<turn|>\n<|turn>model\nb<turn|>\nc<turn|>\n"
        )

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [user("a"), system("b")],
            [user("a"), {"role": "tool", "content": "c"}],
            [user("a"), {"role": "narrator", "content": "c"}],
            [user([{"type": "input_audio", "input_audio": {}}])],
        ],
    )
    def test_what_it_cannot_write_is_refused(self, messages):
        with pytest.raises(BadRequest):
            gemma4(*messages)

    def test_tools_are_declared_in_the_system_turn(self):
        assert gemma4(system("S"), user("w?"), tools=[WEATHER, NOW], enable_thinking=True) == (
            "<bos><|turn>system\n<|think|>\nS" + DECLARED + "<turn|>\n<|turn>user\nw?<turn|>\n<|turn>model\n"
        )
        assert gemma4(user("w?"), tools=[WEATHER, NOW]).startswith(f"<bos><|turn>system\n{DECLARED}<turn|>\n")

    def test_a_property_may_have_any_name(self):
        schema = {"type": "object", "properties": {"type": {"type": "string"}, "items": {"type": "boolean"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        assert (
            '{description:<|"|><|"|>,parameters:{properties:{items:{type:<|"|>BOOLEAN<|"|>},type:{type:<|"|>STRING<|"|>}}'
            in gemma4(user("a"), tools=[tool])
        )

    def test_an_unanswered_call_hands_over_to_the_tool(self):
        arguments = {"city": "X", "Days": 3, "ok": True, "no": None, "list": [1, "b"], "map": {"k": 0.5}}
        assert gemma4(user("w?"), calls(arguments)) == (
            "<bos><|turn>user\nw?<turn|>\n<|turn>model\n<|tool_call>call:weather{"
            'city:<|"|>X<|"|>,Days:3,list:[1,<|"|>b<|"|>],map:{k:0.5},no:null,ok:true}<tool_call|><|tool_response>'
        )

    @pytest.mark.parametrize(("thinking", "end"), [(False, ""), (True, "<|channel>thought\n")])
    def test_after_a_result_the_model_speaks_on_in_its_turn(self, thinking, end):
        prompt = gemma4(user("w?"), calls({"city": "X"}), tool("sunny", "c0"), enable_thinking=thinking)
        assert prompt.endswith(
            '<|turn>model\n<|tool_call>call:weather{city:<|"|>X<|"|>}<tool_call|>'
            '<|tool_response>response:weather{value:<|"|>sunny<|"|>}<tool_response|>' + end
        )

    def test_several_calls_are_answered_before_the_answer(self):
        turns = [user("w?"), calls({"city": "X"}, {}), tool("sunny", "c0"), tool({"t": 1, "a": None}, "c1")]
        assert gemma4(*turns, assistant("Fine."), user("ok"), empty_thought=False) == (
            "<bos><|turn>user\nw?<turn|>\n<|turn>model\n"
            '<|tool_call>call:weather{city:<|"|>X<|"|>}<tool_call|><|tool_call>call:weather{}<tool_call|>'
            '<|tool_response>response:weather{value:<|"|>sunny<|"|>}<tool_response|>'
            "<|tool_response>response:weather{a:null,t:1}<tool_response|>"
            "Fine.<turn|>\n<|turn>user\nok<turn|>\n<|turn>model\n"
        )

    def test_thoughts_before_calls_are_kept_where_asked_for(self):
        turns = [user("w?"), calls({}, thought="hm"), tool("sunny", "c0"), assistant("Fine."), user("ok")]
        assert "hm" not in gemma4(*turns)
        assert "<|channel>thought\nhm\n<channel|><|tool_call>" in gemma4(*turns, preserve_thinking=True)
        assert "<|channel>thought\nhm\n<channel|><|tool_call>" in gemma4(*turns[:3])

    def test_arguments_in_a_string_are_refused(self):
        with pytest.raises(BadRequest, match="arguments"):
            gemma4(user("w?"), calls('{"city": "X"}'))


CALLS = [{"id": id, "function": {"name": name, "arguments": {}}} for id, name in (("c1", "f"), ("c2", "g"))]
LOOP = [
    {"role": "user", "content": "both"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
]
OLDER = """{%- for m in messages -%}
<{{ m.role }}>
{%- for r in m.tool_responses or [] -%}
<|tool_response>response:{{ r.name }}={{ r.response }}{%- endfor -%}
{{ m.content }}
{%- endfor -%}"""


def test_templates_that_read_no_tool_messages_get_the_results_with_the_calls():
    template = Gemma4Template(OLDER, bos_token="<bos>", eos_token="<eos>")
    results = "<user>both<assistant><|tool_response>response:g=two<|tool_response>response:f=one"
    assert template.render(LOOP) == results
    answered = [*LOOP, {"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
    assert template.render(answered) == results + "done<user>thanks"
    again = [*LOOP, *LOOP[1:], {"role": "assistant", "content": "done"}]
    assert template.render(again) == results + results.removeprefix("<user>both") + "done"
    said = [LOOP[0], {**LOOP[1], "content": "let me see"}, *LOOP[2:]]
    assert template.render(said) == results.replace("both", "both<assistant>let me see")
    assert "tool_responses" not in LOOP[1]


def test_templates_that_read_tool_messages_get_these():
    source = """{%- for m in messages -%}
{{ '<|tool_response>response:' ~ (m.name or 'f') if m.role == 'tool' }}{{ m.content }}
{%- endfor -%}"""
    template = Gemma4Template(source, bos_token="<bos>", eos_token="<eos>")
    assert template.render(LOOP) == "both<|tool_response>response:ftwo<|tool_response>response:fone"
