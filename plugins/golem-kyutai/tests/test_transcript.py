"""Captions and JSON out of words."""

from __future__ import annotations

import re

import pytest
from golem_kyutai import transcript as forms
from golem_kyutai.transcript import Transcript
from golem_kyutai.words import Word


def words(*texts: str, start: float = 0.0, step: float = 0.5, said: float = 0.4) -> list[Word]:
    """One word every `step` seconds."""
    found = []
    for i, text in enumerate(texts):
        at = start + step * i
        found.append(Word(f" {text}", at, [4 + i, 5], at + said, -0.5, at + step))
    return found


def test_a_pause_a_sentence_and_a_long_line_end_a_segment():
    said = [*words("well", "yes."), *words("and", "no", start=1.0), *words("then", start=5.0)]
    said[3].end = 5.0  # as the model says: a word lasts until the next
    found = Transcript(said, 6.0)
    assert [each.text for each in found.segments()] == ["well yes.", "and no", "then"]
    assert [(each.start, each.end) for each in found.segments()] == [(0.0, 0.9), (1.0, 1.9), (5.0, 5.4)]
    assert found.text == "well yes. and no then"
    slow = Transcript(words(*["a"] * 30), 15.0).segments()
    assert len(slow) > 1 and all(each.end - each.start <= forms.LONGEST for each in slow)
    wide = Transcript(words(*["characters"] * 30, step=0.1, said=0.1), 3.0).segments()
    assert len(wide) > 1 and all(len(each.text) <= forms.MOST_CHARACTERS for each in wide)
    assert sum(len(each.words) for each in wide) == 30


def test_words_without_padding_between_them_share_their_time():
    word = Word(" one three", 1.0, [4, 5], 3.0, 0.0, 3.0)
    timed = Transcript([word], 4.0).timed()
    assert [(each.text, each.start, each.end) for each in timed] == [("one", 1.0, 1.75), ("three", 1.75, 3.0)]


def test_what_has_no_blank_before_it_is_the_word_before():
    said = words("nine", "teen.", "years", start=0.0)
    said[1].written = "teen."
    said[0].written = " nine."
    found = Transcript(said, 2.0)
    assert [(each.text, each.start, each.end) for each in found.timed()] == [
        ("nine.teen.", 0.0, 0.9),
        ("years", 1.0, 1.4),
    ]
    assert [each.text for each in found.segments()] == ["nine.teen.", "years"]


def test_captions_have_clocks_and_numbers():
    said = [*words("Tom", "& <Jerry>."), *words("again", start=3725.0004, said=0.25)]
    found = Transcript(said, 3726.0)
    assert forms.srt(found) == (
        "1\n00:00:00,000 --> 00:00:00,900\nTom & <Jerry>.\n\n2\n01:02:05,000 --> 01:02:05,250\nagain\n\n"
    )
    assert forms.vtt(found) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nTom &amp; &lt;Jerry&gt;.\n\n01:02:05.000 --> 01:02:05.250\nagain\n\n"
    )
    assert (forms.srt(Transcript([], 1.0)), forms.vtt(Transcript([], 1.0))) == ("", "WEBVTT\n\n")


def test_verbose_json_has_what_openais_has():
    found = Transcript(words("one", "two.", "three"), 2.0)
    data = forms.verbose_json(found, language="en", temperature=0.5, words=True)
    assert (data["task"], data["language"], data["duration"], data["text"]) == (
        "transcribe",
        "en",
        2.0,
        "one two. three",
    )
    assert data["words"][1] == {"word": "two.", "start": 0.5, "end": 0.9}
    first, second = data["segments"]
    assert first["tokens"] == [4, 5, 5, 5] and first["avg_logprob"] == pytest.approx(-0.25)
    assert (first["id"], second["id"], second["text"], second["temperature"]) == (0, 1, "three", 0.5)
    assert 0 < first["compression_ratio"] < 2
    assert "words" not in forms.verbose_json(found) and "segments" not in forms.verbose_json(found, segments=False)
    assert forms.plain_json(found) == {"text": "one two. three", "usage": {"type": "duration", "seconds": 2.0}}


def test_clocks_round_to_thousandths():
    assert forms.clock(0.9996, ".") == "00:00:01.000"
    assert re.fullmatch(r"\d\d:\d\d:\d\d,\d{3}", forms.clock(35_999.9994, ","))
