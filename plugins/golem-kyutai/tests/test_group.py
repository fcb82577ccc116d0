"""Streams: alone, in company, cut into any pieces, ended early; and a group that is full or stands still."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

import numpy as np
import pytest
from golem_kyutai import stream as one_stream
from golem_kyutai.group import Full, Group
from golem_kyutai.stream import choose
from golem_kyutai.words import BEGIN

from golem_core import Columns, GolemError, Unavailable


@pytest.fixture
def make(checkpoint, device):
    made: list[Group] = []

    def make(slots: int = 1, weights: str = "bf16") -> Group:
        made.append(Group(checkpoint, device, device, slots=slots, weights=weights))
        return made[-1]

    yield make
    for each in made:
        each.close()


def hear(group: Group, sound: np.ndarray, sizes=(10_000,), **options) -> list[tuple]:
    """The words in a sound that is fed in pieces of the sizes, again and again."""
    stream = group.open(**options)

    def feed() -> None:
        at = turn = 0
        while at < len(sound):
            size = sizes[turn % len(sizes)]
            stream.feed(sound[at : at + size])
            at, turn = at + size, turn + 1
        stream.finish()

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(feed)
        words = list(stream)
        fed.result()
    stream.close()
    return [(word.written, word.start, word.end, tuple(word.tokens)) for word in words]


def by_hand(checkpoint, device, tiny, sound: np.ndarray) -> list[int]:
    """The tokens of a sound, a step at a time."""
    from golem_kyutai import trunk
    from golem_kyutai.codec import Codec, Stretch

    padded = np.concatenate([sound, np.zeros(round(1.5 * tiny.RATE), np.float32)])
    padded = np.pad(padded, (0, -len(padded) % tiny.FRAME)).reshape(-1, tiny.FRAME)
    codes = Codec(checkpoint.mimi, device, slots=1, width=len(padded)).encode([Stretch(0, 0, padded)])[0]
    steps = device.compile(trunk.build(checkpoint.config, checkpoint.trunk), context=4096, width=1)
    tokens = [tiny.TEXT_CARD]
    for t, row in enumerate([np.full(tiny.CODEBOOKS, tiny.CARD), *codes]):
        logits = steps.run(Columns([tokens[-1]], [t], [0], [0], {"codes": row[None]}))["logits"]
        tokens.append(int(logits[0].argmax()))
    return tokens[1:]


def test_tokens_are_those_of_single_steps(checkpoint, device, tiny, make):
    sound = tiny.sound(33, 8)[:-50]
    tokens = by_hand(checkpoint, device, tiny, sound)
    words = hear(make(), sound)
    texts = [token for token in tokens[5:] if token >= 4]
    assert len(words) > 3 and [token for word in words for token in word[3]] == texts
    assert BEGIN in tokens and words[-1][2] == pytest.approx(len(sound) / tiny.RATE)


@pytest.mark.parametrize("sizes", [(1,), (96,), (95, 1, 500), (7, 300)])
def test_words_do_not_depend_on_the_pieces(tiny, make, sizes):
    sound = tiny.sound(20, 9) if sizes == (1,) else tiny.sound(60, 9)
    group = make()
    assert hear(group, sound, sizes) == hear(group, sound)


@pytest.mark.parametrize("weights", ["bf16", "q8_0"])
def test_a_stream_in_a_group_hears_what_it_hears_alone(tiny, make, weights):
    sounds = [tiny.sound(20 + 15 * i, 20 + i) for i in range(5)]
    one, several = make(1, weights), make(3, weights)
    alone = [hear(one, sound) for sound in sounds]
    with ThreadPoolExecutor(3) as pool:  # five through three slots: slots change hands
        together = list(pool.map(lambda s: hear(several, s, (150, 700)), sounds * 2))
    assert together == alone * 2 and len(set(map(str, alone))) == 5


def test_a_long_sound_passes_both_windows_in_memory_that_does_not_grow(tiny, make):
    """Over 250 positions of the codec, 12 steps of the language model and 512 more that rings keep."""
    sound = tiny.sound(700, 4)
    stream = (group := make()).open()
    threading.Thread(target=lambda: (stream.feed(sound), stream.finish()), daemon=True).start()
    words = list(stream)
    assert words[-1].end == pytest.approx(56.0) and words[-1].start > 40
    assert not stream._frames and not stream._codes and not stream._unread
    stream.close()
    assert hear(group, sound[: 96 * 200])[:5] == [(w.written, w.start, w.end, tuple(w.tokens)) for w in words[:5]]


def test_a_full_group_refuses_and_a_closed_stream_makes_room(tiny, make):
    group = make(2)
    first, second = group.open(), group.open()
    with pytest.raises(Full, match="all 2 streams of sound are taken"):
        group.open()
    first.close()
    first.close()
    third = group.open()
    with pytest.raises(Full):
        group.open()
    with pytest.raises(Unavailable):
        first.feed(np.zeros(10, np.float32))
    for stream in (second, third):
        stream.close()
    assert hear(group, tiny.sound(20, 9)) == hear(make(), tiny.sound(20, 9))


def test_an_idle_stream_makes_nobody_wait(tiny, make):
    group = make(2)
    idle = group.open()
    assert hear(group, tiny.sound(30, 9)) == hear(make(), tiny.sound(30, 9))
    idle.close()


def test_words_come_while_the_sound_goes_on(tiny, make):
    stream, sound = make().open(), tiny.sound(60, 9)
    stream.feed(sound[: 96 * 40])
    assert stream.next() is not None
    assert stream.seconds == pytest.approx(3.2)
    stream.close()


def test_a_reader_who_does_not_read_is_put_out_where_others_wait(tiny, make, monkeypatch):
    monkeypatch.setattr(one_stream, "UNREAD", 3)
    group = make(2)
    other, idle = group.open(), group.open()
    failed: list[BaseException] = []

    def feed() -> None:
        try:
            for _ in range(40):
                idle.feed(tiny.sound(30, 9))
        except GolemError as error:
            failed.append(error)

    thread = threading.Thread(target=feed)
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and "3 words were left unread" in str(failed[0])
    with pytest.raises(Unavailable, match="unread"):
        idle.next()
    group.open().close()
    other.close()


def test_a_lone_reader_may_take_its_time(tiny, make, monkeypatch):
    monkeypatch.setattr(one_stream, "UNREAD", 2)
    group, sound = make(), tiny.sound(60, 9)
    stream = group.open()
    stream.feed(sound)
    stream.finish()
    time.sleep(0.3)
    assert len(stream._unread) == 2
    assert [word.written for word in stream] == [word[0] for word in hear(make(), sound)]
    stream.close()


def test_what_goes_wrong_in_a_step_is_every_streams_error_and_ends_none_but_them(tiny, make, monkeypatch):
    group = make(2)
    streams = [group.open(), group.open()]
    run, calls = group._trunk.run, []

    def broken(columns):
        calls.append(len(columns))
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(group._trunk, "run", broken)
    for stream in streams:
        stream.feed(tiny.sound(5))
    for stream in streams:
        with pytest.raises(GolemError, match="the device is gone"):
            stream.next()
    monkeypatch.setattr(group._trunk, "run", run)
    assert hear(group, tiny.sound(20, 9)) == hear(make(), tiny.sound(20, 9))


@pytest.mark.parametrize(
    ("network", "output", "said"),
    [("_trunk", "logits", "the language model"), ("_codec._quantizer", "latent", "the codec")],
)
def test_what_is_no_number_is_an_error_and_no_word(tiny, make, monkeypatch, network, output, said):
    group = make()
    part = attrgetter(network)(group)
    run = part.run

    def spoiled(columns):
        found = run(columns)
        return found | {output: np.full_like(found[output], np.nan)}

    monkeypatch.setattr(part, "run", spoiled)
    stream = group.open()
    stream.feed(tiny.sound(5))
    with pytest.raises(GolemError, match=f"{said} gave numbers that are not finite"):
        stream.next()
    monkeypatch.undo()
    assert hear(group, tiny.sound(20, 9)) == hear(make(), tiny.sound(20, 9))


@pytest.mark.parametrize("error", [GolemError("no dice"), ZeroDivisionError("no dice")])
def test_what_goes_wrong_with_one_stream_ends_no_other(tiny, make, capsys, error):
    def broken(logits):
        raise error

    group, sound = make(slots=2), tiny.sound(20, 9)
    want = hear(group, sound)
    bad = group.open()
    bad._took = broken
    with ThreadPoolExecutor(1) as pool:
        good = pool.submit(hear, group, sound)
        with pytest.raises(GolemError, match="no dice"):
            bad.feed(sound)
            bad.next()
        assert good.result(30) == want
    assert ("ZeroDivisionError" in capsys.readouterr().err) == isinstance(error, ZeroDivisionError)


def test_a_group_that_stops_ends_its_streams(tiny, make):
    group = make()
    stream = group.open()
    group.stop()
    with pytest.raises(Unavailable, match="stopping"):
        stream.next()
    with pytest.raises(Unavailable, match="stopping"):
        group.open()


def test_silence_in_front_is_heard_and_left_out_of_the_times(tiny, make):
    sound, group = tiny.sound(40, 9), make()
    plain = hear(group, np.concatenate([np.zeros(tiny.RATE, np.float32), sound]))
    shifted = hear(group, sound, silence=1.0)
    assert [word[3] for word in shifted] == [word[3] for word in plain]
    for (_, start, _, _), (_, other, _, _) in zip(shifted, plain, strict=True):
        assert start == pytest.approx(max(other - 1, 0))


def test_a_temperature_draws_from_the_likeliest():
    logits = np.linspace(-8, 0, 200, dtype=np.float32)
    dice = np.random.default_rng(0)
    assert choose(logits, 0.0, dice)[0] == 199
    drawn = {choose(logits, 1.0, dice)[0] for _ in range(2000)}
    assert len(drawn) > 30 and min(drawn) >= 150
    token, log_probability = choose(logits, 0.0, dice)
    p = np.exp(logits.astype(np.float64))
    assert log_probability == pytest.approx(np.log(p[token] / p.sum()))
    assert choose(np.zeros(9, np.float32), 0.0, dice)[0] == 0
    assert {choose(logits, tiny, dice)[0] for tiny in (1e-9, 1e-46, 1e-320, 5e-324)} == {199}
