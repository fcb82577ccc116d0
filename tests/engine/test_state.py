"""What the engine says of its slots and of those who wait."""

from __future__ import annotations

import time

from fake_device import Device, engine, greedy

from golem_core.engine.slots import SlotState


def test_slots_are_busy_while_they_answer_and_remember_afterwards():
    device = Device()
    with engine(device, slots=2, context=64) as running:
        assert running.slot_states() == [SlotState(0, False, 0), SlotState(1, False, 0)]
        device.passes[0].seconds = 0.01
        held = [running.submit(greedy([2, 3, first], 30)) for first in (4, 5)]
        waits = running.submit(greedy([2, 3, 6], 30))
        end = time.monotonic() + 5
        while not (all(state.busy for state in running.slot_states()) and running.waiting == 1):
            assert time.monotonic() < end
        waits.cancel()
        assert running.waiting == 0
        for generation in held:
            generation.cancel()
        while any(state.busy for state in running.slot_states()):
            assert time.monotonic() < end
        assert all(state.positions >= 3 for state in running.slot_states()), "what was read stays"
