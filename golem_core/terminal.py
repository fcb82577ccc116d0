"""`golem run`: one answer streamed to the terminal, or a conversation in it.

A conversation sends the whole history with every turn, as a client of the server would; what the slot already
holds is not read again.  Control-C stops an answer, control-D ends the conversation.  A model without a chat
template, or -raw, completes the text as it stands.  What a model thinks first is dimmed, and left out where the
output is no terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_core.engine import GenerationRequest, SortedAnswer, constraint
from golem_core.errors import BadRequest, GolemError
from golem_core.sampling import SamplingParams
from golem_core.server.loading import LoadedChat, default_model, load_chat
from golem_core.text import Calls, Markers, Reasoning

if TYPE_CHECKING:
    from golem_core.engine import Generation
    from golem_core.media.sources import Kind, Medium
    from golem_core.sampling.grammar import CompiledGrammar
    from golem_core.text import Tokenizer

__all__ = ["Terminal", "run"]

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def run(options: Mapping[str, Any]) -> None:
    """Open the model and answer the prompt given, the text piped in, or a person.  Raises GolemError."""
    prompt = options["prompt"]
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.read()
        if not prompt.strip():
            raise GolemError("there is no prompt: standard input is empty, and -p gives none")
    elif prompt is not None and not prompt.strip() and not (options.get("image") or options.get("audio")):
        raise GolemError("there is no prompt: the text of -p is empty")
    if options["model"] is None:
        label, path = default_model()
        _note(f"no -model: opening {label}; name another with -model FILE or GOLEM_MODEL")
    else:
        path = Path(options["model"])
    chat = load_chat(options, path)
    try:
        grammar = asked_grammar(chat.model.tokenizer, options)
        chat.ready()
        media = asked_media(chat, options)
        terminal = Terminal(chat, raw=options["raw"], stats=options["stats"], grammar=grammar, media=media)
        if options["stats"]:
            _note(f"loaded in {chat.load_seconds:.2f} s")
        if prompt is None:
            terminal.converse()
        else:
            terminal.answer(prompt)
    finally:
        chat.close()


def asked_grammar(tokenizer: Tokenizer, options: Mapping[str, Any]) -> CompiledGrammar | None:
    """What every answer is to follow, by the one of the options that was given; None for nothing.

    Raises GolemError naming the option whose file or text cannot be used.
    """
    given = {name: value for name in _GRAMMARS if (value := options.get(name.replace("-", "_"))) is not None}
    if not given:
        return None
    if len(given) > 1:
        raise GolemError(f"{' and '.join(f'-{name}' for name in given)} were both given; an answer follows one of them")
    from golem_core.sampling.grammar import compile_gbnf, compile_schema

    ((name, value),) = given.items()
    text = _read(name, value) if name.endswith("-file") else value
    if name.startswith("grammar"):
        return compile_gbnf(tokenizer, text, param=f"-{name}")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GolemError(f"-{name}: not JSON: {error}") from None
    return compile_schema(tokenizer, schema, param=f"-{name}")


_GRAMMARS = ("grammar", "grammar-file", "json-schema", "json-schema-file")


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise GolemError(f"-{name} {path}: {getattr(error, 'strerror', None) or error}") from error


def asked_media(chat: LoadedChat, options: Mapping[str, Any]) -> list[Medium]:
    """The pictures of -image, then the recordings of -audio.  Raises GolemError naming the option."""
    from golem_core.media.prompt import known
    from golem_core.media.sources import Medium, read_file

    named: tuple[tuple[str, Kind], ...] = (("image", "image"), ("audio", "audio"))
    files: list[tuple[str, Kind, str]] = [
        (f"-{name} {path}", kind, path) for name, kind in named for path in options.get(name) or ()
    ]
    if files and options["raw"]:
        raise GolemError(f"{files[0][0]}: media go with a chat template, not with -raw")
    media = []
    for where, kind, path in files:
        known(chat.media.media if chat.media else None, kind, where)
        media.append(Medium(kind, read_file(Path(path), where), where))
    return media


class Terminal:
    """A conversation on standard input and output; notes and statistics go to standard error."""

    def __init__(
        self,
        chat: LoadedChat,
        *,
        raw: bool,
        stats: bool,
        grammar: CompiledGrammar | None = None,
        media: Sequence[Medium] = (),
    ):
        """`media` go with the first text."""
        self.chat = chat
        self.media = list(media)
        self.raw = raw or chat.template is None
        self.stats = stats
        self.grammar = grammar
        self.history: list[dict[str, Any]] = []

    def answer(self, text: str) -> None:
        """Stream the answer to one text, and remember both unless the text is merely completed."""
        content: Any = text
        if self.media and not self.history:
            content = [*({"type": each.kind} for each in self.media), {"type": "text", "text": text}]
        turns = [*self.history, {"role": "user", "content": content}]
        tokenizer = self.chat.model.tokenizer
        tokens = (
            tokenizer.encode(text, add_special=True)
            if self.raw
            else self.chat.prompt(turns, settings={"enable_thinking": False})
        )
        tokens, spans = (tokens, ()) if self.raw else self.chat.place(tokens, self.media)
        preset = self.chat.model.sampling
        held = None if self.grammar is None else constraint(self.chat.model, self.grammar, tokens, thinks=False)
        sampling = SamplingParams(
            temperature=preset.temperature, top_k=preset.top_k, top_p=preset.top_p, min_p=preset.min_p, grammar=held
        )
        request = GenerationRequest(prompt=tokens, max_tokens=self.chat.answer_budget, sampling=sampling, media=spans)
        markers = Markers() if self.raw else self.chat.model.markers
        answer = SortedAnswer.submit(self.chat.engine, self.chat.model, request, markers=markers)
        said = self._show(answer)
        if not self.raw:
            self.history = [*turns, {"role": "assistant"} | said]
        if answer.generation.finish_reason == "length":
            _note(self._cut(answer.generation.drawn))
        if self.stats:
            _note(_statistics(answer.generation))

    def _cut(self, drawn: int) -> str:
        """Why an answer of so many tokens ended before the model ended it."""
        count = f"{drawn} token{'s' * (drawn != 1)}"
        if drawn >= self.chat.answer_budget:
            return f"the answer was cut after {count}; a larger -n lets it go on"
        return f"the answer was cut after {count}: the context of {self.chat.slot_context} is full; raise -context"

    def _show(self, answer: SortedAnswer) -> dict[str, str]:
        """Write the answer as it comes, its reasoning dimmed and only on a terminal; what was said, as a message."""
        said = {"content": ""}
        dim = False
        try:
            for event in (event for events in answer for event in events if not isinstance(event, Calls)):
                thought = isinstance(event, Reasoning)
                field = "reasoning_content" if thought else "content"
                said[field] = said.get(field, "") + event.text
                if sys.stdout.isatty() and thought != dim:
                    sys.stdout.write(_DIM if thought else _PLAIN + "\n\n")
                    dim = thought
                if sys.stdout.isatty() or not thought:
                    sys.stdout.write(event.text)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        finally:
            answer.generation.cancel()
            if dim:
                sys.stdout.write(_PLAIN)
        sys.stdout.write("\n")
        sys.stdout.flush()
        return said

    def converse(self) -> None:
        """Answer line after line until the input ends."""
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() line editing and history)

        what = "completing text" if self.raw else "control-C stops an answer, control-D ends"
        _note(f"{self.chat.name}: {what}")
        while True:
            try:
                text = input("> ")
            except EOFError:
                sys.stdout.write("\n")
                return
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                continue
            if not text.strip():
                continue
            try:
                self.answer(text)
            except BadRequest as error:
                _note(str(error))


def _statistics(generation: Generation) -> str:
    def rate(count: int, seconds: float) -> str:
        return f"{count / seconds:.1f} tokens/s" if seconds > 0 else "-"

    read = f"prompt: {generation.fed} tokens read, {generation.cached_tokens} cached, "
    drawn = f"answer: {generation.drawn} tokens, "
    read += rate(generation.fed, generation.prompt_seconds)
    drawn += rate(generation.drawn, generation.draw_seconds)
    if generation.guessed:
        drawn += f", {generation.confirmed} of {generation.guessed} guesses confirmed"
    return f"{read}; {drawn}; {generation.finish_reason}"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
