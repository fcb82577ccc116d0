"""POST /v1/audio/transcriptions: a sound file in a form, what is said in it back, whole or as it becomes known."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import msgspec
import numpy as np
from litestar import Request, Response, post
from litestar.exceptions import HTTPException

from golem_core import BadRequest, ByteStream, Server, note_refusal, note_request, refusal_of, unless_gone
from golem_kyutai import transcript as forms
from golem_kyutai.audio import open_sound, resampled
from golem_kyutai.form import Form, read_form
from golem_kyutai.group import Full
from golem_kyutai.stream import Stream
from golem_kyutai.transcriber import Transcriber
from golem_kyutai.transcript import Transcript
from golem_kyutai.words import Word

PATH = "/v1/audio/transcriptions"
FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
GRANULARITIES = ("word", "segment")
DONE, PING = b"data: [DONE]\n\n", b": ping\n\n"
PING_SECONDS = 30.0
"""Of silence after which a stream shows that it lives, by a comment."""


@dataclass(frozen=True)
class Asked:
    """What a form asks for."""

    format: str
    stream: bool
    temperature: float
    language: str
    granularities: tuple[str, ...]

    @classmethod
    def read(cls, form: Form) -> Asked:
        """Raises BadRequest naming the field at fault."""
        format_ = form.text("response_format", "json")
        if format_ not in FORMATS:
            raise BadRequest(
                f"response_format: {format_[:40]!r} is not written here, only {', '.join(FORMATS)}",
                param="response_format",
            )
        stream = form.text("stream", "false").lower() in ("true", "1")
        if stream and format_ in ("srt", "vtt"):
            raise BadRequest(f"stream: captions ({format_}) are written when the sound has ended", param="stream")
        named = form.fields.get("timestamp_granularities[]", form.fields.get("timestamp_granularities", []))
        for each in named:
            if each not in GRANULARITIES:
                raise BadRequest(
                    f"timestamp_granularities: {each[:40]!r} is neither 'word' nor 'segment'",
                    param="timestamp_granularities",
                )
        return cls(format_, stream, _temperature(form), form.text("language"), tuple(named) or ("segment",))


def _temperature(form: Form) -> float:
    text = form.text("temperature", "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 2:
        raise BadRequest(f"temperature: expected a number from 0 to 2, got {text[:40]!r}", param="temperature")
    return value


def handler(server: Server, transcriber: Transcriber) -> Any:
    """The route handler."""

    @post(PATH, status_code=200, name=PATH, request_max_body_size=None)
    async def transcriptions(request: Request) -> Response[Any]:
        """What is said in a sound file.

        The form has the part `file`, a WAV, FLAC, MP3 or OGG file, and may have `response_format`, `stream`,
        `temperature` and `timestamp_granularities[]`.
        """
        start = time.perf_counter()
        form = await read_form(request.headers.get("content-type", ""), request.stream())
        try:
            if form.file is None:
                raise BadRequest("no file part: send the sound as the part 'file'", param="file")
            asked = Asked.read(form)
            sound = await asyncio.to_thread(begun, form.file, transcriber.rate)
            stream = transcriber.listening(sound, temperature=asked.temperature)
        except Full as full:
            form.close()
            raise HTTPException(str(full), status_code=429) from None
        except BaseException:
            form.close()
            raise

        def note(words: int) -> None:
            seconds = time.perf_counter() - start
            note_request(request, f"{stream.seconds:.1f}s of sound ({stream.seconds / seconds:.1f}×), {words} words")

        if asked.stream:
            pieces = events(stream, note, partial(note_refusal, request))
            await anext(pieces)  # begun, so that closing it frees the slot even where nobody reads it
            return ByteStream(pieces, "text/event-stream")

        async def everything() -> list[Word]:
            return [word async for word in words_of(stream) if word is not None]

        try:
            words = await unless_gone(request.receive, everything())
        finally:
            stream.close()
        note(len(words))
        return written(Transcript(words, stream.seconds), asked)

    return transcriptions


def begun(file: IO[bytes], rate: int) -> Iterator[np.ndarray]:
    """The samples of a file, which is closed behind them; that it is a sound at all is known at once."""
    sound = open_sound(file)  # type: ignore[arg-type]
    first = next(sound.pieces, None)

    def pieces() -> Iterator[np.ndarray]:
        with file:
            if first is not None:
                yield first
            yield from sound.pieces

    return resampled(pieces(), sound.rate, rate)


async def words_of(stream: Stream) -> AsyncIterator[Word | None]:
    """The words of a stream as they become known, without a thread that waits for them; None after a long silence."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before the stream
            loop.call_soon_threadsafe(woken.set)

    stream.listen(wake)
    while True:
        woken.clear()
        word = stream.poll()
        if word is not None:
            yield word
        elif stream.ended:
            return
        else:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await woken.wait()
            except TimeoutError:
                yield None


async def events(
    stream: Stream, note: Callable[[int], None], failed: Callable[[str], None]
) -> AsyncGenerator[bytes, None]:
    """A piece of text for every word, then the whole of it.  `note` is told the words, `failed` what went wrong."""
    words: list[Word] = []
    try:
        yield b""
        async for word in words_of(stream):
            if word is None:
                yield PING
                continue
            words.append(word)
            yield event({"type": "transcript.text.delta", "delta": word.written})
        whole = Transcript(words, stream.seconds)
        yield event({"type": "transcript.text.done", "text": whole.text, "usage": forms.usage(whole)})
    except Exception as error:
        refusal = refusal_of(error)
        failed(refusal.message)
        yield event({"type": "error", "error": {"message": refusal.message, "type": refusal.type}})
    finally:
        stream.close()
        note(len(words))
    yield DONE


def event(data: Any) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def written(found: Transcript, asked: Asked) -> Response[bytes]:
    """A transcript in the form that is asked for."""
    if asked.format == "json":
        return _json(forms.plain_json(found))
    if asked.format == "verbose_json":
        return _json(
            forms.verbose_json(
                found,
                language=asked.language,
                temperature=asked.temperature,
                words="word" in asked.granularities,
                segments="segment" in asked.granularities,
            )
        )
    text = {"text": lambda: found.text + "\n", "srt": lambda: forms.srt(found), "vtt": lambda: forms.vtt(found)}
    media = "text/vtt" if asked.format == "vtt" else "text/plain"
    return Response(text[asked.format]().encode(), media_type=media)


def _json(data: Iterable[Any]) -> Response[bytes]:
    return Response(msgspec.json.encode(data), media_type="application/json")
