"""`golem run`: one answer, or a conversation, on the terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_fakes import fake_chat

from golem_core import terminal
from golem_core.errors import GolemError
from golem_core.terminal import Terminal, run
from golem_core.text import Markers

OPTIONS: dict[str, Any] = {"model": "m.gguf", "n": 50, "prompt": None, "stats": False, "raw": False}


@pytest.fixture
def chat(monkeypatch):
    found = fake_chat()
    monkeypatch.setattr(terminal, "load_chat", lambda options, path: found)
    return found


def test_a_prompt_is_answered_and_the_model_closed(chat, capsys) -> None:
    run(OPTIONS | {"prompt": "hello"})
    output = capsys.readouterr()
    assert output.out == "user:hello\n"
    assert output.err == ""
    assert chat.engine.closed


def test_statistics_go_to_standard_error(chat, capsys) -> None:
    run(OPTIONS | {"prompt": "hello", "stats": True})
    output = capsys.readouterr()
    assert output.out == "user:hello\n"
    assert "loaded in" in output.err
    assert "10 tokens read, 0 cached" in output.err and "11 tokens" in output.err and "stop" in output.err


@pytest.mark.parametrize("prompt", [None, "-"])
def test_piped_text_is_the_prompt(chat, capsys, monkeypatch, prompt) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines"))
    run(OPTIONS | {"prompt": prompt})
    assert capsys.readouterr().out == "user:two\nlines\n"


def test_nothing_piped_is_an_error(chat, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(GolemError, match="standard input is empty"):
        run(dict(OPTIONS))


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt_is_an_error(chat, prompt) -> None:
    with pytest.raises(GolemError, match="there is no prompt: the text of -p is empty"):
        run(OPTIONS | {"prompt": prompt})


@pytest.mark.parametrize(("budget", "shown"), [(1, "u"), (4, "user"), (10, "user:hello"), (11, "user:hello")])
def test_an_answer_cut_by_its_budget_is_told_of_once(chat, capsys, budget, shown) -> None:
    chat.answer_budget = budget
    run(OPTIONS | {"prompt": "hello"})
    output = capsys.readouterr()
    assert output.out == f"{shown}\n"
    count = "1 token" if budget == 1 else f"{budget} tokens"
    said = f"the answer was cut after {count}; a larger -n lets it go on\n"
    assert output.err == (said if budget <= 10 else "")


def test_an_answer_cut_by_the_context_says_so(chat, capsys) -> None:
    chat.answer_budget, chat.slot_context = 3, 20
    draw = chat.engine.submit
    chat.engine.submit = lambda request: draw(replace(request, max_tokens=2))
    run(OPTIONS | {"prompt": "hello"})
    assert capsys.readouterr().err == "the answer was cut after 2 tokens: the context of 20 is full; raise -context\n"


def test_raw_text_is_completed_as_it_stands(chat, capsys) -> None:
    run(OPTIONS | {"prompt": "once upon", "raw": True})
    assert capsys.readouterr().out == "once upon\n"


def test_a_model_without_a_template_completes_text(chat, capsys) -> None:
    chat.template = None
    run(OPTIONS | {"prompt": "once upon"})
    assert capsys.readouterr().out == "once upon\n"


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [(False, "Six.\n"), (True, "\x1b[2mhm\x1b[0m\n\nSix.\n")],
)
def test_reasoning_is_dimmed_on_a_terminal_and_left_out_elsewhere(chat, capsys, monkeypatch, terminal, shown) -> None:
    chat.model.markers = Markers(thought=("<think>", "</think>"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    talk = Terminal(chat, raw=False, stats=False)
    talk.answer("<think>\nhm\n</think>\n\nSix.")
    assert capsys.readouterr().out == "user:" + shown
    assert talk.history[-1] == {"role": "assistant", "content": "user:Six.", "reasoning_content": "hm"}


def test_raw_text_keeps_every_mark(chat, capsys) -> None:
    chat.model.markers = Markers(thought=("<think>", "</think>"))
    Terminal(chat, raw=True, stats=False).answer("<think>hm</think>Six.")
    assert capsys.readouterr().out == "<think>hm</think>Six.\n"


def test_a_conversation_sends_its_history_with_every_turn(chat, capsys) -> None:
    talk = Terminal(chat, raw=False, stats=False)
    talk.answer("one")
    talk.answer("two")
    messages, settings, _ = chat.template.calls[-1]
    assert [message["content"] for message in messages] == ["one", "user:one", "two"]
    assert settings == {"enable_thinking": False}


TALK = """
import sys
sys.path.insert(0, {here!r})
from server_fakes import fake_chat
from golem_core import cli, terminal

chat = fake_chat()
chat.engine.token_delay = 0.02
terminal.load_chat = lambda options, path: chat
sys.argv = ["golem", "run", "-model", "m.gguf"]
cli.main()
"""


class Person:
    """Somebody at a terminal."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        code = TALK.format(here=str(Path(__file__).parent))
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(slave, __import__("termios").TIOCSCTTY, 0),
            env=os.environ | {"GOLEM_PLUGINS": "", "TERM": "dumb"},
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def sees(self, text: str, within: float = 10) -> bool:
        end = time.monotonic() + within
        while time.monotonic() < end:
            if text in self.seen:
                self.seen = self.seen.partition(text)[2]
                return True
            try:
                self.seen += os.read(self.master, 4096).decode(errors="replace")
            except OSError:
                return False
        return False

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())


def test_a_person_talks_stops_an_answer_and_leaves() -> None:
    person = Person()
    try:
        assert person.sees("control-D ends")
        assert person.sees("> ")
        person.types("hello\n")
        assert person.sees("user:hello")
        assert person.sees("> ")
        person.types("x" * 500 + "\n")
        assert person.sees("x\r\n")
        assert person.sees("user:hello|")
        person.types("\x03")
        assert person.sees("> ", 2), "control-C stops the answer and asks again"
        person.types("\x04")
        assert person.process.wait(10) == 0
    finally:
        person.process.kill()
        person.process.wait()
        os.close(person.master)


# ---------------------------------------------------------------- answers that follow a grammar


class Bytes:
    """A vocabulary of all bytes and an end."""

    vocab_size = 257
    eog = frozenset({256})

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return bytes([id]) if id < 256 else b""

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        return list(text.encode())

    def at_least(self, text: str) -> int:
        return len(text)


GBNF = 'root ::= "yes" | "no"'


@pytest.mark.parametrize(("name", "text"), [("grammar", GBNF), ("json_schema", '{"enum": ["yes", "no"]}')])
def test_every_answer_follows_the_grammar_given_as_a_text_or_a_file(chat, tmp_path, name, text) -> None:
    chat.model.tokenizer = Bytes()
    (tmp_path / "file").write_text(text)
    for given in ({name: text}, {f"{name}_file": str(tmp_path / "file")}):
        run(OPTIONS | {"prompt": "hello"} | given)
        held = chat.engine.requests[-1].sampling.grammar
        matcher = held.grammar.matcher()
        for byte in b'"yes"' if name == "json_schema" else b"yes":
            matcher.accept(byte)
        assert matcher.complete and held.thought is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"grammar": "root ::= ("}, "^grammar: line 1, column 10"),
        ({"json_schema": "{"}, "^-json-schema: not JSON"),
        ({"json_schema": '{"minimum": 1}'}, "^-json-schema: .*minimum"),
        ({"grammar_file": "absent.gbnf"}, "^-grammar-file absent.gbnf: No such file"),
        ({"grammar": GBNF, "json_schema": "{}"}, "^-grammar and -json-schema were both given"),
    ],
)
def test_a_grammar_that_cannot_be_followed_is_named_before_anything_is_answered(chat, given, words) -> None:
    chat.model.tokenizer = Bytes()
    with pytest.raises(GolemError, match=words):
        run(OPTIONS | {"prompt": "hello"} | given)
    assert not chat.engine.requests and chat.engine.closed
