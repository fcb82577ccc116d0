"""`golem embed`: vectors for texts, to the terminal, a file of JSON lines, or a numpy array.

Texts are the arguments, the lines of a file, or the lines of standard input.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from golem_core import plugins
from golem_core.embedder import LoadedEmbedder, unit
from golem_core.errors import BadRequest, GolemError
from golem_core.progress import LoadProgress

if TYPE_CHECKING:
    from concurrent.futures import Future

    from golem_core.engine.embedding import Embedded

__all__ = ["embed"]

BATCH = 64
"""Texts of a request; two requests are under way, so that one waits when the other's pass ends."""


def embed(options: Mapping[str, Any]) -> None:
    """Embed the texts that the options name and write their vectors.  Raises GolemError."""
    from golem_core.api import load_embedder

    if options["embed"] is None:
        raise GolemError("no embedding model is named; name one with -embed FILE or GOLEM_EMBED")
    texts = _texts(options["texts"], options["file"])
    path = Path(options["embed"])
    with LoadProgress(f"loading {path.name}") as loading:
        embedder = load_embedder(
            path,
            device=options["device"],
            threads=options["threads"],
            progress=loading,
            **{name: options[name] for name in plugins.device_options() & options.keys()},
        )
    with embedder, _progress(len(texts)) as done:
        kept = embedder.check_dimensions(options["dimensions"])
        vectors = _vectors(embedder, texts, kept, truncate=options["truncate"], raw=options["raw"], done=done)
        _write(options["out"], texts, vectors, kept or embedder.dimensions)


def _texts(given: Sequence[str], file: str | None) -> list[str]:
    if given and file is not None:
        raise GolemError("texts were given as arguments and with -file; give them in one way")
    if given:
        return list(given)
    if file is None and sys.stdin.isatty():
        raise GolemError("there is no text: give some as arguments, name a file with -file, or pipe lines in")
    try:
        data = sys.stdin.buffer.read() if file in (None, "-") else Path(file).read_bytes()
        lines = data.decode().split("\n")
    except OSError as error:
        raise GolemError(f"-file {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise GolemError(f"{file or 'standard input'}: line {line} is not UTF-8") from None
    if not lines[-1]:
        del lines[-1]
    if not lines:
        raise GolemError(f"{file or 'standard input'}: there is no text")
    return [line.removesuffix("\r") for line in lines]


def _vectors(
    embedder: LoadedEmbedder,
    texts: Sequence[str],
    kept: int | None,
    *,
    truncate: bool,
    raw: bool,
    done: Callable[[int], None],
) -> Iterator[np.ndarray[Any, Any]]:
    """A vector for each text, in order."""
    under_way: deque[Future[Embedded]] = deque()
    starts = iter(range(0, len(texts), BATCH))
    while True:
        while len(under_way) < 2 and (start := next(starts, None)) is not None:
            ids = [embedder.tokenize(each, truncate=truncate) for each in texts[start : start + BATCH]]
            for index, each in enumerate(ids, start):
                if len(each) > embedder.limit:
                    message = f"text {index + 1} has {len(each)} tokens, and the model takes {embedder.limit}"
                    raise BadRequest(f"{message}; shorten it, or cut it with -truncate")
            under_way.append(embedder.engine.submit(ids))
        if not under_way:
            return
        found = under_way.popleft().result().vectors[:, :kept]
        yield from found if raw else unit(found)
        done(len(found))


def _write(out: str | None, texts: Sequence[str], vectors: Iterator[np.ndarray[Any, Any]], dimensions: int) -> None:
    """To an array if `out` ends in .npy, else as JSON lines."""
    if out is not None and out.endswith(".npy"):
        rows = np.empty((len(texts), dimensions), np.float32)
        for index, vector in enumerate(vectors):
            rows[index] = vector
        with _opened(out) as file:
            np.save(file, rows)
        return
    with _opened(out) as file:
        for text, vector in zip(texts, vectors, strict=True):
            # An argument may have bytes that are not UTF-8.
            shown = text.encode("utf-8", "replace").decode()
            file.write(msgspec.json.encode({"text": shown, "embedding": vector.tolist()}) + b"\n")


@contextmanager
def _opened(out: str | None) -> Iterator[Any]:
    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with open(out, "wb") as file:
            yield file
    except OSError as error:
        raise GolemError(f"-out {out}: {error.strerror or error}") from None


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A function that is told how many texts more are done; a bar on the terminal if there are several requests."""
    if total <= BATCH or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("embedding", total=total)
        yield lambda count: bar.update(task, advance=count)
