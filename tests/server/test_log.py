"""The line that each request leaves on standard error."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import pytest

from golem_core.server.log import duration, say


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0000004, "0s"),
        (0.000412, "412µs"),
        (0.0374, "37ms"),
        (0.9996, "1s"),
        (51.226, "51.226s"),
        (51.31, "51.31s"),
        (2, "2s"),
        (62.5, "1m2.5s"),
        (3600, "1h0m0s"),
        (3725.001, "1h2m5.001s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds, text) -> None:
    assert duration(seconds) == text


TIME = r"(?:\d+µs|\d+ms|[\d.]+s|0s)"


def test_an_answer_says_where_the_time_went(live, printed) -> None:
    size = len(live.chat(max_tokens=3).content)
    [line] = printed.lines()
    shape = rf"POST /v1/chat/completions 200 {size} bytes in {TIME} — slot 0(?:, queued {TIME})? — 10 prompt in {TIME} "
    shape += rf"\([\d.]+/s\), 3 drawn in {TIME} \(\d+\.\d\d/s\), length"
    assert re.fullmatch(shape, line), line


def test_a_refusal_ends_with_its_reason(live, printed) -> None:
    live.chat(n=2)
    live.client.get("/nothing?x=1")
    first, second = printed.lines(2)
    assert re.fullmatch(rf"POST /v1/chat/completions 400 \d+ bytes in {TIME}: n: 2 answers .*", first), first
    assert re.fullmatch(rf"GET /nothing 404 \d+ bytes in {TIME}: there is no GET /nothing here", second), second


def test_a_line_stays_one_line_whatever_the_path(live, printed) -> None:
    live.client.get("/a%0ab%1b[31m")
    [line] = printed.lines()
    assert line.startswith("GET /a%0ab%1b[31m 404") or line.startswith("GET /a%0ab%1b%5B31m 404")


def test_waiting_for_a_slot_is_told(live, printed) -> None:
    import threading

    live.engine.prompt_delay = 0.1
    threads = [threading.Thread(target=live.chat) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(", queued " in line and "ms" in line for line in printed.lines(2)) >= 1


def test_control_characters_do_not_reach_the_terminal(capfd) -> None:
    say("[read] \x1b[31mred\x9b \x07 naïve\t😀\u200d\n  more")
    assert capfd.readouterr().err == "[read] \\x1b[31mred\\x9b \\x07 naïve\t😀\u200d\n  more\n"


@pytest.mark.parametrize("how", ["full", "broken", "closed"])
def test_a_log_that_cannot_be_written_hinders_nothing(live, monkeypatch, tmp_path, how) -> None:
    """A disk that is full, a pipe that nobody reads any more, and a stream that this process has closed."""
    if how == "broken":
        reader, writer = os.pipe()
        os.close(reader)
        log = open(writer, "w")  # noqa: SIM115
    elif how == "full":
        if not Path("/dev/full").exists():
            pytest.skip("there is no /dev/full")
        log = open("/dev/full", "w")  # noqa: SIM115
    else:
        log = open(tmp_path / "log", "w")  # noqa: SIM115
        log.close()
    monkeypatch.setattr("sys.stderr", log)
    say("a line")
    assert live.chat().status_code == 200
    assert live.chat(n=2).status_code == 400
    monkeypatch.setattr(live.server.chat, "answer", lambda *given: 1 // 0)
    assert live.chat().json()["error"]["message"] == "internal error: ZeroDivisionError"
    monkeypatch.undo()
    with contextlib.suppress(OSError):
        log.close()


def test_a_log_that_nobody_reads_hinders_nothing(live, monkeypatch) -> None:
    reader, writer = os.pipe()
    with open(writer, "w") as log, open(reader, "rb") as read:
        monkeypatch.setattr("sys.stderr", log)
        start = time.monotonic()
        for _ in range(200):
            say("x" * 1000)
        assert live.chat().status_code == 200
        assert time.monotonic() - start < 5
        said = read.read1(1 << 20)
        assert said.count(b"\n") < 70 and set(said.splitlines()) == {b"x" * 1000}
        say("heard again")
        assert re.fullmatch(
            rb"\(1[0-9]{2} lines are missing here, which nobody read\)\nheard again\n", read.read1(1000)
        )
        say("and again")
        assert read.read1(1000) == b"and again\n"
        monkeypatch.undo()
