"""What was said in a sound, and the forms in which it is written down: text, captions, and JSON with times."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from golem_kyutai.words import Word

GAP = 1.0
"""Seconds of a pause at which a caption ends."""
LONGEST, MOST_CHARACTERS = 7.0, 80
"""Seconds and characters of a caption before it ends at a word."""
SENTENCE_ENDS = ".?!…"


@dataclass(frozen=True)
class Timed:
    """One word without blanks, from `start` to `end` seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Segment:
    """Consecutive words that are shown together."""

    words: Sequence[Word]
    text: str

    @property
    def start(self) -> float:
        return self.words[0].start

    @property
    def end(self) -> float:
        return shown_until(self.words[-1])


@dataclass(frozen=True)
class Transcript:
    """The words of a sound of `seconds`, all of them with their ends."""

    words: Sequence[Word]
    seconds: float

    @property
    def text(self) -> str:
        return text_of(self.words)

    def timed(self) -> list[Timed]:
        """The words one by one; what is written without a blank before it belongs to the word before."""
        found: list[Timed] = []
        for word in self.words:
            first, *others = _apart(word)
            if found and not word.written[0].isspace():
                first = Timed(found[-1].text + first.text, found.pop().start, first.end)
            found += [first, *others]
        return found

    def segments(self) -> list[Segment]:
        """The words cut at pauses, behind sentences, and where a caption would get too long."""
        found, begun = [], 0
        for i, (word, following) in enumerate(pairwise(self.words), 1):
            here = self.words[begun:i]
            ends = following.start - shown_until(word) > GAP or word.text[-1] in SENTENCE_ENDS
            long = shown_until(following) - here[0].start > LONGEST
            long = long or len(text_of([*here, following])) > MOST_CHARACTERS
            if (ends or long) and following.written[0].isspace():
                found.append(Segment(here, text_of(here)))
                begun = i
        rest = self.words[begun:]
        return [*found, Segment(rest, text_of(rest))] if rest else found


def text_of(words: Sequence[Word]) -> str:
    return "".join(word.written for word in words).strip()


def shown_until(word: Word) -> float:
    """A word's end without the pause behind it."""
    return word.said if word.end is None else min(word.end, word.said)


def _apart(word: Word) -> Iterator[Timed]:
    """The words of tokens between which no padding was written: each has a share by its length."""
    parts = word.written.split()
    start, left, end = word.start, sum(map(len, parts)), shown_until(word)
    for part in parts:
        stop = start + (end - start) * len(part) / left
        yield Timed(part, start, stop)
        start, left = stop, left - len(part)


# ---------------------------------------------------------------- forms


def srt(transcript: Transcript) -> str:
    """SubRip captions."""
    return "".join(
        f"{number}\n{clock(each.start, ',')} --> {clock(each.end, ',')}\n{each.text}\n\n"
        for number, each in enumerate(transcript.segments(), 1)
    )


def vtt(transcript: Transcript) -> str:
    """WebVTT captions."""
    return "WEBVTT\n\n" + "".join(
        f"{clock(each.start, '.')} --> {clock(each.end, '.')}\n{_escaped(each.text)}\n\n"
        for each in transcript.segments()
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def clock(seconds: float, point: str) -> str:
    """Hours, minutes, seconds and thousandths."""
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"


def usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(transcript.seconds, 3)}


def plain_json(transcript: Transcript) -> dict[str, Any]:
    return {"text": transcript.text, "usage": usage(transcript)}


def verbose_json(
    transcript: Transcript, *, language: str = "", temperature: float = 0.0, words: bool = False, segments: bool = True
) -> dict[str, Any]:
    """The object of OpenAI's verbose_json, with or without the words and the segments."""
    found: dict[str, Any] = {
        "task": "transcribe",
        "language": language,
        "duration": round(transcript.seconds, 3),
        "text": transcript.text,
    }
    if segments:
        found["segments"] = [_segment(i, each, temperature) for i, each in enumerate(transcript.segments())]
    if words:
        found["words"] = [
            {"word": each.text, "start": round(each.start, 3), "end": round(each.end, 3)} for each in transcript.timed()
        ]
    return found | {"usage": usage(transcript)}


def _segment(number: int, segment: Segment, temperature: float) -> dict[str, Any]:
    tokens = [token for word in segment.words for token in word.tokens]
    data = segment.text.encode()
    return {
        "id": number,
        "seek": 0,
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "tokens": tokens,
        "temperature": temperature,
        "avg_logprob": sum(word.log_probability for word in segment.words) / max(1, len(tokens)),
        "compression_ratio": len(data) / len(zlib.compress(data)),
        "no_speech_prob": 0.0,
    }
