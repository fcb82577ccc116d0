"""The built-in chat templates: what a conversation becomes when the file brings no template of its own."""

from __future__ import annotations

import pytest
from golem_gemma import templates

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

    @pytest.mark.parametrize(
        "messages",
        [
            [user("a"), user("b")],
            [assistant("a")],
            [user("a"), system("b")],
            [user("a"), assistant("b"), {"role": "tool", "content": "c"}],
            [system("alone")],
            [],
            [user([{"type": "image_url", "image_url": {"url": "x"}}])],
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

    def test_tools_are_refused(self):
        with pytest.raises(BadRequest, match="tool"):
            gemma4(user("a"), tools=[{"type": "function", "function": {"name": "f"}}])
