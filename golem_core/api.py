"""Opening models from Python: a file and a device come in, and a model that answers or embeds goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from golem_core.background import give_back, in_background
from golem_core.errors import GolemError, Unsupported
from golem_core.keywords import check_keywords
from golem_core.loaded_model import LoadedModel

if TYPE_CHECKING:
    from golem_core.embedder import LoadedEmbedder
    from golem_core.engine import Engine
    from golem_core.engine.embedding import EmbeddingEngine
    from golem_core.engine.roles import ChatModel, Embedder
    from golem_core.graph import Device
    from golem_core.media.encoder import MediaEncoder

M = TypeVar("M", "ChatModel", "Embedder")
E = TypeVar("E", "Engine", "EmbeddingEngine")


def load(
    path: str | Path,
    *,
    context: int = 4096,
    device: str = "cpu",
    slots: int = 1,
    threads: int | None = None,
    cache_ttl: float = 0.0,
    checkpoints: int = 3,
    width: int | None = None,
    draft_n: int | None = None,
    mmproj: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    wait: bool = True,
    **options: Any,
) -> LoadedModel:
    """Open the model file (or directory) at `path` on a device, ready to answer.

    `context` positions are divided among `slots` conversations, each of which keeps `checkpoints` copies of the
    recurrent states of a model that has any, and `width` is the most positions of a pass.  `draft_n` is how many
    tokens are guessed ahead for a lone conversation: 0 none; None one, where the model can and that pays on the
    device.  `mmproj` is a projector, a file that comes beside a model and makes rows of pictures and recordings for it.
    `threads` and `options` are the device's own, named as on the command line.  `progress(done, total)` counts bytes of
    weights as the device takes them over.  With `wait` False that goes on in the background: `ready()` of what is
    returned waits for it, and has to be called.  Architecture and device come from the installed plugins.  Raises
    BadFile for a file that can't be read, Unsupported, by name, for an architecture, a device, an op or a weight type
    that nothing installed can do, and TypeError for a keyword that is neither listed here nor a device's option.
    """
    from golem_core.engine import Engine
    from golem_core.engine.roles import ChatModel
    from golem_core.files import open_model

    _check_options(load, options)
    encoder: MediaEncoder | None = None

    def make(model: ChatModel, opened: Any) -> Engine:
        nonlocal encoder
        if model.media is not None:
            from golem_core.media.encoder import MediaEncoder

            encoder = MediaEncoder(model.media, opened)
        return Engine(
            model,
            opened,
            context=context,
            slots=slots,
            cache_ttl=cache_ttl,
            checkpoints=checkpoints,
            width=width,
            draft_n=draft_n,
            progress=progress,
            wait=False,
        )

    beside = None if mmproj is None else open_model(mmproj)

    def bind(model: ChatModel) -> ChatModel:
        return model if beside is None else model.bound(beside)

    try:
        parts = open_on(path, ChatModel, "a conversation model", make, device, threads, options, bind)
    except BaseException:
        if beside is not None:
            beside.close()
        raise
    loaded = LoadedModel(*parts, encoder=encoder, projector=beside)
    if wait:
        try:
            loaded.ready()
        except BaseException:
            loaded.close()
            raise
    return loaded


def load_embedder(
    path: str | Path,
    *,
    device: str = "cpu",
    threads: int | None = None,
    width: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> LoadedEmbedder:
    """Open the embedding model at `path` on a device, ready to give vectors to texts.

    `width` is the most positions of a pass; the other keywords and the errors are those of `load`.
    """
    from golem_core.embedder import LoadedEmbedder
    from golem_core.engine.embedding import EmbeddingEngine
    from golem_core.engine.roles import Embedder

    _check_options(load_embedder, options)

    def make(model: Embedder, opened: Any) -> EmbeddingEngine:
        return EmbeddingEngine(model, opened, width=width, progress=progress)

    model, engine, opened, prepared = open_on(path, Embedder, "an embedding model", make, device, threads, options)
    loaded = LoadedEmbedder(model, engine, opened)
    try:
        prepared()
    except BaseException:
        loaded.close()
        raise
    give_back()
    return loaded


def open_on(
    path: str | Path,
    role: type[M],
    what: str,
    make: Callable[[M, Any], E],
    device: str,
    threads: int | None,
    options: Mapping[str, Any],
    bind: Callable[[M], M] = lambda model: model,
) -> tuple[M, E, Any, Callable[[], None]]:
    """The model of the role `role` (`what` in words) in a file, as `bind` leaves it, its engine as `make(model,
    device)` gives it, the device of that name, and what waits for the tokenizer, which is prepared meanwhile."""
    from golem_core import plugins
    from golem_core.files import open_model

    kind = plugins.device(device)
    file = open_model(path)
    try:
        if file.architecture == "clip":
            raise Unsupported(f"{path}: a projector; it goes beside a conversation model, as -mmproj (mmproj=)")
        model = plugins.architecture(file.architecture).open(file)
        if not isinstance(model, role):
            raise Unsupported(f"{path} holds {_in_words(model)}, which is not {what}")
        model = bind(model)
        opened = kind.opened({"device": device, "threads": threads, **options})
        try:
            # the tokenizer's tables are built while the weights are read
            prepared = in_background(model.tokenizer.prepare, f"{path}: the vocabulary can't be used")
            try:
                engine = make(model, opened)
            except BaseException:
                with suppress(GolemError):
                    prepared()
                raise
        except BaseException:
            opened.close()
            raise
    except BaseException:
        file.close()
        raise
    return model, engine, opened, prepared


def _check_options(function: Callable[..., object], options: Mapping[str, Any]) -> None:
    from golem_core import plugins

    check_keywords(function, options, plugins.device_options, "no device has such an option")


def _in_words(model: object) -> str:
    from golem_core.engine.roles import ChatModel, Embedder

    if isinstance(model, ChatModel):
        return "a conversation model"
    return "an embedding model" if isinstance(model, Embedder) else f"a model of the type {type(model).__name__}"


def open_device(options: Mapping[str, Any]) -> Device:
    """The device that the command-line options ask for: "device" names its kind, the rest are its own.

    Raises Unsupported where no installed plugin drives such a device, or the device is not there.
    """
    from golem_core import plugins

    return plugins.device(options["device"]).opened(options)
