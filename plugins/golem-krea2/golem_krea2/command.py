"""`golem draw`: a picture of a prompt, written to a file."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from golem_core import GolemError, LoadProgress, option_command
from golem_krea2.request import CFG, SIZE, STEPS, STRENGTH, Settings

HELP = """Draw a picture of PROMPT with Krea 2 and write it to a PNG file.

A file that is there is left alone, and nothing is drawn, unless -force is given.  Without -o the file is named after
the seed, krea2-SEED.png; "-o -" writes to standard output."""


def draw() -> click.Command:
    """The command."""
    return option_command("draw", HELP, run, parameters())


def parameters() -> list[click.Parameter]:
    """The command's own, besides the installed options."""

    def option(name: str, help_text: str, *, short: str | None = None, **settings: Any) -> click.Option:
        names = [name.replace("-", "_"), f"-{name}", f"--{name}", *([short] if short else [])]
        return click.Option(names, help=help_text, **settings)

    return [
        click.Argument(["prompt"], nargs=-1, required=True, metavar="PROMPT"),
        option("out", "The file to write.  [default: krea2-SEED.png]", short="-o", metavar="FILE"),
        option("force", "Write over a file that is there.", is_flag=True),
        option("size", "Multiples of 16 from 64, at most 1048576 pixels.", metavar="WxH", **shown(SIZE)),
        option("steps", "Steps of the sampler, 1 to 100; 0 is the default.", type=int, metavar="N", **shown(STEPS)),
        option("cfg", "Guidance; 1 is none.", type=float, metavar="X", **shown(CFG)),
        option("seed", "Starts the noise.  [default: another each time]", type=int, metavar="N"),
        option("negative", "What is not to be seen; read where -cfg is not 1.", metavar="TEXT"),
        option("lora", "The name of a file in the LoRA folder.", metavar="NAME"),
        option("lora-strength", f"How much it changes, 0 to 2.  [default: {STRENGTH}]", type=float, metavar="X"),
        option("hide-prompt", "Keep the prompts out of the file.", is_flag=True),
    ]


def shown(default: Any) -> dict[str, Any]:
    return {"default": default, "show_default": True}


def run(options: Mapping[str, Any]) -> None:
    """Draw what the options ask for.  Raises GolemError."""
    from golem_krea2.studio import Studio

    prompt = one(options["prompt"])
    if options["krea2"] is None:
        raise GolemError("no directory with Krea 2 is named; name one with -krea2 DIR or GOLEM_KREA2")
    settings = Settings.checked(
        prompt,
        negative=options["negative"],
        size=options["size"],
        steps=options["steps"],
        cfg=options["cfg"],
        seed=options["seed"],
        lora=options["lora"],
        lora_strength=options["lora_strength"],
        hide_prompt=options["hide_prompt"],
    )
    if options["lora_strength"] is not None and settings.lora is None:
        raise GolemError(f"-lora-strength {options['lora_strength']:g}: no LoRA is named; name one with -lora")
    if settings.negative and settings.cfg == 1:
        click.echo("-negative is not read, for -cfg is 1", err=True)
    out = options["out"] or f"krea2-{settings.seed}.png"
    check_target(out, options["force"])
    bars = Bars()
    studio = Studio.open(options["krea2"], options, progress=bars.loading)
    try:
        studio.check(settings)
        click.echo(studio.described, err=True)
        with bars:
            drawn = studio.draw(settings, bars.stepping(settings.steps))
    finally:
        studio.close()
    write(out, drawn.png, options["force"])
    facts = f"{settings.width}x{settings.height}, {settings.steps} steps, seed {settings.seed}, {drawn.seconds:.1f}s"
    click.echo(f"{out}: {facts}", err=True)


def one(words: Sequence[str]) -> str:
    """The prompt, which is one argument."""
    if len(words) > 1:
        raise click.UsageError(f'the prompt is one argument; put it in quotes: "{" ".join(words)}"')
    return words[0]


def check_target(out: str, force: bool) -> None:
    """Raises GolemError where the picture could not be written at the end.  Leaves no file behind."""
    if out == "-":
        if sys.stdout.isatty():
            raise GolemError('-o -: standard output is a terminal; name a file, or pipe it, as in "-o - | display"')
        return
    mode = _mode(out)
    if mode is not None and stat.S_ISDIR(mode):
        raise GolemError(f"-o {out}: this is a folder")
    if out.endswith(("/", os.sep)):
        raise GolemError(f"-o {out}: there is no such folder; name a file")
    if os.path.lexists(out) and not force:
        raise GolemError(f"-o {out}: the file is there; write over it with -force")
    path = Path(out).resolve()
    if not os.path.isdir(path.parent):
        raise GolemError(f"-o {out}: there is no folder {path.parent}")
    check_ending(out)
    try:
        if mode is None or stat.S_ISREG(mode):
            beside = _beside(path)
            beside.open("xb").close()
            beside.unlink()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise GolemError(f"-o {out}: it may not be written: {error.strerror or error}") from None


def _mode(out: str) -> int | None:
    """Of what is there under that name, a link being what it leads to; None for nothing."""
    try:
        return os.stat(out).st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GolemError(f"-o {out}: {error.strerror or error}") from None


def check_ending(out: str) -> None:
    """Raises GolemError where a file is named as one of another kind."""
    from PIL import Image

    ending = Path(out).suffix.lower()
    if Image.registered_extensions().get(ending, "PNG") != "PNG":
        raise GolemError(f"-o {out}: the picture is a PNG file, which does not end in {ending}")


def _beside(path: Path) -> Path:
    """A file that this process may have in the same folder for a while."""
    return path.with_name(f".golem-{os.getpid()}.part")


def write(out: str, data: bytes, force: bool) -> None:
    """Raises GolemError where that cannot be, and then no part of the picture is left, and a file that was there is as
    it was."""
    try:
        if out == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif (mode := _mode(out)) is not None and not stat.S_ISREG(mode):
            Path(out).write_bytes(data)
        else:
            _write_whole(Path(out), data, force)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise GolemError(f"-o {out}: {error.strerror or error}") from None


def _write_whole(path: Path, data: bytes, force: bool) -> None:
    """The file is written under a name of its own, and takes the place of another once it is whole."""
    final = path.resolve() if force else path
    written = _beside(final) if force else final
    file = written.open("xb")
    try:
        with file:
            file.write(data)
        if force:
            os.replace(written, final)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


class Bars:
    """What the terminal shows meanwhile: a bar while weights are taken over, and one of the steps."""

    def __init__(self) -> None:
        self._loading: LoadProgress | None = None
        self._steps: Any = None

    def loading(self, title: str) -> Callable[[int, int], None]:
        """A bar of bytes, which takes the place of the one before."""
        self._end()
        self._loading = LoadProgress(title)
        return self._loading

    def stepping(self, steps: int) -> Callable[[int], None]:
        """What is told of every step that is done."""
        if not sys.stderr.isatty():
            return lambda step: None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("drawing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._steps = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        task = self._steps.add_task("drawing", total=steps)

        def told(step: int) -> None:
            if step == 1:
                self._end()
                self._steps.start()
            self._steps.update(task, completed=step)

        return told

    def _end(self) -> None:
        if self._loading is not None:
            self._loading.__exit__(None, None, None)
            self._loading = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        if self._steps is not None:
            self._steps.stop()
