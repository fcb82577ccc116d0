"""Rows of logits that are drawn from while passes go on."""

from __future__ import annotations

import time

import numpy as np
import pytest
from fake_device import Device, Pass, continuation, engine, greedy, ids
from test_company import long_answer

from golem_core.engine.lending import Lender
from golem_core.sampling import STAGES, SamplerStage


def rows(*values: float) -> np.ndarray:
    return np.full((len(values), 3), np.array(values)[:, None], np.float32)


def test_rows_stay_in_their_buffer_while_another_is_free() -> None:
    lender = Lender(2, slots=4, vocabulary=3)
    logits = rows(1, 2)
    lent = lender.lend(lender.free(), logits, [3, 0])
    assert [np.shares_memory(row, logits) for row, _ in lent] == [True, True]
    assert lender.free() == 1
    lent[0][1]()
    assert lender.free() == 1
    lent[1][1]()
    assert lender.free() == 0


@pytest.mark.parametrize("buffers", [1, 2])
def test_rows_are_copied_out_of_the_last_free_buffer(buffers) -> None:
    lender = Lender(buffers, slots=4, vocabulary=3)
    for _ in range(buffers - 1):
        lender.lend(lender.free(), rows(0), [1])
    last = lender.free()
    logits = rows(1, 2)
    lent = lender.lend(last, logits, [3, 0])
    assert lender.free() == last
    logits[:] = 9
    assert [row.tolist() for row, _ in lent] == [[1, 1, 1], [2, 2, 2]]
    for _, done in lent:
        done()
    assert lender.free() == last


def test_rows_that_may_not_be_written_are_copied() -> None:
    lender = Lender(2, slots=1, vocabulary=3)
    logits = rows(1)
    logits.flags.writeable = False
    ((row, _),) = lender.lend(0, logits, [0])
    assert row.flags.writeable
    assert lender.free() == 0


class BufferedPass(Pass):
    """Writes its rows into two arrays in turn, as they are asked for."""

    buffers = 2

    def run(self, columns, buffer=None):
        assert buffer in (0, 1)
        made = super().run(columns)["logits"]
        if not hasattr(self, "rooms"):
            self.rooms = np.full((2, 8, made.shape[1]), np.nan, np.float32)
            self.written = [0, 0]
        self.written[buffer] += 1
        room = self.rooms[buffer, : len(made)]
        self.rooms[buffer] = np.nan
        room[:] = made
        return {"logits": room}


class BufferedDevice(Device):
    def compile(self, graph, *, slots, context, width=None):
        compiled = BufferedPass(slots, context, min(self.width, width or self.width), self.window, self.spare)
        self.passes.append(compiled)
        return compiled


def test_a_slow_sampler_reads_its_row_though_passes_go_on() -> None:
    class Slow:
        def apply(self, candidates):
            before = candidates.logits.copy()
            time.sleep(0.004)
            assert np.array_equal(before, candidates.logits)

    stages = [*STAGES, SamplerStage("slow", 1, lambda params, context: Slow() if context.prompt[1] == 2 else None)]
    device = BufferedDevice()
    with engine(device, slots=3, context=192, stages=stages) as running:
        prompts = [long_answer(seed) for seed in range(3)]
        generations = [running.submit(greedy(prompt, 40)) for prompt in prompts]
        for prompt, generation in zip(prompts, generations, strict=True):
            assert ids(generation) == continuation(prompt, 40, 8)
    compiled = device.passes[0]
    assert isinstance(compiled, BufferedPass)
    assert min(compiled.written) > 5
