"""A conversation as the text that a model was trained on: the chat template of its file, rendered by Jinja.

Templates come from downloaded files and are not trusted; `sandbox` has the limits.  Names and behaviour follow what
the published templates expect of transformers' `apply_chat_template`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadFile, BadRequest

if TYPE_CHECKING:
    from golem_core.files import Metadata
    from golem_core.text.sandbox import BoundedEnvironment
    from golem_core.text.tokenizer import Tokenizer

RESERVED = frozenset({"self", "messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Variables of a template that are the server's to set, not a request's."""

LONGEST_SOURCE = 1 << 20
LONGEST_JSON = 8 << 20


class ChatTemplate:
    """A compiled template.  `source`: Jinja text. Raises BadFile if it is too long or is not Jinja.

    `bos_token`, `eos_token`: texts that the template may write.  `with_tools`: the template to use in its place where
    there are tools.  Safe to use from several threads.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str, with_tools: ChatTemplate | None = None):
        from jinja2 import TemplateError

        from golem_core.text.sandbox import budget

        if len(source) > LONGEST_SOURCE:
            raise BadFile(f"the chat template has {len(source)} characters; {LONGEST_SOURCE} are allowed")
        self.source = source
        self._with_tools = with_tools
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            with budget():
                self._template = _environment().from_string(source)
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            raise BadFile(f"the chat template is no Jinja{f', line {line}' if line else ''}: {error}") from error
        except Exception as error:  # Jinja's own code, over a text that anyone may have written
            raise BadFile(f"the chat template can't be compiled: {_words(error)}") from error

    @classmethod
    def of(cls, source: str, tokenizer: Tokenizer, with_tools: ChatTemplate | None = None) -> ChatTemplate:
        """The template `source` for the vocabulary of `tokenizer`, whose begin and end tokens it may write."""
        bos, eos = ("" if token is None else tokenizer.token_text(token) for token in (tokenizer.bos, tokenizer.eos))
        return cls(source, bos_token=bos, eos_token=eos, with_tools=with_tools)

    @classmethod
    def read(cls, metadata: Metadata, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The file's own template, `tokenizer.chat_template`, or None; BadFile where the key holds no text.

        `tokenizer.chat_template.tool_use` is the one that some files have for conversations with tools.
        """
        source, tool_use = (metadata.text(f"tokenizer.chat_template{name}", "") for name in ("", ".tool_use"))
        with_tools = cls.of(tool_use, tokenizer) if source and tool_use else None
        return cls.of(source, tokenizer, with_tools) if source else None

    def takes(self, variable: str) -> bool:
        """Whether the template looks at `variable`, such as "tools"."""
        return variable in self._variables or (self._with_tools is not None and self._with_tools.takes(variable))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The text of a conversation.

        `tools`: None rather than an empty list reaches the template. `kwargs`: further variables. Raises BadRequest
        with the template's own words if it refuses the conversation, or if it breaks or runs over a limit.
        """
        from jinja2 import TemplateError

        from golem_core.text.sandbox import budget

        if tools and self._with_tools is not None:
            return self._with_tools.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, **kwargs)
        variables = {
            **self._tokens,
            **kwargs,
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with budget():
                return self._template.render(variables)
        except TemplateError as error:
            raise BadRequest(str(error), param="messages", code="chat_template") from error
        except Exception as error:  # a template's expressions can raise whatever Python's own values raise
            message = f"the chat template fails: {_words(error)}"
            raise BadRequest(message, param="messages", code="chat_template") from error

    @cached_property
    def _variables(self) -> set[str]:
        from jinja2 import meta

        return meta.find_undeclared_variables(_environment().parse(self.source))


def _words(error: Exception) -> str:
    """What an error says, on one line; its kind if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


@cache
def _environment() -> BoundedEnvironment:
    from jinja2 import TemplateError

    from golem_core.text.sandbox import BoundedEnvironment, guard_filter

    def raise_exception(message: object) -> None:
        raise TemplateError(str(message))

    def strftime_now(format: str) -> str:
        return datetime.now().strftime(format)

    environment = BoundedEnvironment()
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    environment.filters["tojson"] = guard_filter(tojson, weighed=True)
    return environment


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: nothing escaped for HTML, other scripts kept, members in their order."""
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return encoder.encode(value)
    if (indent if isinstance(indent, int) else len(indent)) > 64:
        raise ValueError(f"tojson indents by 64 blanks at most, not by {indent}")
    parts: list[str] = []
    room = LONGEST_JSON
    for part in encoder.iterencode(value):  # deep nesting makes long lines: stop before they are joined
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise ValueError("the JSON text is too long")
    return "".join(parts)
