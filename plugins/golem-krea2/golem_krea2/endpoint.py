"""POST /v1/images/generations: a prompt in JSON, and a picture in base64 back, whole or behind the steps as events."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, post
from msgspec import Meta

from golem_core import ByteStream, Server, described, duration, note_refusal, note_request, refusal_of, unless_gone
from golem_krea2.request import ImageRequest, Settings, read
from golem_krea2.studio import Drawn, Studio

PATH = "/v1/images/generations"
PING = b": ping\n\n"
PING_SECONDS = 30.0
"""Of silence after which a stream shows that it lives, by a comment."""


class Picture(msgspec.Struct):
    """One picture."""

    b64_json: Annotated[str, Meta(description="A PNG file in base64.")]
    revised_prompt: Annotated[str, Meta(description="The prompt as it was sent.")]
    seed: Annotated[int, Meta(description="The seed that was used.")]


class Pictures(msgspec.Struct):
    """The answer."""

    created: Annotated[int, Meta(description="The Unix second of this answer.")]
    data: Annotated[list[Picture], Meta(description="The picture.")]


class Progress(msgspec.Struct, tag="image_generation.progress", tag_field="type"):
    """The event after a step."""

    step: Annotated[int, Meta(description="The step that is done, from 1.")]
    steps: Annotated[int, Meta(description="How many there are.")]


class Completed(msgspec.Struct, tag="image_generation.completed", tag_field="type"):
    """The last event."""

    created_at: Annotated[int, Meta(description="The Unix second of this event.")]
    b64_json: Annotated[str, Meta(description="A PNG file in base64.")]
    revised_prompt: Annotated[str, Meta(description="The prompt as it was sent.")]
    seed: Annotated[int, Meta(description="The seed that was used.")]


def handler(server: Server, studio: Studio) -> Any:
    """The route handler."""
    turn = asyncio.Lock()  # lets waiting requests in by their order

    async def in_turn(request: Request, settings: Settings, told: Callable[[int], None]) -> Drawn:
        """A picture when those before are done.  Cancelled, it ends when the step under way does."""
        asked, stop = time.perf_counter(), threading.Event()
        note = f"{settings.width}x{settings.height}, {settings.steps} steps, seed {settings.seed}"
        try:
            await turn.acquire()
        except asyncio.CancelledError:
            note_request(request, f"{note}, given up while queued")
            raise
        try:
            waited = time.perf_counter() - asked
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(None, studio.draw, settings, told, stop.is_set)
            try:
                drawn = await asyncio.shield(work)
            except asyncio.CancelledError:
                stop.set()
                await asyncio.wait([work])
                work.exception()
                note_request(request, f"{note}, given up")
                raise
            except Exception:
                note_request(request, note)  # the line ends with the reason
                raise
            queued = f", queued {duration(waited)}" if waited >= 0.01 else ""
            note_request(request, f"{note}, {duration(drawn.seconds)}{queued}")
            return drawn
        finally:
            turn.release()

    @post(PATH, status_code=200, name=PATH, **described(
        body=ImageRequest, answer=Pictures, stream=("text/event-stream", Progress | Completed)
    ))  # fmt: skip
    async def generations(request: Request) -> Response[Any]:
        """A picture of a prompt.

        Streamed, an event of the name `image_generation.progress` follows every step, and
        `image_generation.completed` has the picture.
        """
        settings, stream = await asyncio.to_thread(checked, studio, await request.body())
        if stream:

            def draw(told: Callable[[int], None]) -> asyncio.Task[Drawn]:
                return asyncio.create_task(in_turn(request, settings, told))

            return ByteStream(events(settings, draw, partial(note_refusal, request)), "text/event-stream")
        drawn = await unless_gone(request.receive, in_turn(request, settings, lambda step: None))
        picture = Picture(encoded(drawn), settings.prompt, settings.seed)
        return Response(msgspec.json.encode(Pictures(int(time.time()), [picture])), media_type="application/json")

    return generations


def checked(studio: Studio, body: bytes) -> tuple[Settings, bool]:
    """The settings that a body asks for, and whether as a stream.  Raises BadRequest."""
    settings, stream = read(body)
    studio.check(settings)
    return settings, stream


async def events(
    settings: Settings, draw: Callable[[Callable[[int], None]], asyncio.Task[Drawn]], failed: Callable[[str], None]
) -> AsyncGenerator[bytes, None]:
    """An event after every step, then the picture or what went wrong, of which `failed` is told, too.  Closed early,
    the picture is given up."""
    loop, steps = asyncio.get_running_loop(), asyncio.Queue[int | None]()

    def put(step: int | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended before the thread
            loop.call_soon_threadsafe(steps.put_nowait, step)

    drawing = draw(put)
    drawing.add_done_callback(lambda task: put(None))
    try:
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    step = await steps.get()
            except TimeoutError:
                yield PING
                continue
            if step is None:
                break
            yield event(Progress(step, settings.steps))
        drawn = await drawing
        yield event(Completed(int(time.time()), encoded(drawn), settings.prompt, settings.seed))
    except Exception as error:
        refusal = refusal_of(error)
        failed(refusal.message)
        yield event({"type": "error", "error": {"type": refusal.type, "message": refusal.message}})
    finally:
        drawing.cancel()
        await asyncio.gather(drawing, return_exceptions=True)


def encoded(drawn: Drawn) -> str:
    return b64encode(drawn.png).decode()


def event(data: Any) -> bytes:
    """A named event with its data as JSON."""
    plain = msgspec.to_builtins(data)
    return f"event: {plain['type']}\n".encode() + b"data: " + msgspec.json.encode(plain) + b"\n\n"
