"""The threads that draw: one does all, others help where it is stuck, and all end."""

from __future__ import annotations

import threading
import time

from golem_core.engine import drawers
from golem_core.engine.drawers import Drawers


class Work:
    """A piece of work that ends when it is told to."""

    def __init__(self) -> None:
        self.began, self.gate, self.thread = threading.Event(), threading.Event(), ""

    def __call__(self) -> None:
        self.thread = threading.current_thread().name
        self.began.set()
        assert self.gate.wait(10)


def test_help_comes_only_when_the_first_thread_is_stuck(monkeypatch):
    held, works = Drawers(2), [Work(), Work()]
    held.expect()
    for work in works:
        held.put(work)
    assert works[0].began.wait(5)
    monkeypatch.setattr(drawers, "STUCK", 60.0)
    held.call_for_help()
    assert not works[1].began.wait(0.05)
    monkeypatch.setattr(drawers, "STUCK", 0.0)
    held.call_for_help()
    assert works[1].began.wait(5)
    assert [work.thread for work in works] == ["golem-draw", "golem-draw-help"]
    for work in works:
        work.gate.set()
    held.close()


def test_all_end_though_a_helper_finds_the_end_first():
    held, works, done = Drawers(9), [Work(), Work()], []
    held.put(works[0])
    assert works[0].began.wait(5)
    held.put(works[1])
    time.sleep(2 * drawers.STUCK)
    held.call_for_help()
    assert works[1].began.wait(5)
    held.put(lambda: done.append(threading.current_thread().name))
    closing = threading.Thread(target=held.close, daemon=True)
    closing.start()
    works[1].gate.set()
    deadline = time.monotonic() + 5
    while not done and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)  # now it has met the end
    works[0].gate.set()
    closing.join(5)
    assert not closing.is_alive()
    assert done == ["golem-draw-help"]


def test_whoever_is_alone_has_no_threads():
    before = threading.active_count()
    held = Drawers(0)
    assert threading.active_count() == before
    held.close()
