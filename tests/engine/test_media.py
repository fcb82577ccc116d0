"""Pictures and recordings in prompts: their rows reach the pass, and slots remember which ones they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from golem_core.engine import Engine
from golem_core.engine.media import GIVEN, IS_TEXT, PLACE, Span, places, row_numbers
from golem_core.engine.roles import Media, MediaKind
from golem_core.errors import BadRequest
from golem_core.sampling import STAGES

from . import fake_device
from .fake_device import continuation, greedy, ids

WIDTH = 2


class SeeingPass(fake_device.Pass):
    """Reads a given row as the token that its first number names, and notes what the columns saw."""

    def run(self, columns):
        given, text = columns.inputs[GIVEN], columns.inputs[IS_TEXT]
        assert given.shape == text.shape == (len(columns), WIDTH)
        rows = text[:, 0] == 0
        assert (columns.token[rows] == 0).all() and (given[~rows] == 0).all() and (text[~rows] == 1).all()
        self.seen.append((columns.position.tolist(), columns.last.tolist()))
        token = np.where(rows, given[:, 0].astype(int), columns.token)
        return super().run(replace(columns, token=token))


class SeeingDevice(fake_device.Device):
    def compile(self, graph, *, slots, context, width=None, scored=1, tentative=0):
        compiled = SeeingPass(slots, context, max(self.width, width or 0), self.window, self.spare)
        compiled.seen = []
        self.passes.append(compiled)
        return compiled


def media(together: bool) -> Media:
    def never(*_):
        raise AssertionError("the engine encodes nothing")

    kind = MediaKind("image", 1, (), (), {}, never, never, most=12, together=together)
    return Media(lambda: "graph", WIDTH, (kind,))


def engine(device, together: bool = False, **sizes) -> Engine:
    model = fake_device.model(media=media(together))
    return Engine(model, device, stages=STAGES, **({"context": 64} | sizes))


def picture(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1000, 9999, (count, WIDTH)).astype(np.float32)


def seeing(parts: list[list[int] | np.ndarray], together: bool = False):
    """A request of texts and pictures, and the tokens that it means to the device."""
    prompt, spans, meant = [], [], []
    for part in parts:
        if isinstance(part, list):
            prompt, meant = prompt + part, meant + part
        else:
            spans.append(Span(len(prompt), part, whole=together))
            prompt = prompt + row_numbers(part.tobytes(), len(part))
            meant = meant + part[:, 0].astype(int).tolist()
    return greedy(prompt, media=tuple(spans)), meant


@pytest.mark.parametrize("together", [False, True])
def test_the_answer_is_that_to_the_rows(together):
    device = SeeingDevice()
    with engine(device, together) as held:
        for parts in ([[5, 6], picture(1, 11), [7]], [picture(2, 3), [8, 9], picture(3, 12), picture(3, 2), [4]]):
            request, meant = seeing(parts, together)
            assert ids(held.submit(request)) == continuation(meant, 8, device.window)


def test_the_same_picture_is_not_read_again_and_another_one_is():
    device = SeeingDevice(window=64)
    with engine(device) as held:
        ids(held.submit(seeing([[5, 6], picture(1, 9), [7, 8]])[0]))
        again = held.submit(seeing([[5, 6], picture(1, 9), [7, 9]])[0])
        assert ids(again) and again.cached_tokens == 12
        request, meant = seeing([[5, 6], picture(2, 9), [7, 9]])
        other = held.submit(request)
        assert ids(other) == continuation(meant, 8, device.window) and other.cached_tokens == 2


def test_rows_that_see_each_other_go_in_one_pass_and_the_others_as_they_fit():
    device = SeeingDevice()
    parts = [[5, 6, 7], picture(1, 12), [8, 9]]
    with engine(device, together=True) as held:
        ids(held.submit(seeing(parts, together=True)[0]))
    seen = {at: last for each in device.passes[0].seen for at, last in zip(*each, strict=True)}
    assert [seen[at] for at in range(17)] == [0, 1, 2, *([14] * 12), 15, 16]
    runs = [positions for positions, _ in device.passes[0].seen if set(positions) & set(range(3, 15))]
    assert len(runs) == 1
    device = SeeingDevice()
    with engine(device) as held:
        ids(held.submit(seeing(parts)[0]))
    assert all(positions == last for positions, last in device.passes[0].seen)
    assert device.passes[0].ran[0] == {0: 8}


def test_a_window_that_has_moved_on_is_read_again_from_the_beginning_of_the_picture():
    """Going back to a text that shares the picture: the ring has lost what stood before its end."""
    device = SeeingDevice(window=4)
    with engine(device, together=True) as held:
        first, _ = seeing([[5, 6, 7], picture(1, 12), [8, 9]], together=True)
        ids(held.submit(replace(first, max_tokens=20, ignore_eos=True)))
        request, meant = seeing([[5, 6, 7], picture(1, 12), [8, 4]], together=True)
        again = held.submit(request)
        assert ids(again) == continuation(meant, 8, device.window)
        assert again.cached_tokens <= 3 or again.cached_tokens >= 15


def test_many_conversations_with_pictures_do_not_mix():
    device = SeeingDevice()
    with engine(device, together=True, slots=3, context=3 * 64) as held:
        asked = [seeing([[5, n], picture(n, 5 + n), [6, n], picture(n + 1, 3), [7]], together=True) for n in range(6)]
        answers = [held.submit(request) for request, _ in asked]
        for answer, (_, meant) in zip(answers, asked, strict=True):
            assert ids(answer) == continuation(meant, 8, device.window)


# ---------------------------------------------------------------- places


def grid(rows: int, cols: int) -> np.ndarray:
    """Where the rows of a picture stand on three axes."""
    row, col = (each.reshape(-1) for each in np.indices((rows, cols)))
    return np.stack([np.zeros_like(row), row, col], 1)


def walked(parts: list[list[int] | tuple[int, int]], behind: int) -> np.ndarray:
    """The places of every position of texts and pictures, and of some tokens behind, written out one by one."""
    found, at = [], 0
    for part in [*parts, [0] * behind]:
        if isinstance(part, list):
            found += [(at + i,) * 3 for i in range(len(part))]
            at += len(part)
        else:
            found += [(at, at + r, at + c) for r in range(part[0]) for c in range(part[1])]
            at += max(part)
    return np.array(found)


def test_places_are_told_apart_from_positions_whatever_is_asked_for():
    parts = [[5, 6, 7], (2, 5), [8], (4, 1), (1, 1), [9, 4]]
    want, spans, start = walked(parts, 6), [], 0
    for part in parts:
        count = len(part) if isinstance(part, list) else part[0] * part[1]
        if not isinstance(part, list):
            spans.append(Span(start, np.zeros((count, WIDTH)), places=grid(*part)))
        start += count
    for first in range(len(want)):
        for count in range(1, len(want) - first + 1):
            np.testing.assert_array_equal(places(spans, first, count, 3), want[first : first + count])
    plain = [replace(span, places=None) for span in spans]
    np.testing.assert_array_equal(places(plain, 4, 9, 2), np.repeat(np.arange(4, 13)[:, None], 2, 1))


class PlacingPass(fake_device.Pass):
    """Notes the places of every position of a slot."""

    def run(self, columns):
        for slot, position, place in zip(columns.slot, columns.position, columns.inputs[PLACE], strict=True):
            self.noted[int(slot), int(position)] = place.tolist()
        rows = columns.inputs[IS_TEXT][:, 0] == 0
        token = np.where(rows, columns.inputs[GIVEN][:, 0].astype(int), columns.token)
        return super().run(replace(columns, token=token))


class PlacingDevice(fake_device.Device):
    def compile(self, graph, *, slots, context, width=None, scored=1, tentative=0):
        compiled = PlacingPass(slots, context, max(self.width, width or 0), self.window, self.spare)
        compiled.noted = {}
        self.passes.append(compiled)
        return compiled


def test_passes_are_told_the_places_of_prompts_and_answers_and_of_what_is_kept_of_them():
    device = PlacingDevice(window=64)
    model = fake_device.model(media=replace(media(False), axes=3))
    with Engine(model, device, stages=STAGES, context=2 * 64, slots=2) as held:

        def asked(number: int, last: int):
            request, meant = seeing([[5, number], picture(number, 15), [7, last]])
            (span,) = request.media
            return replace(request, media=(replace(span, places=grid(3, 5)),)), meant

        first, second = (asked(number, 8) for number in (1, 2))
        answers = [held.submit(request) for request, _ in (first, second)]
        for answer, (_, meant) in zip(answers, (first, second), strict=True):
            assert ids(answer) == continuation(meant, 8, device.window)
        again = held.submit(asked(1, 9)[0])
        assert ids(again) and again.cached_tokens == 18
        want = walked([[5, 1], (3, 5), [7, 9]], 7)
        noted = device.passes[0].noted
        for slot in (0, 1):
            found = np.array([noted[slot, position] for position in range(len(want) - 1)])
            np.testing.assert_array_equal(found, want[:-1])
        wrong, _ = asked(1, 8)
        wrong = replace(wrong, media=(replace(wrong.media[0], places=grid(3, 5)[:, :2]),))
        assert "places of [15, 2]; the model takes [15, 3]" in refused(wrong, held)


def refused(request, held) -> str:
    with pytest.raises(BadRequest) as error:
        held.submit(request)
    return str(error.value)


def test_rows_that_have_no_place_are_refused():
    good, _ = seeing([[5, 6], picture(1, 4), [7]])
    with engine(SeeingDevice(), together=True) as held:
        moved = replace(good.media[0], start=1)
        assert "position 1" in refused(replace(good, media=(moved,)), held)
        assert "vocabulary" in refused(replace(good, media=()), held)
        wide = Span(2, np.zeros((4, 3), np.float32))
        assert "[3]" in refused(replace(good, media=(wide,)), held)
        assert "ends in a picture" in refused(seeing([[5], picture(1, 4)])[0], held)
        assert "13 rows" in refused(seeing([[5], picture(1, 13), [6]], together=True)[0], held)
    with fake_device.engine() as held:
        assert "projector" in refused(good, held)
