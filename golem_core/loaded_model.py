"""A loaded conversation model: make tokens of text, and draw answers.

with golem_core.load("model.gguf") as model:
    for token in model.generate(model.tokenize("Once upon a time", special=True), max_tokens=50):
        print(token.text, end="")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from golem_core.api_answers import Answer, ChatAnswer
from golem_core.background import give_back
from golem_core.errors import BadRequest, GolemError
from golem_core.keywords import check_keywords

if TYPE_CHECKING:
    from golem_core.engine import Engine, GenerationRequest
    from golem_core.engine.media import Span
    from golem_core.engine.roles import ChatModel
    from golem_core.files import ModelFile
    from golem_core.media.encoder import MediaEncoder
    from golem_core.media.sources import Kind, Medium
    from golem_core.sampling.grammar import CompiledGrammar, Constraint
    from golem_core.text import ChatTemplate

__all__ = ["LoadedModel"]


class LoadedModel:
    """A model on a device.  Use it as a context manager, or close it.  Answers may be drawn from many threads."""

    def __init__(
        self,
        model: ChatModel,
        engine: Engine,
        device: Any,
        prepared: Callable[[], None] = lambda: None,
        *,
        encoder: MediaEncoder | None = None,
        projector: ModelFile | None = None,
    ):
        self.encoder = encoder
        """What makes rows of pictures and recordings, where there is a projector."""
        self._projector = projector
        self.model = model
        self.engine = engine
        self._device = device
        self._prepared = prepared

    @property
    def name(self) -> str:
        """The model's name: its file's without `.gguf`, or its directory's."""
        return self.model.name

    def ready(self) -> None:
        """Wait until all is loaded; raises what `load` raises."""
        self.engine.ready()
        self._prepared()
        give_back()

    def close(self) -> None:
        """End the running answers and let go of device and file."""
        self.engine.close()
        with suppress(GolemError):  # a thread that still makes the tokenizer's tables would abort a process that ends
            self._prepared()
        self._device.close()
        self.model.file.close()
        if self._projector is not None:
            self._projector.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """The ids of `text`.  `special` adds the tokens that the file puts around a text, and takes the names of
        control tokens in it for those tokens."""
        if not isinstance(text, str):
            raise BadRequest(f"text: expected a text, got {text!r}")
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
        the `top_logprobs` likeliest.  Raises BadRequest for a prompt that doesn't fit and values out of range,
        and TypeError for a keyword that is no field.
        """
        _check_sampling(self.generate, sampling)
        if isinstance(ids, str):
            raise BadRequest("ids: expected a list of token ids, as tokenize() gives them, got a text")
        held = self._grammar(grammar, json_schema)
        constraint = None
        if held is not None:
            from golem_core.sampling.grammar import Constraint

            constraint = Constraint(held)
        request = self._request(
            list(ids),
            {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p},
            constraint,
            sampling | {"seed": seed},
            max_tokens=max_tokens,
            stop=_stops(stop),
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
        **sampling: Any,
    ) -> ChatAnswer:
        """Answer a conversation, written down by the model's chat template.

        `messages` are dicts with "role" and "content", a text or, where there are pictures and recordings, a list of
        parts: {"type": "text", "text": ...}, {"type": "image", "image": ...} and {"type": "audio", "audio": ...}, the
        last two with bytes, a path, a data: URI or an image of Pillow's; "image_url" and "input_audio" as in OpenAI's
        API are taken too.  Files are of the formats that the server takes.  `tools` declares functions as OpenAI's API
        does.
        `template_variables` go to the template: {"enable_thinking": True} has a model think first that can.  The other
        keywords are those of `generate`; a `grammar` or a `json_schema` holds for the content, after a thought, and
        leaves no calls.  Raises BadRequest where there is no message, where the model has no template, no tool calls or
        no projector for what was sent, the template refuses the messages, or a picture or a recording is damaged or too
        large.
        """
        from golem_core.engine import SortedAnswer, constraint
        from golem_core.media.apart import tokens, write
        from golem_core.text.markers import argument_schemas
        from golem_core.text.template import RESERVED

        _check_sampling(self.chat, sampling)
        template = self._template()
        variables = {"enable_thinking": False, **(template_variables or {})}
        for name in RESERVED & variables.keys():
            raise BadRequest(f"template_variables: {name!r} is not a variable to set", param="template_variables")
        if tools and (self.model.markers.call is None or not template.takes("tools")):
            raise BadRequest(f"tools: {self.name} has no tool calls", param="tools", code="tools_not_supported")
        held = self._grammar(grammar, json_schema)
        messages, given = self._read(messages)
        text = write(self.model, template, messages, tools=tools, **variables)
        prompt, spans = self._placed(tokens(self.model, text), given)
        request = self._request(
            prompt,
            {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p},
            None if held is None else constraint(self.model, held, prompt, thinks=bool(variables["enable_thinking"])),
            sampling | {"seed": seed},
            max_tokens=max_tokens,
            stop=_stops(stop),
            ignore_eos=ignore_eos,
            media=spans,
        )
        schemas = argument_schemas(tools) if tools else None
        return ChatAnswer(
            SortedAnswer.submit(self.engine, self.model, request, markers=self.model.markers, tools=schemas)
        )

    def _read(self, messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Medium]]:
        """The messages as a template reads them, and the media that they had."""
        from golem_core.media.parts import of_caller, read_messages
        from golem_core.media.sources import NAMES

        def source(kind: Kind, given: Any, where: str) -> Medium:
            if self.model.media is None or self.model.media.kind(kind) is None:
                sense = NAMES[kind][1]
                why = "loaded without a projector" if self.model.media is None else f"its projector cannot {sense}"
                raise BadRequest(f"{where}: {self.name} cannot {sense}; {why} (mmproj)", param="messages")
            return of_caller(kind, given, where)

        if not messages:
            raise BadRequest("messages: the conversation has no message", param="messages")
        return read_messages(messages, source)

    def _placed(self, tokens: list[int], given: list[Medium]) -> tuple[list[int], tuple[Span, ...]]:
        """The prompt with rows of the media that `tokens` have places for."""
        if self.encoder is None:
            return tokens, ()
        from golem_core.engine.request import check_room
        from golem_core.media.prompt import MediaReader

        room = lambda count: check_room(count, self.engine.context, self.engine.slots)
        return MediaReader(self.encoder).place(tokens, given, room)

    def _request(
        self,
        prompt: list[int],
        chosen: dict[str, Any],
        grammar: Constraint | None,
        sampling: dict[str, Any],
        **generation: Any,
    ) -> GenerationRequest:
        """A request whose sampling is what the model's file recommends where nothing is `chosen`."""
        from golem_core.engine import GenerationRequest
        from golem_core.sampling import SamplingParams

        preset = self.model.sampling
        chosen = {name: getattr(preset, name) if value is None else value for name, value in chosen.items()}
        return GenerationRequest(prompt, sampling=SamplingParams(grammar=grammar, **chosen, **sampling), **generation)

    def _grammar(self, grammar: str | None, json_schema: Any) -> CompiledGrammar | None:
        from golem_core.sampling.grammar import compile_gbnf, compile_schema

        if grammar is None and json_schema is None:
            return None
        if json_schema is None:
            assert grammar is not None
            return compile_gbnf(self.model.tokenizer, grammar)
        if grammar is not None:
            raise BadRequest("grammar and json_schema were both given; an answer follows one of them", param="grammar")
        return compile_schema(self.model.tokenizer, json_schema)

    def _template(self) -> ChatTemplate:
        from golem_core.text import ChatTemplate

        model = self.model
        if model.template is not None:
            return model.template
        if model.fallback_template is None:
            raise BadRequest(f"{model.name} has no chat template; it only continues text", param="messages")
        return ChatTemplate.of(model.fallback_template, model.tokenizer)


def _stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    found = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Iterable) else ()
    if not isinstance(stop, Iterable) or not all(isinstance(each, str) for each in found):
        raise BadRequest(f"stop: expected a text or several, got {stop!r}", param="stop")
    return found


def _check_sampling(function: Callable[..., object], sampling: Mapping[str, Any]) -> None:
    from golem_core.sampling import SamplingParams

    check_keywords(function, sampling, lambda: SamplingParams.__dataclass_fields__)
