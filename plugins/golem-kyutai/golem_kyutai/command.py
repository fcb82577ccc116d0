"""`golem transcribe`, which writes down what is said in files, and `golem listen`, which does so at the microphone."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

import click

from golem_core import GolemError, LoadProgress, option_command

if TYPE_CHECKING:
    from golem_kyutai.microphone import Microphone

SUFFIXES = {"text": "txt", "srt": "srt", "vtt": "vtt", "json": "json", "verbose_json": "json"}
REDRAWS = 5.0
"""How often a second the progress bar is drawn."""


def shared() -> list[click.Parameter]:
    """The options of both commands, besides those that choose a device."""
    return [
        click.Option(
            ["model", "-stt", "--stt", "-model", "--model"],
            metavar="DIR",
            envvar="GOLEM_STT",
            required=True,
            help="The checkpoint's directory.  [GOLEM_STT]",
        ),
        click.Option(
            ["weights", "-stt-weights", "--stt-weights"],
            type=click.Choice(["bf16", "q8_0", "q4_0"], case_sensitive=False),
            envvar="GOLEM_STT_WEIGHTS",
            default="q8_0",
            show_default=True,
            help="How the language model's matrices are kept.  [GOLEM_STT_WEIGHTS]",
        ),
        click.Option(
            ["silence", "-silence", "--silence"],
            type=click.FloatRange(0, 60),
            metavar="SECONDS",
            help="Silence put in front, for sound that begins within a word.  [default: the model's own]",
        ),
    ]


def opened(options: Mapping[str, Any], parallel: int = 1) -> Any:
    from golem_kyutai.transcriber import Transcriber

    given = {**options, "stt-weights": options["weights"], "stt-parallel": parallel}
    with LoadProgress(f"loading {options['model']}") as progress:
        return Transcriber.open(options["model"], given, progress)


# ---------------------------------------------------------------- files


def transcribe() -> click.Command:
    """The command for files."""
    parameters = [
        *shared(),
        click.Option(
            ["format", "-format", "--format"],
            type=click.Choice(list(SUFFIXES)),
            default="text",
            show_default=True,
            help="What is written.",
        ),
        click.Option(["-out", "--out"], metavar="DIR", help="Write a file for each into this directory."),
        click.Option(
            ["parallel", "-stt-parallel", "--stt-parallel"],
            type=click.IntRange(1, 256),
            metavar="N",
            envvar="GOLEM_STT_PARALLEL",
            default=1,
            show_default=True,
            help="Files at once.  [GOLEM_STT_PARALLEL]",
        ),
        click.Argument(["files"], nargs=-1, required=True, metavar="FILE..."),
    ]
    help_text = "Write down what is said in sound files: WAV, FLAC, MP3 or OGG, at any rate."
    return option_command("transcribe", help_text, write_down, parameters)


def write_down(options: Mapping[str, Any]) -> None:
    """Transcribe the files that the options name.  Raises GolemError, for files that cannot be read at the end."""
    silence, format_, out, parallel, files = (
        options[name] for name in ("silence", "format", "out", "parallel", "files")
    )
    from concurrent.futures import ThreadPoolExecutor

    targets: list[Path | None] = [None] * len(files)
    if out is not None:
        targets[:] = outputs(Path(out), files, SUFFIXES[format_])
    failed: list[str] = []
    transcriber = opened(options, parallel)
    try:
        with Bar() as bar, ThreadPoolExecutor(parallel) as pool:

            def one(path: str) -> str:
                return written(transcriber, path, silence, format_, bar)

            texts = [pool.submit(one, path) for path in files]
            for path, target, text in zip(files, targets, texts, strict=True):
                try:
                    found = text.result()
                    if target is not None:
                        write(target, found)
                        continue
                except KeyboardInterrupt:
                    transcriber.cancel()  # so that nobody waits for the files under way
                    raise
                except GolemError as error:
                    failed.append(str(error))
                    click.echo(f"golem: {error}", err=True)
                    continue
                heading = f"# {path}\n" if len(files) > 1 and format_ == "text" else ""
                click.echo(heading + found, nl=not found.endswith("\n"))
    finally:
        transcriber.close()
    if failed:
        raise GolemError(f"{len(failed)} of {len(files)} files could not be transcribed")


def outputs(out: Path, files: Sequence[str], suffix: str) -> list[Path]:
    """The file for each of `files`, in the folder `out`, which is made.  Raises GolemError naming two files that would
    be one, or why there can be no such folder."""
    targets: dict[Path, str] = {}
    for path in files:
        target = out / f"{Path(path).stem}.{suffix}"
        if target in targets:
            raise GolemError(f"-out {out}: {targets[target]} and {path} would both be written to {target}")
        targets[target] = path
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GolemError(f"-out {out}: {error.strerror or error}") from None
    return list(targets)


def write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GolemError(f"{target}: cannot be written: {error.strerror or error}") from None


def written(transcriber: Any, path: str, silence: float | None, format_: str, bar: Bar) -> str:
    """What is said in a file, in a form.  Raises GolemError naming the file."""
    from golem_kyutai import transcript as forms
    from golem_kyutai.audio import open_sound, resampled

    try:
        file: IO[bytes] = open(path, "rb")  # noqa: SIM115 - closed below, whatever else goes wrong
    except OSError as error:
        raise GolemError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        sound = open_sound(file, path)  # type: ignore[arg-type]
        pieces = resampled(sound.pieces, sound.rate, transcriber.rate)
        with transcriber.listening(pieces, silence=silence) as stream, bar.watching(path, stream, sound.seconds):
            found = forms.Transcript(list(stream), stream.seconds)
    if format_ in ("json", "verbose_json"):
        verbose = format_ == "verbose_json"
        data = forms.verbose_json(found, words=True) if verbose else forms.plain_json(found)
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    return {"text": lambda: found.text + "\n", "srt": lambda: forms.srt(found), "vtt": lambda: forms.vtt(found)}[
        format_
    ]()


class Bar:
    """A bar for each file under way, on standard error where that is a terminal."""

    def __init__(self) -> None:
        self._progress: Any = None

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
            self._progress = Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr), transient=True)
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def watching(self, path: str, stream: Any, seconds: float | None) -> Watch:
        return Watch(self._progress, Path(path).name, stream, seconds)


class Watch:
    """Draws how far a stream is while the `with` block lasts."""

    def __init__(self, progress: Any, title: str, stream: Any, seconds: float | None):
        self._progress, self._title, self._stream, self._seconds = progress, title, stream, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._progress is not None:
            self._thread.join()

    def _draw(self) -> None:
        task = self._progress.add_task(self._title, total=self._seconds, said="")
        while not self._over.wait(1 / REDRAWS):
            said = f"{self._stream.done:.0f} s" + (f" of {self._seconds:.0f} s" if self._seconds else "")
            self._progress.update(task, completed=self._stream.done, said=said)
        self._progress.remove_task(task)


# ---------------------------------------------------------------- the microphone


def listen() -> click.Command:
    """The command for the microphone."""
    recorder = click.Option(
        ["recorder", "-recorder", "--recorder"],
        type=click.Choice(["pw-record", "arecord", "ffmpeg"]),
        help="The program that records; by default the first of these that is installed.",
    )
    help_text = "Write down what is said at the microphone, until interrupted."
    return option_command("listen", help_text, write_along, [*shared(), recorder])


def write_along(options: Mapping[str, Any]) -> None:
    """Transcribe the microphone.  Raises GolemError."""
    from golem_kyutai.microphone import Microphone, recorder, recording

    program = recorder(options["recorder"])
    transcriber = opened(options)
    try:
        click.echo(f"listening with {Path(program).name}; interrupt to end", err=True)
        sound = Microphone(recording(program, transcriber.rate), transcriber.rate)
        with sound, interrupts_stop(sound), transcriber.listening(sound, silence=options["silence"]) as stream:
            begun = False
            for word in stream:
                click.echo(word.written if begun else word.written.lstrip(), nl=False)
                sys.stdout.flush()
                begun = True
            click.echo()
    finally:
        transcriber.close()


@contextlib.contextmanager
def interrupts_stop(sound: Microphone) -> Iterator[None]:
    """Has an interrupt end the sound, whatever it comes at, so that what has been heard is still written; the next one
    is a KeyboardInterrupt."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        if sound.stopped:
            raise KeyboardInterrupt
        sound.stop()

    earlier = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
