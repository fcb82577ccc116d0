"""Using a model from Python: load a file, make tokens of text, and draw answers.

with golem_core.load("model.gguf") as model:
    for token in model.generate(model.tokenize("Once upon a time", special=True), max_tokens=50):
        print(token.text, end="")
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadFile, BadRequest, GolemError, Unsupported

if TYPE_CHECKING:
    from golem_core.engine import Engine, Generation, Token
    from golem_core.engine.roles import ChatModel
    from golem_core.graph import Device
    from golem_core.sampling.grammar import Constraint
    from golem_core.text import ChatTemplate


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
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> LoadedModel:
    """Open the model file (or directory) at `path` on a device, ready to answer.

    `context` positions are divided among `slots` conversations, each of which keeps `checkpoints` copies of the
    recurrent states of a model that has any, `width` is the most positions of a pass, and
    `threads` and `options` are the device's own, named as on the command line.  `progress(done, total)` counts bytes
    of weights as the device takes them over.  Architecture and device come from
    the installed plugins.  Raises BadFile for a file that can't be read and Unsupported, by name, for an
    architecture, a device, an op or a weight type that nothing installed can do.
    """
    from golem_core import plugins
    from golem_core.engine import Engine
    from golem_core.engine.roles import ChatModel
    from golem_core.files import open_model

    kind = plugins.device(device)
    file = open_model(path)
    try:
        model = plugins.architecture(file.architecture).open(file)
        if not isinstance(model, ChatModel):
            raise Unsupported(f"{path} holds a {type(model).__name__}, which is not a conversation model")
        opened = kind.open({"device": device, "threads": threads, **options})
        try:
            # the tokenizer's tables are built while the weights are read
            prepared = _in_background(model.tokenizer.prepare, f"{path}: the vocabulary can't be used")
            engine = Engine(
                model,
                opened,
                context=context,
                slots=slots,
                cache_ttl=cache_ttl,
                checkpoints=checkpoints,
                width=width,
                progress=progress,
            )
            try:
                prepared()
            except BaseException:
                engine.close()
                raise
        except BaseException:
            opened.close()
            raise
    except BaseException:
        file.close()
        raise
    _give_back()
    return LoadedModel(model, engine, opened)


def open_device(options: Mapping[str, Any]) -> Device:
    """The device that the command-line options ask for: "device" names its kind, the rest are its own.

    Raises Unsupported where no installed plugin drives such a device, or the device is not there.
    """
    from golem_core import plugins

    return plugins.device(options["device"]).open(options)


def _give_back() -> None:
    """Return to the system what loading has freed and the C library keeps, where it can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


def _in_background(work: Callable[[], None], failure: str) -> Callable[[], None]:
    """Begin `work` on a thread.  What is returned waits for its end and raises its error: a GolemError as it is,
    another one as a BadFile that begins with `failure`."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the panic of a library in Rust is no Exception
            failed.append(error)

    thread = threading.Thread(target=run, name="golem-tokenizer", daemon=True)
    thread.start()

    def wait() -> None:
        thread.join()
        for error in failed:
            if isinstance(error, GolemError):
                raise error
            raise BadFile(f"{failure}: {' '.join(str(error).split()) or type(error).__name__}") from error

    return wait


class Answer:
    """An answer as it is drawn: an iterator over its tokens.

    Leaving it before its end, or letting go of it, cancels it.  `generation` has the facts: why it ended, how much
    of the prompt was cached, and where the time went.
    """

    def __init__(self, generation: Generation):
        self.generation = generation

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        return next(self.generation)

    def text(self) -> str:
        """What is left of the answer, as one string."""
        return "".join(token.text for token in self)

    def close(self) -> None:
        """End the answer here."""
        self.generation.cancel()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class LoadedModel:
    """A model on a device.  Use it as a context manager, or close it.  Answers may be drawn from many threads."""

    def __init__(self, model: ChatModel, engine: Engine, device: Any):
        self.model = model
        self.engine = engine
        self._device = device

    @property
    def name(self) -> str:
        return self.model.name

    def close(self) -> None:
        """End the running answers and let go of device and file."""
        self.engine.close()
        self._device.close()
        self.model.file.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """The ids of `text`.  `special` adds the tokens that the file puts around a text, and takes the names of
        control tokens in it for those tokens."""
        return self.model.tokenizer.encode(text, add_special=special, parse_special=special)

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of `ids`; `special` shows control tokens by their names."""
        return self.model.tokenizer.decode(ids, special=special)

    def generate(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 1024,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        stop: str | Iterable[str] = (),
        grammar: str | None = None,
        json_schema: Any = None,
        ignore_eos: bool = False,
        logprobs: bool = True,
        top_logprobs: int = 0,
        **sampling: Any,
    ) -> Answer:
        """Continue a prompt of token ids.

        Temperature, top_k, top_p and min_p default to what the model's file recommends; `sampling` takes the other
        fields of SamplingParams.  The answer follows `grammar` (GBNF) or `json_schema` (a dict) where one is given; the
        first one takes a few seconds.  Each token comes with its log-probability unless `logprobs` is False, and with
        the `top_logprobs` likeliest.  Raises BadRequest for a prompt that doesn't fit and values out of range.
        """
        from golem_core.engine import GenerationRequest
        from golem_core.sampling import SamplingParams

        if grammar is not None or json_schema is not None:
            sampling["grammar"] = self._constraint(grammar, json_schema)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        preset = self.model.sampling
        chosen = {name: getattr(preset, name) if value is None else value for name, value in given.items()}
        request = GenerationRequest(
            prompt=list(ids),
            max_tokens=max_tokens,
            sampling=SamplingParams(seed=seed, **chosen, **sampling),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            ignore_eos=ignore_eos,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
        )
        return Answer(self.engine.submit(request))

    def chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        template_variables: dict[str, Any] | None = None,
        **generation: Any,
    ) -> Answer:
        """Answer a conversation, written down by the model's chat template.

        `messages` are dicts with "role" and "content"; `generation` takes the keywords of `generate`.  Raises
        BadRequest where the model has no template or the template refuses the messages.
        """
        from golem_core.text.template import RESERVED

        template = self._template()
        variables = template_variables or {}
        for name in RESERVED & variables.keys():
            raise BadRequest(f"template_variables: {name!r} is not a variable to set", param="template_variables")
        prompt = template.render(messages, tools=tools, **variables)
        return self.generate(self.model.tokenizer.encode(prompt, parse_special=True), **generation)

    def _constraint(self, grammar: str | None, json_schema: Any) -> Constraint:
        from golem_core.sampling.grammar import Constraint, compile_gbnf, compile_schema

        if json_schema is None:
            assert grammar is not None
            return Constraint(compile_gbnf(self.model.tokenizer, grammar))
        if grammar is not None:
            raise BadRequest("grammar and json_schema were both given; an answer follows one of them", param="grammar")
        return Constraint(compile_schema(self.model.tokenizer, json_schema))

    def _template(self) -> ChatTemplate:
        from golem_core.text import ChatTemplate

        model = self.model
        if model.template is not None:
            return model.template
        if model.fallback_template is None:
            raise BadRequest(f"{model.name} has no chat template; it only continues text", param="messages")
        return ChatTemplate.of(model.fallback_template, model.tokenizer)
